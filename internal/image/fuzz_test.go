package image

import (
	"archive/tar"
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"

	"ramet.dev/ramet/api"
)

var fuzzLimits = Limits{TotalBytes: 1 << 20, FileBytes: 1 << 20, Entries: 5000, Ratio: 100}

// FuzzImportTar feeds arbitrary bytes to the path that all archives take. Either
// the error is one for users, or gVisor's reader accepts the whole image.
func FuzzImportTar(f *testing.F) {
	root := smallRoot(f)
	for _, how := range []string{"plain", "gzip", "zstd", "xz"} {
		f.Add(compress(f, how, root), false)
	}
	f.Add(makeTar(f, entry{name: "a/.wh.b"}, entry{name: "a/.wh..wh..opq"}, entry{name: "a/b"}), true)
	f.Add(makeTar(f, linkEntry(tar.TypeSymlink, "a", "b"), linkEntry(tar.TypeSymlink, "b", "../a/."), entry{name: "a/c"}), true)
	f.Add(makeTar(f, linkEntry(tar.TypeLink, "a", "b"), linkEntry(tar.TypeLink, "b", "c"), linkEntry(tar.TypeLink, "c", "a")), false)
	f.Add(root[:700], false)
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, data []byte, layer bool) {
		path := filepath.Join(dir, "image")
		image, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		defer image.Close()
		b := newBuilder(context.Background(), nil, Options{Limits: fuzzLimits}, image)
		err = importError(fuzzBuild(b, data, layer))
		if err != nil {
			if api.CodeOf(err) == api.CodeInternal {
				t.Fatalf("untyped error: %v", err)
			}
			return
		}
		if files := readErofs(t, path); len(files) < 2 {
			t.Fatalf("image has only %d files", len(files))
		}
	})
}

func fuzzBuild(b *builder, data []byte, layer bool) error {
	in, err := decompress(b.input(bytes.NewReader(data)), b.limits)
	if err != nil {
		return err
	}
	defer in.close()
	if layer {
		// The same layer twice: the second hides and replaces the first.
		for range 2 {
			if _, err := b.applyTar(in, true); err != nil {
				return err
			}
			if err := b.tree.NextLayer(); err != nil {
				return err
			}
			in.Reset(bytes.NewReader(data))
		}
	} else if err := b.rootfs(in); err != nil {
		return err
	}
	_, err = b.finish()
	return importError(err)
}

// FuzzContainerArchive feeds arbitrary files to the readers of container images.
func FuzzContainerArchive(f *testing.F) {
	f.Add([]byte(`{"imageLayoutVersion":"1.0.0"}`), []byte(`{"manifests":[{"digest":"sha256:00"}]}`), []byte(nil))
	f.Add([]byte(nil), []byte(nil), []byte(`[{"Config":"c","Layers":["l"],"RepoTags":["a:b"]}]`))
	f.Add([]byte(nil), []byte(nil), []byte(`[{"Config":"manifest.json","Layers":["manifest.json"]}]`))
	f.Fuzz(func(t *testing.T, oci, index, manifest []byte) {
		var entries []entry
		for name, content := range map[string][]byte{"oci-layout": oci, "index.json": index, "manifest.json": manifest} {
			if content != nil {
				entries = append(entries, entry{name: name, content: string(content)})
			}
		}
		r := bytes.NewReader(makeTar(t, entries...))
		a, err := indexTar(r, r, fuzzLimits)
		if err != nil {
			t.Fatal(err)
		}
		if !isContainerArchive(a) {
			return
		}
		img, err := readContainerArchive(a, "")
		if err == nil && len(img.layers) != len(img.config.RootFS.DiffIDs) {
			t.Fatal("layers and configuration do not fit")
		}
		if err != nil && api.CodeOf(err) == api.CodeInternal {
			t.Fatalf("untyped error: %v", err)
		}
	})
}
