package compare

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"path"

	"ramet.dev/ramet/internal/storage/cowfs"
	"ramet.dev/ramet/internal/storage/merge"
	"ramet.dev/ramet/internal/storage/pages"
	"ramet.dev/ramet/internal/storage/treediff"
)

// mergeTree is the files of a view as package merge reads them.
type mergeTree struct {
	files *cowfs.Files
	left  *mergeBudget
	// What was found, by path and number: files do not change. Of files, those
	// that cost something of the budget's kept.
	dirs  map[string]cowfs.Ino
	names map[uint64][]string
	costs map[cowfs.Ino]*merge.File
}

// mergeBudget is what all trees of a merge may still cost. No tree is believed.
type mergeBudget struct {
	texts int64 // bytes to read for merging line by line
	names int   // to list
	kept  int   // bytes of paths, targets of links and extended attributes
}

func newMergeBudget() *mergeBudget {
	return &mergeBudget{texts: maxMergeTexts, names: maxMergeNames, kept: maxMergeKept}
}

// keep takes n bytes for what stays in memory until the merge ends.
func (b *mergeBudget) keep(n int) error {
	if b.kept -= n; b.kept < 0 {
		return fmt.Errorf("%w: paths and extended attributes of more than %d bytes", cowfs.ErrLimit, maxMergeKept)
	}
	return nil
}

func newMergeTree(files *cowfs.Files, left *mergeBudget) *mergeTree {
	return &mergeTree{files: files, left: left, dirs: map[string]cowfs.Ino{"/": files.Root()}, names: map[uint64][]string{}, costs: map[cowfs.Ino]*merge.File{}}
}

// find returns what is at path. ok is false if there is nothing.
func (t *mergeTree) find(at string) (n cowfs.Node, ok bool, err error) {
	ino, known := t.dirs[at]
	if !known {
		dir, ok := t.dirs[path.Dir(at)]
		if !ok {
			above, ok, err := t.find(path.Dir(at))
			if !ok || err != nil || !above.Attr.IsDir() {
				return n, false, err
			}
			dir = above.Ino
		}
		if ino, ok, err = t.files.Lookup(dir, path.Base(at)); !ok || err != nil {
			return n, false, err
		}
	}
	if n, err = t.files.Node(ino); err != nil {
		return n, false, err
	}
	if n.Attr.IsDir() {
		t.dirs[at] = ino
	}
	return n, true, nil
}

const (
	// maxMergeTexts bounds the texts that one merge looks at, in bytes: what comes
	// of them is kept in memory. A line costs lineCost besides what is in it, for a
	// conflict may be made of few.
	maxMergeTexts = 256 << 20
	lineCost      = 16
	// maxMergeNames bounds the names in directories that are looked at as a whole,
	// and maxMergePath their paths, in bytes: directories could contain each other.
	maxMergeNames = 4 << 20
	maxMergePath  = 32 << 10
	// maxMergeKept bounds the paths of those, and what files have besides contents,
	// in bytes: all of it is in memory at once.
	maxMergeKept = 256 << 20
	// maxMergeLinks bounds the names of one file that changes.
	maxMergeLinks = 1024
)

// Lookup implements merge.Tree.
func (t *mergeTree) Lookup(_ context.Context, at string) (*merge.File, error) {
	n, ok, err := t.find(at)
	if !ok || err != nil {
		return nil, err
	}
	if f := t.costs[n.Ino]; f != nil {
		return f, nil
	}
	a := &n.Attr
	f := &merge.File{Mode: a.Mode, UID: a.UID, GID: a.GID, Major: a.Major, Minor: a.Minor, Size: sizeOf(a), Inode: uint64(n.Ino), Links: a.Nlink}
	switch a.Mode & cowfs.TypeMask {
	case cowfs.TypeLink:
		if f.Target, err = t.files.Target(n.Ino); err != nil {
			return nil, err
		}
	case cowfs.TypeReg:
		f.Content = &mergeContent{tree: t, node: n}
	}
	cost := len(f.Target)
	names, err := t.files.Xattrs(n.Ino)
	if err != nil {
		return nil, err
	}
	if len(names) > 0 {
		f.Xattrs = map[string]string{}
	}
	for _, name := range names {
		v, err := t.files.Xattr(n.Ino, name)
		if err != nil {
			return nil, err
		}
		f.Xattrs[name] = string(v)
		cost += len(name) + len(v)
	}
	if cost > 0 {
		t.costs[n.Ino] = f
	}
	return f, t.left.keep(cost)
}

// List implements merge.Tree.
func (t *mergeTree) List(_ context.Context, dir string) ([]string, error) {
	n, ok, err := t.find(dir)
	if !ok || err != nil || !n.Attr.IsDir() {
		return nil, err
	}
	if len(dir) > maxMergePath {
		return nil, fmt.Errorf("%w: a path is longer than %d bytes", cowfs.ErrLimit, maxMergePath)
	}
	var names []string
	err = t.files.Entries(n.Ino, func(name string, _ cowfs.Ino) error {
		if t.left.names--; t.left.names < 0 {
			return fmt.Errorf("%w: of more than %d files", cowfs.ErrLimit, maxMergeNames)
		}
		names = append(names, name)
		return t.left.keep(len(dir) + 1 + len(name))
	})
	return names, err
}

// Names implements merge.Tree.
func (t *mergeTree) Names(_ context.Context, f *merge.File) ([]string, error) {
	if names, ok := t.names[f.Inode]; ok {
		return names, nil
	}
	if f.Links > maxMergeLinks {
		return nil, fmt.Errorf("%w: a file has %d names, and one that changes may have %d", cowfs.ErrLimit, f.Links, maxMergeLinks)
	}
	names, err := t.files.Paths(cowfs.Ino(f.Inode))
	if err != nil {
		return nil, err
	}
	t.names[f.Inode] = names
	for _, name := range names {
		if err := t.left.keep(len(name)); err != nil {
			return nil, err
		}
	}
	return names, nil
}

// mergeContent is a regular file of a mergeTree.
type mergeContent struct {
	tree *mergeTree
	node cowfs.Node
}

// Same implements merge.Content.
func (c *mergeContent) Same(ctx context.Context, other merge.Content) (bool, error) {
	o, ok := other.(*mergeContent)
	if !ok {
		return other.Same(ctx, c)
	}
	return treediff.SameData(ctx, c.tree.files, &c.node, o.tree.files, &o.node)
}

// Bytes implements merge.Content.
func (c *mergeContent) Bytes(ctx context.Context) ([]byte, error) {
	size := int64(c.node.Attr.Size)
	if size > maxHunkFile || size > c.tree.left.texts {
		return nil, merge.ErrTooLarge
	}
	c.tree.left.texts -= size
	b, err := c.tree.files.ReadFile(ctx, &c.node, maxHunkFile)
	if err != nil {
		return nil, err
	}
	lines := int64(bytes.Count(b, []byte{'\n'})) * lineCost
	if lines > c.tree.left.texts {
		return nil, merge.ErrTooLarge
	}
	c.tree.left.texts -= lines
	return b, nil
}

// readPiece is how much of a file is read at once, in bytes.
const readPiece = 1 << 20

// each calls fn for what is in the file besides holes, in pieces.
func (c *mergeContent) each(ctx context.Context, fn func(off int64, data []byte) error) error {
	buf := make([]byte, min(readPiece, c.node.Attr.Size))
	blocks := (c.node.Attr.Size + pages.PageSize - 1) / pages.PageSize
	for block := uint64(0); block < blocks; {
		r, err := c.tree.files.Map(&c.node, block, min(blocks-block, readPiece/pages.PageSize))
		if err != nil {
			return err
		}
		off := block * pages.PageSize
		block += r.N
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if r.Zero() {
			continue
		}
		part := buf[:min(r.N*pages.PageSize, c.node.Attr.Size-off)]
		if err := c.tree.files.ReadAt(ctx, &c.node, off, part); err != nil {
			return err
		}
		if err := fn(int64(off), part); err != nil {
			return err
		}
	}
	return nil
}

// digest returns the sha256 of a file of at most limit bytes, "" of a larger one.
func (c *mergeContent) digest(ctx context.Context, limit int64) (string, error) {
	size := int64(c.node.Attr.Size)
	if size > limit {
		return "", nil
	}
	h, at := sha256.New(), int64(0)
	err := c.each(ctx, func(off int64, data []byte) error {
		zeros(h, off-at)
		h.Write(data)
		at = off + int64(len(data))
		return nil
	})
	zeros(h, size-at)
	return hex.EncodeToString(h.Sum(nil)), err
}

func zeros(h hash.Hash, n int64) {
	var zero [4096]byte
	for ; n > 0; n -= int64(len(zero)) {
		h.Write(zero[:min(n, int64(len(zero)))])
	}
}

func digestOf(r io.Reader) (string, error) {
	h := sha256.New()
	_, err := io.Copy(h, r)
	return hex.EncodeToString(h.Sum(nil)), err
}
