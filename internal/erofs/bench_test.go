package erofs_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"ramet.dev/ramet/internal/erofs"
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
