package artefact

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"ramet.dev/ramet/api"
)

// resigned changes the sample's documents and makes all digests right again, as somebody
// hostile does.
func resigned(t testing.TB, change func(c *Config, m *Manifest)) []byte {
	s := newSample(t)
	change(s.config, s.manifest)
	text, err := s.config.Encode()
	if err != nil {
		t.Fatal(err)
	}
	s.manifest.Config.Digest, s.manifest.Config.Size = Digest(text), int64(len(text))
	return s.archive(t)
}

func TestHostileDocuments(t *testing.T) {
	for name, change := range map[string]func(c *Config, m *Manifest){
		"version":            func(c *Config, _ *Manifest) { c.Version = 7 },
		"a million parts":    func(c *Config, _ *Manifest) { c.Parts = make([]Part, 20000) },
		"2^60 pages":         func(c *Config, _ *Manifest) { c.Parts[0].Size = 1 << 62 },
		"odd part":           func(c *Config, _ *Manifest) { c.Parts[0].Size++ },
		"unknown kind":       func(c *Config, _ *Manifest) { c.Parts[0].Kind = "x" },
		"digest of a part":   func(c *Config, _ *Manifest) { c.Parts[0].Digest = "sha256:x" },
		"other length":       func(c *Config, _ *Manifest) { c.Parts[0].Size += PageSize },
		"huge state":         func(c *Config, _ *Manifest) { c.State.Size = 1 << 60 },
		"no image":           func(c *Config, _ *Manifest) { c.Image.ID = "x" },
		"ancestor loop":      func(c *Config, _ *Manifest) { c.Lineage = append(c.Lineage, c.Lineage[0]) },
		"its own ancestor":   func(c *Config, _ *Manifest) { c.Lineage = append(c.Lineage, c.ID) },
		"ancestor":           func(c *Config, _ *Manifest) { c.Lineage[0] = "../x" },
		"feature":            func(c *Config, _ *Manifest) { c.Processor.Features[0] = "a\x1b[2J" },
		"architecture":       func(c *Config, _ *Manifest) { c.Processor.Architecture = "" },
		"engine":             func(c *Config, _ *Manifest) { c.Engine.Name = "" },
		"id":                 func(c *Config, _ *Manifest) { c.ID = "/etc/passwd" },
		"type":               func(_ *Config, m *Manifest) { m.ArtifactType = "application/x" },
		"type of the config": func(_ *Config, m *Manifest) { m.Config.MediaType = "application/x" },
		"schema":             func(_ *Config, m *Manifest) { m.SchemaVersion = 1 },
		"no state":           func(_ *Config, m *Manifest) { m.Layers = m.Layers[1:] },
		"two states":         func(_ *Config, m *Manifest) { m.Layers = append(m.Layers, m.Layers[0]) },
		"no index":           func(_ *Config, m *Manifest) { m.Layers = slices.Delete(m.Layers, 1, 2) },
		"no frames":          func(_ *Config, m *Manifest) { m.Layers = slices.Delete(m.Layers, 2, 3) },
		"pages twice":        func(_ *Config, m *Manifest) { m.Layers = append(m.Layers, m.Layers[2]) },
		"index twice":        func(_ *Config, m *Manifest) { m.Layers = append(m.Layers, m.Layers[1]) },
		"two sizes":          func(_ *Config, m *Manifest) { m.Layers[3].Digest = m.Layers[1].Digest },
		"other pages":        func(_ *Config, m *Manifest) { m.Layers[1].Annotations = map[string]string{contentKey: "x"} },
		"negative size":      func(_ *Config, m *Manifest) { m.Layers[0].Size = -1 },
		"huge blob":          func(_ *Config, m *Manifest) { m.Layers[0].Size = 1 << 60 },
		"other size":         func(_ *Config, m *Manifest) { m.Layers[0].Size++ },
		"absent blob":        func(_ *Config, m *Manifest) { m.Layers[0].Digest = Digest(nil) },
		"a million blobs":    func(_ *Config, m *Manifest) { m.Layers = append(m.Layers, make([]Descriptor, 10000)...) },
		"huge document":      func(c *Config, _ *Manifest) { c.Name = strings.Repeat("x", maxDocument) },
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := read(t.Context(), resigned(t, change)); err == nil {
				t.Fatal("accepted")
			} else if code := api.CodeOf(err); code != api.CodeCorrupt && code != api.CodeHostile && code != api.CodeUnsupported {
				t.Errorf("%s: %v", code, err)
			}
		})
	}
}

func TestHostileArchives(t *testing.T) {
	good := filesOf(t, newSample(t).archive(t))
	for name, change := range map[string]func([]file) []file{
		"empty":        func([]file) []file { return nil },
		"no index":     func(l []file) []file { return slices.Delete(l, 1, 2) },
		"two indexes":  func(l []file) []file { return append(l, l[1]) },
		"no manifest":  func(l []file) []file { return slices.Delete(l, 2, 3) },
		"no config":    func(l []file) []file { return slices.Delete(l, 3, 4) },
		"blob twice":   func(l []file) []file { return append(l, l[5]) },
		"changed blob": func(l []file) []file { l[5].text = append(l[5].text, 0); return l },
		"missing blob": func(l []file) []file { return l[:len(l)-1] },
		"no digest":    func(l []file) []file { l[5].name = blobsDir + "../../x"; return l },
		"bad index":    func(l []file) []file { l[1].text = []byte("{"); return l },
		"two snapshots": func(l []file) []file {
			l[1].text = []byte(`{"schemaVersion":2,"manifests":[{"digest":"` + Digest(nil) + `"},{"digest":"` + Digest(nil) + `"}]}`)
			return l
		},
		"many files": func(l []file) []file {
			for i := range maxEntries {
				l = append(l, file{fmt.Sprint("x", i), nil})
			}
			return l
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := read(t.Context(), tarOf(t, change(slices.Clone(good))))
			if code := api.CodeOf(err); err == nil || code != api.CodeCorrupt && code != api.CodeHostile {
				t.Errorf("%v", err)
			}
		})
	}
	whole := newSample(t).archive(t)
	for n := 0; n < len(whole)-2048; n += 700 {
		if _, err := read(t.Context(), whole[:n]); api.CodeOf(err) != api.CodeCorrupt {
			t.Errorf("cut off after %d bytes: %v", n, err)
		}
	}
	t.Run("link", func(t *testing.T) {
		var out bytes.Buffer
		w := tar.NewWriter(&out)
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: blobPath(Digest(nil)), Linkname: "/etc/passwd"}); err != nil {
			t.Fatal(err)
		}
		_, err := read(t.Context(), out.Bytes())
		wantCode(t, err, api.CodeHostile)
	})
}

func TestHostileIndexes(t *testing.T) {
	le := binary.LittleEndian
	x := &Index{Size: 16 * FrameBytes, Frames: []Frame{{Place: 0, Offset: 0, Length: 20}, {Place: 3 * FrameBytes, Offset: 20, Length: 30}}}
	row := func(b []byte, i int) []byte { return b[headBytes+rowBytes*i:] }
	if _, err := ParseIndex(x.Encode()); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(b []byte) []byte{
		"empty":          func([]byte) []byte { return nil },
		"magic":          func(b []byte) []byte { b[0]++; return b },
		"version":        func(b []byte) []byte { b[8]++; return b },
		"frame size":     func(b []byte) []byte { b[13]++; return b },
		"2^60 pages":     func(b []byte) []byte { le.PutUint64(b[16:], 1<<60); return b },
		"no page":        func(b []byte) []byte { le.PutUint64(b[16:], 0); return b },
		"odd size":       func(b []byte) []byte { b[16]++; return b },
		"2^60 frames":    func(b []byte) []byte { le.PutUint64(b[24:], 1<<60); return b },
		"cut off":        func(b []byte) []byte { return b[:len(b)-1] },
		"longer":         func(b []byte) []byte { return append(b, 0) },
		"not aligned":    func(b []byte) []byte { le.PutUint64(row(b, 1), 1); return b },
		"same place":     func(b []byte) []byte { le.PutUint64(row(b, 1), 0); return b },
		"outside":        func(b []byte) []byte { le.PutUint64(row(b, 1), 16*FrameBytes); return b },
		"negative place": func(b []byte) []byte { le.PutUint64(row(b, 1), ^uint64(FrameBytes-1)); return b },
		"overlap":        func(b []byte) []byte { le.PutUint64(row(b, 1)[8:], 19); return b },
		"gap":            func(b []byte) []byte { le.PutUint64(row(b, 1)[8:], 21); return b },
		"empty frame":    func(b []byte) []byte { le.PutUint32(row(b, 1)[16:], 0); return b },
		"long frame":     func(b []byte) []byte { le.PutUint32(row(b, 1)[16:], maxFrame+1); return b },
		"reserved":       func(b []byte) []byte { row(b, 1)[20] = 1; return b },
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := ParseIndex(change(x.Encode())); err == nil {
				t.Errorf("accepted %+v", got)
			}
		})
	}
	_, err := ReadIndex(bytes.NewReader(x.Encode()), 8*FrameBytes, 50)
	wantCode(t, err, api.CodeCorrupt)
	_, err = ReadIndex(bytes.NewReader(x.Encode()), 16*FrameBytes, 51)
	wantCode(t, err, api.CodeCorrupt)
}

// TestHostileFrames has frames that are not what their index says: bombs among them.
func TestHostileFrames(t *testing.T) {
	enc, err := newEncoder()
	if err != nil {
		t.Fatal(err)
	}
	defer enc.Close()
	bomb := enc.EncodeAll(make([]byte, 64<<20), nil)
	good := bytes.Repeat([]byte{1}, FrameBytes)
	frame := enc.EncodeAll(good, nil)
	for name, c := range map[string]struct {
		blob   []byte
		digest [sha256.Size]byte
	}{
		"bomb":       {bomb, sha256.Sum256(make([]byte, 64<<20))},
		"digest":     {frame, sha256.Sum256(nil)},
		"short":      {enc.EncodeAll(good[1:], nil), sha256.Sum256(good[1:])},
		"garbage":    {noise(1000), sha256.Sum256(good)},
		"two frames": {append(slices.Clone(frame), frame...), sha256.Sum256(append(good, good...))},
	} {
		t.Run(name, func(t *testing.T) {
			x := &Index{Size: 4 * FrameBytes, Frames: []Frame{{Length: len(c.blob), Digest: c.digest}}}
			if len(c.blob) > maxFrame {
				t.Fatalf("a frame of %d bytes is refused by its index", len(c.blob))
			}
			err := ReadPages(t.Context(), bytes.NewReader(c.blob), x, func(int64, []byte) error {
				t.Error("its contents are used")
				return nil
			})
			wantCode(t, err, api.CodeCorrupt)
		})
	}
	x := &Index{Size: 4 * FrameBytes, Frames: []Frame{{Length: len(frame), Digest: sha256.Sum256(good)}}}
	nothing := func(int64, []byte) error { return nil }
	wantCode(t, ReadPages(t.Context(), bytes.NewReader(frame[:5]), x, nothing), api.CodeCorrupt)
	wantCode(t, ReadPages(t.Context(), bytes.NewReader(append(frame, 0)), x, nothing), api.CodeCorrupt)
}

func FuzzIndex(f *testing.F) {
	x := &Index{Size: 16 * FrameBytes, Frames: []Frame{{Place: 0, Offset: 0, Length: 20}, {Place: 3 * FrameBytes, Offset: 20, Length: 30}}}
	f.Add(x.Encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		x, err := ParseIndex(b)
		if err != nil {
			return
		}
		at, offset := int64(0), int64(0)
		for _, fr := range x.Frames {
			if fr.Place < at || fr.Place >= x.Size || fr.Offset != offset || fr.Length <= 0 || fr.Length > maxFrame {
				t.Fatalf("accepted %+v", fr)
			}
			at, offset = fr.Place+FrameBytes, offset+int64(fr.Length)
		}
		if !bytes.Equal(x.Encode(), b) {
			t.Fatal("encoded it is another")
		}
	})
}

func FuzzHead(f *testing.F) {
	s := newSample(f)
	config, err := s.config.Encode()
	if err != nil {
		f.Fatal(err)
	}
	manifest, err := s.manifest.Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(manifest, config)
	f.Fuzz(func(t *testing.T, manifest, config []byte) {
		// The digest is made right: else nothing passes it.
		var m Manifest
		if json.Unmarshal(manifest, &m) == nil {
			m.Config.Digest, m.Config.Size = Digest(config), int64(len(config))
			if again, err := m.Encode(); err == nil {
				manifest = again
			}
		}
		h, err := NewHead(manifest, config)
		if err != nil {
			return
		}
		if len(h.Config.Parts) > MaxParts || len(h.Manifest.Layers) > maxLayers {
			t.Fatal("accepted too many parts")
		}
		for _, p := range h.Config.Parts {
			if p.Size <= 0 || p.Size > MaxPartBytes || h.Blobs.Pages[p.Key()].Index.Digest == "" {
				t.Fatalf("accepted %+v", p)
			}
		}
	})
}

func FuzzArchive(f *testing.F) {
	f.Add(newSample(f).archive(f))
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := read(context.Background(), b)
		if err == nil && a.Head == nil {
			t.Fatal("accepted an archive without a snapshot")
		}
	})
}

func FuzzPages(f *testing.F) {
	enc, err := newEncoder()
	if err != nil {
		f.Fatal(err)
	}
	defer enc.Close()
	good := bytes.Repeat([]byte{1}, FrameBytes)
	frame := enc.EncodeAll(good, nil)
	f.Add(frame)
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) == 0 || len(b) > maxFrame {
			return
		}
		x := &Index{Size: FrameBytes, Frames: []Frame{{Length: len(b), Digest: sha256.Sum256(good)}}}
		_ = ReadPages(context.Background(), bytes.NewReader(b), x, func(_ int64, data []byte) error {
			if !bytes.Equal(data, good) {
				t.Fatal("other contents have passed")
			}
			return nil
		})
		_ = ReadStream(context.Background(), io.Discard, bytes.NewReader(b), Content{Digest: Digest(nil), Size: FrameBytes})
	})
}

// TestSparseArchives are refused: a few bytes would be terabytes of zeros.
func TestSparseArchives(t *testing.T) {
	a := &archiveReader{}
	err := a.entry(&tar.Header{Name: "x", Typeflag: tar.TypeReg, PAXRecords: map[string]string{"GNU.sparse.major": "1"}}, nil)
	if api.CodeOf(err) != api.CodeHostile {
		t.Errorf("a file with holes: %v", err)
	}
}
