package artefact

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ramet.dev/ramet/api"
)

// sparse makes a file with pages at some places, and a length.
func sparse(t testing.TB, size int64, pages map[int64][]byte) *os.File {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), "part")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	for at, b := range pages {
		if _, err := f.WriteAt(b, at); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	return f
}

func page(b byte) []byte { return bytes.Repeat([]byte{b}, PageSize) }

func noise(n int) []byte {
	b := make([]byte, n)
	rng := rand.NewChaCha8([32]byte{1})
	rng.Read(b)
	return b
}

// buffer is a spool in memory.
type buffer struct{ bytes.Buffer }

func (b *buffer) ReadAt(p []byte, off int64) (int, error) {
	return bytes.NewReader(b.Bytes()).ReadAt(p, off)
}

func TestPagesComeBack(t *testing.T) {
	ctx := t.Context()
	size := int64(40<<20 + 3*PageSize)
	random := noise(3 * FrameBytes)
	f := sparse(t, size, map[int64][]byte{
		0: page(1), FrameBytes - PageSize: page(2), 5 * FrameBytes: page(0), 9*FrameBytes + PageSize: random, size - PageSize: page(3),
	})
	var frames, again bytes.Buffer
	x, err := WritePages(ctx, &frames, f, size)
	if err != nil {
		t.Fatal(err)
	}
	if y, err := WritePages(ctx, &again, f, size); err != nil || !bytes.Equal(again.Bytes(), frames.Bytes()) || !bytes.Equal(x.Encode(), y.Encode()) {
		t.Errorf("the same pages have given other frames: %v", err)
	}
	if n := len(x.Frames); n != 6 {
		t.Errorf("%d frames", n)
	}
	y, err := ReadIndex(bytes.NewReader(x.Encode()), size, int64(frames.Len()))
	if err != nil {
		t.Fatal(err)
	}
	whole := PagesReader(ctx, bytes.NewReader(frames.Bytes()), y)
	defer whole.Close()
	got, err := io.ReadAll(whole)
	if err != nil {
		t.Fatal(err)
	}
	want := make([]byte, size)
	if _, err := f.ReadAt(want, 0); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("other bytes came back")
	}
}

func TestStreamComesBack(t *testing.T) {
	for _, n := range []int{1, PageSize, 16 * FrameBytes, 16*FrameBytes + 1, 9 << 20} {
		in := noise(n)
		c := Content{Digest: Digest(in), Size: int64(n)}
		var packed, out bytes.Buffer
		if err := WriteStream(t.Context(), &packed, bytes.NewReader(in)); err != nil {
			t.Fatal(err)
		}
		if err := ReadStream(t.Context(), &out, bytes.NewReader(packed.Bytes()), c); err != nil || !bytes.Equal(out.Bytes(), in) {
			t.Errorf("%d bytes: %v", n, err)
		}
		c.Size--
		wantCode(t, ReadStream(t.Context(), io.Discard, bytes.NewReader(packed.Bytes()), c), api.CodeCorrupt)
		c.Size++
		wantCode(t, ReadStream(t.Context(), io.Discard, bytes.NewReader(packed.Bytes()[:packed.Len()/2]), c), api.CodeCorrupt)
		full := errors.New("full")
		if err := ReadStream(t.Context(), failing{full}, bytes.NewReader(packed.Bytes()), c); !errors.Is(err, full) {
			t.Errorf("a full disk is %v", err)
		}
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

func wantCode(t *testing.T, err error, code api.Code) {
	t.Helper()
	if err == nil || api.CodeOf(err) != code {
		t.Errorf("%v, expected is an error of %s", err, code)
	}
}

// sample is a snapshot of two parts that is made of nothing but its test.
type sample struct {
	config   *Config
	manifest *Manifest
	blobs    map[string][]byte
	order    []Descriptor
}

func (s *sample) put(mediaType string, b []byte) Descriptor {
	d := Descriptor{MediaType: mediaType, Digest: Digest(b), Size: int64(len(b))}
	if _, has := s.blobs[d.Digest]; !has {
		s.order = append(s.order, d)
	}
	s.blobs[d.Digest] = b
	return d
}

func (s *sample) pages(t testing.TB, f *os.File, size int64) Pages {
	t.Helper()
	var frames bytes.Buffer
	x, err := WritePages(t.Context(), &frames, f, size)
	if err != nil {
		t.Fatal(err)
	}
	return Pages{Index: s.put(IndexType, x.Encode()), Frames: s.put(PagesType, frames.Bytes())}
}

func newSample(t testing.TB) *sample {
	t.Helper()
	s := &sample{blobs: map[string][]byte{}}
	state := bytes.Repeat([]byte("state"), 1000)
	content := func(text string, size int64) Content { return Content{Digest: Digest([]byte(text)), Size: size} }
	s.config = &Config{
		Version: Version, ID: "snap_aaaaaaaaaaaaaaaa", Name: "warm", CreatedAt: time.Date(2026, 11, 29, 8, 0, 0, 0, time.UTC),
		Engine:    Engine{Name: "gvisor v1, state 13", Build: "gvisor v1", Sentry: Digest([]byte("sentry")), Size: 6},
		Processor: Processor{Architecture: "amd64", PageSize: PageSize, Features: []string{"avx", "sse42"}},
		Image:     Image{ID: "img_aaaaaaaaaaaaaaaa", Content: content("image", 8*PageSize), Config: api.ImageConfig{Env: []string{"A=b"}}},
		State:     Content{Digest: Digest(state), Size: int64(len(state))},
		Parts:     []Part{{KindMemory, content("memory", 16*FrameBytes)}, {KindFiles, content("files", 3*PageSize)}},
		Lineage:   []string{"sbx_aaaaaaaaaaaaaaaa"},
		Sandbox:   Sandbox{Name: "base", Env: map[string]string{"K": "v"}},
		LeftOut:   []string{"volumes"},
	}
	var packed bytes.Buffer
	if err := WriteStream(t.Context(), &packed, bytes.NewReader(state)); err != nil {
		t.Fatal(err)
	}
	b := &Blobs{State: s.put(StateType, packed.Bytes()), Pages: map[string]Pages{}}
	b.Pages[s.config.Parts[0].Key()] = s.pages(t, sparse(t, 16*FrameBytes, map[int64][]byte{0: page(7), 9 * FrameBytes: page(8)}), 16*FrameBytes)
	b.Pages[s.config.Parts[1].Key()] = s.pages(t, sparse(t, 3*PageSize, map[int64][]byte{PageSize: page(9)}), 3*PageSize)
	b.Pages[s.config.Image.Key()] = s.pages(t, sparse(t, 8*PageSize, map[int64][]byte{0: page(5)}), 8*PageSize)
	text, err := s.config.Encode()
	if err != nil {
		t.Fatal(err)
	}
	s.manifest = NewManifest(s.config, Descriptor{MediaType: ConfigType, Digest: Digest(text), Size: int64(len(text))}, b)
	return s
}

// archive returns the sample as a tar.
func (s *sample) archive(t testing.TB) []byte {
	t.Helper()
	config, err := s.config.Encode()
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := s.manifest.Encode()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	w, err := NewArchiveWriter(&out, manifest, config, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range s.order {
		if err := w.Add(d, bytes.NewReader(s.blobs[d.Digest])); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func read(ctx context.Context, b []byte) (*Archive, error) {
	return ReadArchive(ctx, bytes.NewReader(b), ReadOptions{Spool: &buffer{}, Judge: func(*Head) (map[string]bool, error) { return nil, nil }})
}

// TestGolden compares the format with a file that is kept: a change of it is a new version.
// The frames of a later compressor may differ, so only the documents are compared, and the
// kept file must be readable.
func TestGolden(t *testing.T) {
	path := filepath.Join("testdata", "v1.tar")
	s := newSample(t)
	if os.Getenv("RAMET_WRITE_GOLDEN") != "" {
		if err := os.WriteFile(path, s.archive(t), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	a, err := read(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	want, err := s.config.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(a.Head.ConfigBytes, want) {
		t.Errorf("the configuration is\n%s\nand was\n%s", want, a.Head.ConfigBytes)
	}
	for _, p := range a.Head.Config.Parts {
		pages := a.Head.Blobs.Pages[p.Key()]
		index, err := a.Open(t.Context(), pages.Index)
		if err != nil {
			t.Fatal(err)
		}
		x, err := ReadIndex(index, p.Size, pages.Frames.Size)
		if err != nil {
			t.Fatal(err)
		}
		frames, err := a.Open(t.Context(), pages.Frames)
		if err != nil {
			t.Fatal(err)
		}
		if err := ReadPages(t.Context(), frames, x, func(int64, []byte) error { return nil }); err != nil {
			t.Error(err)
		}
	}
	state, err := a.Open(t.Context(), a.Head.Blobs.State)
	if err != nil {
		t.Fatal(err)
	}
	if err := ReadStream(t.Context(), io.Discard, state, a.Head.Config.State); err != nil {
		t.Error(err)
	}
}

func TestArchiveInAnyOrder(t *testing.T) {
	b := newSample(t).archive(t)
	want, err := read(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	for seed := range uint64(20) {
		files := filesOf(t, b)
		rand.New(rand.NewPCG(seed, 1)).Shuffle(len(files), func(i, j int) { files[i], files[j] = files[j], files[i] })
		got, err := read(t.Context(), tarOf(t, files))
		if err != nil || got.Head.Digest != want.Head.Digest {
			t.Fatalf("order %d: %v", seed, err)
		}
	}
}

// TestJudgeComesFirst refuses a snapshot before its blobs are read.
func TestJudgeComesFirst(t *testing.T) {
	b := newSample(t).archive(t)
	no := api.Errorf(api.CodeUnsupported, "no")
	spool := &buffer{}
	r := bytes.NewReader(b)
	_, err := ReadArchive(t.Context(), r, ReadOptions{Spool: spool, Judge: func(*Head) (map[string]bool, error) { return nil, no }})
	if !errors.Is(err, no) {
		t.Fatal(err)
	}
	if spool.Len() > 8<<10 {
		t.Errorf("%d bytes were kept before it was refused", spool.Len())
	}
}

type file struct {
	name string
	text []byte
}

func filesOf(t testing.TB, b []byte) (list []file) {
	t.Helper()
	in := tar.NewReader(bytes.NewReader(b))
	for {
		h, err := in.Next()
		if err == io.EOF {
			return list
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, file{h.Name, text})
	}
}

func tarOf(t testing.TB, files []file) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, f := range files {
		if err := errors.Join(w.WriteHeader(&tar.Header{Name: f.name, Size: int64(len(f.text)), Mode: 0o644, Typeflag: tar.TypeReg})); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(f.text); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestFits(t *testing.T) {
	p := newSample(t).config.Processor
	if err := p.Fits("amd64", PageSize, []string{"avx", "sse42", "more"}); err != nil {
		t.Error(err)
	}
	for _, err := range []error{p.Fits("arm64", PageSize, nil), p.Fits("amd64", 1<<16, nil), p.Fits("amd64", PageSize, []string{"avx"})} {
		wantCode(t, err, api.CodeUnsupported)
		if n := len(strings.Fields(err.Error())); n > 20 {
			t.Errorf("%d words: %v", n, err)
		}
	}
}
