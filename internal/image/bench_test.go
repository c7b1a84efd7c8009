package image

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
)

// BenchmarkImportTar imports the shape of a small distribution, 100 MiB in 2500
// files, to a synced image in the store.
func BenchmarkImportTar(b *testing.B) {
	const files, size = 2500, 40 << 10
	content := make([]byte, files+size)
	rand.NewChaCha8([32]byte{}).Read(content)
	entries := make([]entry, files)
	for i := range entries {
		entries[i] = entry{name: fmt.Sprintf("usr/lib/d%d/f%d", i%50, i), content: string(content[i : i+size])}
	}
	plain := makeTar(b, entries...)
	for _, how := range []string{"plain", "gzip", "zstd"} {
		data := compress(b, how, plain)
		b.Run(how, func(b *testing.B) {
			b.SetBytes(int64(len(plain)))
			for b.Loop() {
				s, err := Open(b.TempDir())
				if err != nil {
					b.Fatal(err)
				}
				if _, err := s.ImportTar(context.Background(), bytes.NewReader(data), Options{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
