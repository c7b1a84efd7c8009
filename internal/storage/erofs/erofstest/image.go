// Package erofstest has an image for the tests of packages that read images. It must never be
// linked into the product.
package erofstest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"ramet.dev/ramet/internal/storage/erofs"
)

// Xattrs are extended attributes of files of Image.
var Xattrs = []erofs.Xattr{{Name: "user.b", Value: []byte("1")}, {Name: "user.a", Value: nil}}

// Image returns an image with some of everything.
func Image(t testing.TB) []byte {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "image"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w, tree := erofs.NewWriter(f), erofs.NewTree()
	put := func(p string, n erofs.Node) {
		if err := tree.Put(p, &n); err != nil {
			t.Fatal(err)
		}
	}
	r := rand.New(rand.NewPCG(7, 0))
	for _, d := range []string{"a", "a/b", "a/b/c", "usr", "usr/lib", "usr/bin", "empty"} {
		put(d, erofs.Node{Kind: erofs.Directory, Mode: 0o755})
		for i := range 4 {
			data := make([]byte, r.IntN(4)*r.IntN(9000))
			for i := range data {
				data[i] = byte(r.IntN(4))
			}
			x, err := w.Store(bytes.NewReader(data))
			if err != nil {
				t.Fatal(err)
			}
			if d != "empty" {
				put(fmt.Sprintf("%s/f%d", d, i), erofs.Node{Kind: erofs.Regular, Mode: 0o644, Data: x, UID: uint32(i), Xattrs: Xattrs[:i%3]})
			}
		}
	}
	put("a/b", erofs.Node{Kind: erofs.Directory, Mode: 0o755, Xattrs: Xattrs})
	put("usr/link", erofs.Node{Kind: erofs.Symlink, Mode: 0o777, Target: "lib/f1"})
	for to, from := range map[string]string{"a/b/hard": "a/f1", "usr/hard": "a/f1", "usr/lib/hard": "usr/bin/f2"} {
		if err := tree.Link(to, from); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Finish(tree, erofs.Options{}); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	return data
}
