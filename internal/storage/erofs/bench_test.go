package erofs_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"ramet.dev/ramet/internal/storage/erofs"
)

// BenchmarkWrite writes the shape of a small distribution: 100 MiB in 2500 files.
func BenchmarkWrite(b *testing.B) {
	const files, size = 2500, 40 << 10
	random := rand.NewChaCha8([32]byte{})
	content := make([]byte, files+size)
	random.Read(content)
	b.SetBytes(files * size)
	path := filepath.Join(b.TempDir(), "img")
	for b.Loop() {
		writeImage(b, path, func(w *erofs.Writer, tree *erofs.Tree) {
			for i := range files {
				data, err := w.Store(bytes.NewReader(content[i : i+size]))
				if err != nil {
					b.Fatal(err)
				}
				put(b, tree, fmt.Sprintf("usr/lib/d%d/f%d", i%50, i), erofs.Node{Kind: erofs.Regular, Mode: 0o644, Data: data})
			}
		})
	}
}

// BenchmarkLookup looks names up in a directory of 1000.
func BenchmarkLookup(b *testing.B) {
	path := filepath.Join(b.TempDir(), "img")
	var names [1000]string
	writeImage(b, path, func(_ *erofs.Writer, tree *erofs.Tree) {
		for i := range names {
			names[i] = fmt.Sprintf("libsomething-%d.so", i)
			put(b, tree, names[i], erofs.Node{Kind: erofs.Regular})
		}
	})
	data, err := os.ReadFile(path)
	if err != nil {
		b.Fatal(err)
	}
	r := openImage(b, data)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		dir, err := r.Inode(r.Root())
		if err != nil {
			b.Fatal(err)
		}
		if _, _, ok, err := r.Lookup(&dir, names[i%len(names)]); !ok || err != nil {
			b.Fatal(ok, err)
		}
	}
}
