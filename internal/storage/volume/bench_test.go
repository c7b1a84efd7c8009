package volume

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"
)

func BenchmarkOperations(b *testing.B) {
	ctx := b.Context()
	v, err := Open(ctx, b.TempDir(), 1<<40)
	if err != nil {
		b.Fatal(err)
	}
	defer v.Close()
	d, err := v.Make(ctx, Root, []byte("d"), Node{Mode: unix.S_IFDIR | 0o755})
	if err != nil {
		b.Fatal(err)
	}
	n := 0
	b.Run("make", func(b *testing.B) {
		for b.Loop() {
			if _, err := v.Make(ctx, d.Ino, fmt.Appendf(nil, "f%d", n), Node{Mode: unix.S_IFREG | 0o644}); err != nil {
				b.Fatal(err)
			}
			n++
		}
	})
	b.Run("lookup", func(b *testing.B) {
		for b.Loop() {
			if _, err := v.Lookup(ctx, d.Ino, []byte("f0")); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("grow", func(b *testing.B) {
		end := int64(0)
		for b.Loop() {
			end++
			if err := v.Grow(ctx, d.Ino+1, end); err != nil {
				b.Fatal(err)
			}
		}
	})
}
