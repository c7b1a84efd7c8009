package image

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"ramet.dev/ramet/api"
)

// testLayers is an image that uses what layers can do: whiteouts, opaque
// directories, links to lower layers, replaced files, late parents.
func testLayers(t *testing.T) [][]byte {
	t.Helper()
	return [][]byte{
		compress(t, "gzip", makeTar(t,
			dirEntry("etc/"), entry{name: "etc/conf", content: "lower"}, entry{name: "etc/gone", content: "secret"},
			entry{name: "opq/a", content: "lower"}, entry{name: "opq/sub/b", content: "lower"},
			entry{name: "tree/x/y", content: "lower"}, entry{name: "file-to-dir", content: "lower"},
			linkEntry(tar.TypeSymlink, "lib", "usr/lib"), entry{name: "usr/lib/so", content: "lower"},
			linkEntry(tar.TypeLink, "usr/lib/so.1", "usr/lib/so"),
		)),
		compress(t, "zstd", makeTar(t,
			entry{name: "etc/.wh.gone"}, entry{name: "opq/new", content: "upper"}, entry{name: "opq/.wh..wh..opq"},
			entry{name: ".wh.tree"}, entry{name: "etc/conf", content: "upper", Header: tar.Header{Mode: 0o600}},
			linkEntry(tar.TypeLink, "link", "usr/lib/so"), entry{name: "lib/extra", content: "upper"},
			entry{name: ".wh.file-to-dir"}, entry{name: "file-to-dir/f", content: "upper"},
			entry{name: ".wh..wh.aufs", content: "junk"}, entry{name: ".wh.never-was"},
		)),
		makeTar(t, entry{name: "tree/new", content: "top"}, linkEntry(tar.TypeLink, "before", "tree/late"), entry{name: "tree/late", content: "late"}),
	}
}

func testLayerFiles() map[string]string {
	return map[string]string{
		"etc/conf": "upper", "opq/new": "upper", "lib": "usr/lib", "usr/lib/so": "lower", "usr/lib/so.1": "lower", "link": "lower",
		"usr/lib/extra": "upper", "file-to-dir/f": "upper", "tree/new": "top", "tree/late": "late", "before": "late",
	}
}

func testImage(t *testing.T, layers ...[]byte) v1.Image {
	t.Helper()
	img, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{OS: "linux", Architecture: runtime.GOARCH, Config: v1.Config{
		Env: []string{"A=b"}, Cmd: []string{"run"}, Entrypoint: []string{"init"}, WorkingDir: "/w", User: "me",
	}})
	check(t, err)
	for _, data := range layers {
		layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil })
		check(t, err)
		img, err = mutate.AppendLayers(img, layer)
		check(t, err)
	}
	return img
}

// wantTestImage checks files and configuration of an imported testLayers.
func wantTestImage(t *testing.T, s *Store, img api.Image) {
	t.Helper()
	got := readStored(t, s, img.ID)
	wantFiles(t, got, testLayerFiles())
	if got["link"].nid != got["usr/lib/so"].nid || got["before"].nid != got["tree/late"].nid {
		t.Error("hard links became copies")
	}
	if _, ok := got["opq/sub"]; ok {
		t.Error("an opaque directory shows what is below")
	}
	if got["w"].mode != 0o40755 {
		t.Errorf("the working directory, which no layer has, has mode %o", got["w"].mode)
	}
	if got["etc/conf"].mode != 0o100600 {
		t.Errorf("etc/conf has mode %o", got["etc/conf"].mode)
	}
	if got := fmt.Sprintf("%v %v %v %s %s", img.Env, img.Cmd, img.Entry, img.Cwd, img.User); got != "[A=b] [run] [init] /w me" {
		t.Errorf("configuration: %+v", img)
	}
	path, err := s.Path(img.ID)
	check(t, err)
	raw, err := os.ReadFile(path)
	check(t, err)
	if bytes.Contains(raw, []byte("secret")) {
		t.Error("the image holds a file that a layer removed")
	}
}

func writeLayout(t *testing.T, images ...v1.Image) string {
	t.Helper()
	dir := t.TempDir()
	p, err := layout.Write(dir, empty.Index)
	check(t, err)
	for i, img := range images {
		check(t, p.AppendImage(img, layout.WithAnnotations(map[string]string{annotationRef: fmt.Sprintf("v%d", i)})))
	}
	return dir
}

// dotted has all names of a tar begin with "./", as tar -C DIR . does it.
func dotted(t *testing.T, data []byte) []byte {
	t.Helper()
	entries := []entry{dirEntry("./")}
	in := tar.NewReader(bytes.NewReader(data))
	for {
		h, err := in.Next()
		if err == io.EOF {
			return makeTar(t, entries...)
		}
		check(t, err)
		content, err := io.ReadAll(in)
		check(t, err)
		entries = append(entries, entry{name: "./" + h.Name, content: string(content), Header: *h})
	}
}

// tarOf packs a directory.
func tarOf(t *testing.T, dir string) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	check(t, w.AddFS(os.DirFS(dir)))
	check(t, w.Close())
	return buf.Bytes()
}

func dockerSave(t *testing.T, images map[string]v1.Image) []byte {
	t.Helper()
	tags := map[name.Tag]v1.Image{}
	for ref, img := range images {
		tag, err := name.NewTag(ref)
		check(t, err)
		tags[tag] = img
	}
	var buf bytes.Buffer
	check(t, tarball.MultiWrite(tags, &buf))
	return buf.Bytes()
}

func TestImportContainerImages(t *testing.T) {
	img := testImage(t, testLayers(t)...)
	oci := writeLayout(t, img)
	save := dockerSave(t, map[string]v1.Image{"test/image:v0": img})
	inputs := map[string][]byte{
		"oci": tarOf(t, oci), "oci.gz": compress(t, "gzip", tarOf(t, oci)), "oci of .": dotted(t, tarOf(t, oci)),
		"save": save, "save.zst": compress(t, "zstd", save), "legacy": legacySave(t, testLayers(t)),
	}
	digests := map[string]bool{}
	s := openStore(t)
	add := func(t *testing.T, got api.Image, err error) {
		t.Helper()
		check(t, err)
		wantTestImage(t, s, got)
		digests[got.Digest] = true
	}
	t.Run("layout", func(t *testing.T) {
		got, err := s.ImportPath(context.Background(), oci, Options{})
		add(t, got, err)
	})
	for kind, data := range inputs {
		t.Run(kind+" file", func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "archive")
			mkfile(t, path, string(data), 0o600)
			got, err := s.ImportPath(context.Background(), path, Options{})
			add(t, got, err)
		})
		t.Run(kind+" stream", func(t *testing.T) {
			got, err := s.ImportStream(context.Background(), bytes.NewReader(data), Options{Name: "n"})
			add(t, got, err)
		})
	}
	if len(digests) != 1 {
		t.Errorf("one image in many forms gave %d", len(digests))
	}
	leftTemps(t, s)
}

func leftTemps(t *testing.T, s *Store) {
	t.Helper()
	left, err := filepath.Glob(pathIn(s, "blobs", ".tmp-"+"*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// legacySave is what docker save made before version 25, where equal layers are
// links to each other.
func legacySave(t *testing.T, layers [][]byte) []byte {
	t.Helper()
	img := testImage(t, layers...)
	config, err := img.RawConfigFile()
	check(t, err)
	hash, err := img.ConfigName()
	check(t, err)
	entries := []entry{}
	m := dockerManifest{Config: hash.Hex + ".json", RepoTags: []string{"test/image:v0"}}
	for i, data := range layers {
		dir := fmt.Sprintf("%064x", i)
		m.Layers = append(m.Layers, dir+"/layer.tar")
		entries = append(entries, dirEntry(dir+"/"), linkEntry(tar.TypeSymlink, dir+"/layer.tar", fmt.Sprintf("../%064x/layer.tar", i+100)))
		entries = append(entries, entry{name: fmt.Sprintf("%064x/layer.tar", i+100), content: string(data)})
	}
	manifest, err := json.Marshal([]dockerManifest{m})
	check(t, err)
	return makeTar(t, append(entries, entry{name: m.Config, content: string(config)}, entry{name: "manifest.json", content: string(manifest)})...)
}

func TestImportPathTellsRootsFromImages(t *testing.T) {
	s := openStore(t)
	for kind, data := range map[string][]byte{
		"plain":  smallRoot(t),
		"gzip":   compress(t, "gzip", smallRoot(t)),
		"blobs":  makeTar(t, entry{name: "blobs/x", content: "x"}), // looks like an image at first
		"blobsz": compress(t, "gzip", makeTar(t, entry{name: "blobs/x", content: "x"})),
	} {
		path := filepath.Join(t.TempDir(), kind)
		mkfile(t, path, string(data), 0o600)
		img, err := s.ImportPath(context.Background(), path, Options{})
		check(t, err)
		if img.Source == "" {
			t.Errorf("%s: no source", kind)
		}
		want := smallRootFiles()
		if strings.HasPrefix(kind, "blobs") {
			want = map[string]string{"blobs/x": "x"}
		}
		wantFiles(t, readStored(t, s, img.ID), want)
	}
	dir := t.TempDir()
	mkfile(t, dir+"/etc/f", "f", 0o644)
	img, err := s.ImportPath(context.Background(), dir, Options{})
	check(t, err)
	wantFiles(t, readStored(t, s, img.ID), map[string]string{"etc/f": "f"})
	_, err = s.ImportPath(context.Background(), dir+"/nothing", Options{})
	wantCode(t, err, api.CodeNotFound)
	_, err = s.ImportPath(context.Background(), "/dev/null", Options{})
	wantCode(t, err, api.CodeInvalid)
}

// TestSelectOfAFileSystem refuses to choose an image where there is one file system.
func TestSelectOfAFileSystem(t *testing.T) {
	s := openStore(t)
	_, err := s.ImportPath(context.Background(), t.TempDir(), Options{Select: "v1"})
	wantCode(t, err, api.CodeInvalid)
	_, err = s.ImportStream(context.Background(), bytes.NewReader(makeTar(t, entry{name: "one"})), Options{Select: "v1"})
	wantCode(t, err, api.CodeInvalid)
	wantNothingLeft(t, s)
}

func TestSelectAmongImages(t *testing.T) {
	one, two := testImage(t, makeTar(t, entry{name: "one"})), testImage(t, makeTar(t, entry{name: "two"}))
	save := dockerSave(t, map[string]v1.Image{"test/image:v0": one, "test/image:v1": two})
	for kind, data := range map[string][]byte{"oci": tarOf(t, writeLayout(t, one, two)), "save": save} {
		t.Run(kind, func(t *testing.T) {
			s := openStore(t)
			_, err := s.ImportStream(context.Background(), bytes.NewReader(data), Options{})
			wantCode(t, err, api.CodeInvalid)
			_, err = s.ImportStream(context.Background(), bytes.NewReader(data), Options{Select: "v9"})
			wantCode(t, err, api.CodeInvalid)
			wantNothingLeft(t, s)
			choice := map[string]string{"oci": "v1", "save": "image:v1"}[kind]
			img, err := s.ImportStream(context.Background(), bytes.NewReader(data), Options{Select: choice})
			check(t, err)
			wantFiles(t, readStored(t, s, img.ID), map[string]string{"two": ""})
		})
	}
}

// TestPlatformIsChosen imports an index of several machines, nested as docker
// save does it.
func TestPlatformIsChosen(t *testing.T) {
	ours := testImage(t, makeTar(t, entry{name: "ours"}))
	other, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{OS: "linux", Architecture: "riscv64"})
	check(t, err)
	index := mutate.AppendManifests(empty.Index,
		mutate.IndexAddendum{Add: other, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "riscv64"}}},
		mutate.IndexAddendum{Add: ours, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: runtime.GOARCH}}},
		mutate.IndexAddendum{Add: other, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "unknown", Architecture: "unknown"}}},
	)
	dir := t.TempDir()
	p, err := layout.Write(dir, empty.Index)
	check(t, err)
	check(t, p.AppendIndex(index))
	s := openStore(t)
	img, err := s.ImportPath(context.Background(), dir, Options{})
	check(t, err)
	wantFiles(t, readStored(t, s, img.ID), map[string]string{"ours": ""})

	_, err = s.ImportPath(context.Background(), writeLayout(t, other), Options{})
	wantCode(t, err, api.CodeUnsupported)
}

func TestDamagedContainerImagesAreRefused(t *testing.T) {
	img := testImage(t, testLayers(t)...)
	layers, err := img.Layers()
	check(t, err)
	layerDigest, err := layers[1].Digest()
	check(t, err)
	configDigest, err := img.ConfigName()
	check(t, err)
	blob := func(dir string, h v1.Hash) string { return filepath.Join(dir, "blobs", "sha256", h.Hex) }
	for what, c := range map[string]struct {
		damage func(dir string) error
		code   api.Code
	}{
		"missing layer": {func(dir string) error { return os.Remove(blob(dir, layerDigest)) }, api.CodeCorrupt},
		"other layer": {func(dir string) error {
			return os.WriteFile(blob(dir, layerDigest), makeTar(t, entry{name: "evil"}), 0o600)
		}, api.CodeCorrupt},
		"appended layer": {func(dir string) error {
			f, err := os.OpenFile(blob(dir, layerDigest), os.O_APPEND|os.O_WRONLY, 0)
			check(t, err)
			defer f.Close()
			_, err = f.Write([]byte{0x50, 0x2a, 0x4d, 0x18, 0, 0, 0, 0}) // a zstd frame to skip
			return err
		}, api.CodeCorrupt},
		"other config":  {func(dir string) error { return os.WriteFile(blob(dir, configDigest), []byte("{}"), 0o600) }, api.CodeCorrupt},
		"layer is link": {func(dir string) error { return swapForLink(t, blob(dir, layerDigest)) }, api.CodeHostile},
		"no index":      {func(dir string) error { return os.WriteFile(dir+"/index.json", []byte("{"), 0o600) }, api.CodeCorrupt},
		"empty index":   {func(dir string) error { return os.WriteFile(dir+"/index.json", []byte("{}"), 0o600) }, api.CodeCorrupt},
		"path as digest": {func(dir string) error {
			return os.WriteFile(dir+"/index.json", []byte(`{"manifests":[{"digest":"sha256:../../../etc/passwd"}]}`), 0o600)
		}, api.CodeCorrupt},
		"large index": {func(dir string) error { return os.WriteFile(dir+"/index.json", make([]byte, maxDocument+1), 0o600) }, api.CodeHostile},
	} {
		t.Run(what, func(t *testing.T) {
			dir := writeLayout(t, img)
			check(t, c.damage(dir))
			s := openStore(t)
			_, err := s.ImportPath(context.Background(), dir, Options{})
			wantCode(t, err, c.code)
			wantNothingLeft(t, s)
		})
	}
}

// swapForLink replaces a file by a link to a copy outside its directory.
func swapForLink(t *testing.T, path string) error {
	t.Helper()
	outside := t.TempDir()
	if err := os.Rename(path, outside+"/copy"); err != nil {
		return err
	}
	return os.Symlink(outside+"/copy", path)
}

// TestHostileLayersAreRefused checks that layers go through the same rules as
// other archives.
func TestHostileLayersAreRefused(t *testing.T) {
	for what, data := range map[string][]byte{
		"escape":          makeTar(t, entry{name: "../x"}),
		"whiteout escape": makeTar(t, entry{name: "../.wh.x"}),
		"whiteout of ..":  makeTar(t, entry{name: "a/.wh..."}, entry{name: "a/.wh.."}),
		"device":          makeTar(t, entry{name: "sda", Header: tar.Header{Typeflag: tar.TypeBlock}}),
		"dangling link":   makeTar(t, linkEntry(tar.TypeLink, "a", "nothing")),
	} {
		t.Run(what, func(t *testing.T) {
			s := openStore(t)
			_, err := s.ImportPath(context.Background(), writeLayout(t, testImage(t, data)), Options{})
			wantCode(t, err, api.CodeHostile)
			wantNothingLeft(t, s)
		})
	}
}
