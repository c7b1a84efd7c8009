package compare

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/launch"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/storage/btree"
	"ramet.dev/ramet/internal/storage/cowfs"
	"ramet.dev/ramet/internal/storage/erofs"
	"ramet.dev/ramet/internal/storage/merge"
)

// TestMergeLinksAreBounded asks for the names of a file that claims to have many.
func TestMergeLinksAreBounded(t *testing.T) {
	files, err := cowfs.NewFiles(btree.OpenView(nil, 0), nil)
	if err != nil {
		t.Fatal(err)
	}
	tree := newMergeTree(files, newMergeBudget())
	if _, err := tree.Names(context.Background(), &merge.File{Inode: 7, Links: maxMergeLinks + 1}); !errors.Is(err, cowfs.ErrLimit) {
		t.Errorf("many links: %v", err)
	}
	if names, err := tree.Names(context.Background(), &merge.File{Inode: 7, Links: 2}); err != nil || len(names) > 0 {
		t.Errorf("names of nothing are %q (%v)", names, err)
	}
}

// mergeImage returns the tree of an image with a file of a text, that has attributes
// and two names, and a symbolic link.
func mergeImage(t *testing.T, text string, left *mergeBudget) *mergeTree {
	t.Helper()
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	f, err := os.Create(filepath.Join(t.TempDir(), "image"))
	ok(err)
	defer f.Close()
	w, tree := erofs.NewWriter(f), erofs.NewTree()
	data, err := w.Store(strings.NewReader(text))
	ok(err)
	ok(tree.Put("dir", &erofs.Node{Kind: erofs.Directory, Mode: 0o755}))
	ok(tree.Put("dir/file", &erofs.Node{Kind: erofs.Regular, Mode: 0o644, Data: data, Xattrs: []erofs.Xattr{{Name: "user.a", Value: []byte("value")}}}))
	ok(tree.Put("dir/sym", &erofs.Node{Kind: erofs.Symlink, Mode: 0o777, Target: "target"}))
	ok(tree.Link("dir/hard", "dir/file"))
	_, err = w.Finish(tree, erofs.Options{})
	ok(err)
	image, err := os.ReadFile(f.Name())
	ok(err)
	files, err := cowfs.NewFiles(btree.OpenView(nil, 0), image)
	ok(err)
	return newMergeTree(files, left)
}

// TestMergeMemoryIsBounded looks at files with as much left as they need, and with
// a byte less.
func TestMergeMemoryIsBounded(t *testing.T) {
	ctx := context.Background()
	lookup := func(at string) func(*mergeTree) error {
		return func(tree *mergeTree) error {
			f, err := tree.Lookup(ctx, at)
			if err == nil && f == nil {
				t.Fatalf("there is no %s", at)
			}
			return err
		}
	}
	for name, c := range map[string]struct {
		cost int
		do   func(*mergeTree) error
	}{
		"paths":      {len("/dir/file/dir/hard/dir/sym"), func(tree *mergeTree) error { _, err := tree.List(ctx, "/dir"); return err }},
		"attributes": {len("user.avalue"), lookup("/dir/file")},
		"targets":    {len("target"), lookup("/dir/sym")},
		"no more":    {0, lookup("/dir")},
		"names": {len("user.avalue/dir/file/dir/hard"), func(tree *mergeTree) error {
			f, err := tree.Lookup(ctx, "/dir/file")
			if err == nil {
				_, err = tree.Names(ctx, f)
			}
			return err
		}},
	} {
		left := newMergeBudget()
		left.kept = c.cost
		tree := mergeImage(t, "", left)
		if err := c.do(tree); err != nil || left.kept != 0 {
			t.Errorf("%s: %v, and %d bytes are left", name, err, left.kept)
		}
		left = newMergeBudget()
		left.kept = c.cost - 1
		if err := c.do(mergeImage(t, "", left)); c.cost > 0 && !errors.Is(err, cowfs.ErrLimit) {
			t.Errorf("%s with too little left: %v", name, err)
		}
	}
	// What was looked at does not cost again.
	left := newMergeBudget()
	tree := mergeImage(t, "", left)
	for range 3 {
		for _, at := range []string{"/dir/file", "/dir/hard"} {
			if f, err := tree.Lookup(ctx, at); err != nil || f.Xattrs["user.a"] != "value" {
				t.Fatalf("%+v, %v", f, err)
			}
		}
	}
	if cost := maxMergeKept - left.kept; cost != len("user.avalue") {
		t.Errorf("one file costs %d bytes", cost)
	}
}

// TestMergeTextsAreBounded reads a text with as much left as it costs, and with a byte
// less: its lines cost something as well.
func TestMergeTextsAreBounded(t *testing.T) {
	ctx, text := context.Background(), strings.Repeat("\n", 100)
	cost := int64(len(text) * (1 + lineCost))
	for left, want := range map[int64]error{cost: nil, cost - 1: merge.ErrTooLarge, 1: merge.ErrTooLarge} {
		budget := newMergeBudget()
		budget.texts = left
		f, err := mergeImage(t, text, budget).Lookup(ctx, "/dir/file")
		if err != nil {
			t.Fatal(err)
		}
		if b, err := f.Content.Bytes(ctx); !errors.Is(err, want) || want == nil && string(b) != text {
			t.Errorf("with %d bytes left: %q, %v", left, b, err)
		}
	}
}

// TestPatchIsBounded writes changes with as much room as they need, and with less.
func TestPatchIsBounded(t *testing.T) {
	ctx := context.Background()
	const text = "four"
	for name, c := range map[string]struct {
		bytes  int64
		pieces int
		ok     bool
	}{
		"enough":          {3 * int64(len(text)), 3, true},
		"a byte less":     {3*int64(len(text)) - 1, 3, false},
		"one piece fewer": {3 * int64(len(text)), 2, false},
	} {
		tree := mergeImage(t, text, newMergeBudget())
		f, err := tree.Lookup(ctx, "/dir/file")
		if err != nil {
			t.Fatal(err)
		}
		var ops []merge.Op
		for _, at := range []string{"/a", "/b", "/c"} { // all of the same pages
			ops = append(ops, merge.Op{Kind: merge.Create, Path: at, File: f})
		}
		file, err := launch.NewPageFile(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		err = (&patchFile{file: file, bytes: c.bytes, pieces: c.pieces}).write(ctx, ops)
		if c.ok && err != nil || !c.ok && api.CodeOf(err) != api.CodeLimit {
			t.Errorf("%s: %v", name, err)
		}
	}
	if smallest := len(`{"o":0,"n":1,"at":0}`); maxPatchPieces*smallest > wire.MaxPatchBytes {
		t.Error("more pieces are allowed than fit")
	}
}
