package pack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"ramet.dev/ramet/internal/storage/cowfs"
	"ramet.dev/ramet/internal/storage/erofs"
	"ramet.dev/ramet/internal/storage/pages"
)

// ErrUnfit is wrapped by errors about a file that cannot be written in the wanted form.
var ErrUnfit = errors.New("cannot be packed")

// ErrLimit is wrapped by errors about more files than are allowed.
var ErrLimit = errors.New("there are too many files")

// maxFiles bounds the files of a walk. Imports of images have the same bound.
const maxFiles = 4 << 20

// Source has the files to be packed: those of a sandbox at one moment. They must stay as
// they are meanwhile.
type Source struct {
	// Image are the files of the image alone, Files those of the sandbox above it.
	Image, Files *cowfs.Files
	// Keep are clean absolute paths that stay as the image has them, with all files
	// below.
	Keep []string
}

// file is a file of the tree that is packed.
type file struct {
	path string // relative to the root, which is ""
	node cowfs.Node
	from *cowfs.Files
	// changed says that the image has no such file at this path.
	changed bool
	// replaced says that the file is a directory and the image has another directory at
	// this path.
	replaced bool
}

func (f *file) kind() uint32 { return f.node.Attr.Mode & cowfs.TypeMask }

// several returns whether the file may have several names.
func (f *file) several() bool { return f.node.Attr.Nlink > 1 && !f.node.Attr.IsDir() }

// identity identifies a file that may have several names. A kept file of the image is
// another file than the sandbox's with the same number.
type identity struct {
	from *cowfs.Files
	ino  cowfs.Ino
}

func (f *file) identity() identity { return identity{f.from, f.node.Ino} }

// visitor is called for the files of a tree, a directory before its entries.
type visitor struct {
	file func(f *file) error
	// gone is called for a path that only the image has. It may be nil.
	gone func(path string) error
}

// walker is a walk under way.
type walker struct {
	ctx context.Context
	src *Source
	visitor
	files int
	// entered are the directories that the walk has entered: none is entered twice.
	entered map[identity]bool
}

// walk calls v for all files. It takes time in proportion to their number.
func (s *Source) walk(ctx context.Context, v visitor) error {
	w := &walker{ctx: ctx, src: s, visitor: v, entered: map[identity]bool{}}
	old, err := s.Image.Node(s.Image.Root())
	if err != nil {
		return err
	}
	root := file{from: s.Files}
	if root.node, err = s.Files.Node(s.Files.Root()); err != nil {
		return err
	}
	if !root.node.Attr.IsDir() || !old.Attr.IsDir() {
		return fmt.Errorf("%w: the root is not a directory", pages.ErrCorrupt)
	}
	return w.visit(&root, &old)
}

// visit walks a file and all files below it. old is the image's file at the same path, nil
// if there is none or its directory was replaced.
func (w *walker) visit(f *file, old *cowfs.Node) error {
	if w.ctx.Err() != nil {
		return context.Cause(w.ctx)
	}
	if w.files++; w.files > maxFiles {
		return fmt.Errorf("%w: more than %d", ErrLimit, maxFiles)
	}
	if len(f.path) > erofs.MaxPathLen {
		return fmt.Errorf("/%s…: %w: the path is longer than %d bytes", f.path[:64], ErrUnfit, erofs.MaxPathLen)
	}
	if !f.node.Attr.IsDir() {
		same, err := w.same(f, old)
		f.changed = !same
		switch {
		case err != nil:
			return err
		case f.kind() != typeSocket || same:
			return w.file(f)
		case old != nil:
			return w.lost(f.path)
		}
		return nil
	}
	if w.entered[f.identity()] {
		return fmt.Errorf("%w: directory %d has two names", pages.ErrCorrupt, f.node.Ino)
	}
	w.entered[f.identity()] = true
	if old != nil && (!old.Attr.IsDir() || old.Ino != f.node.Ino) {
		f.replaced = old.Attr.IsDir()
		old = nil
	}
	names, err := w.names(f, old)
	if err != nil {
		return err
	}
	if err := w.judge(f, old, names); err != nil {
		return err
	}
	if err := w.file(f); err != nil {
		return err
	}
	for _, n := range names {
		if err := w.name(f, n); err != nil {
			return err
		}
	}
	return nil
}

// name has the files of a directory, and of the same one in the image, under a name. 0 is
// no file.
type name struct {
	name     string
	old, now cowfs.Ino
	kept     bool
}

// names returns the names in a directory, in order.
func (w *walker) names(dir *file, old *cowfs.Node) ([]name, error) {
	var now, then []name
	count := func() error {
		if len(now)+len(then)+w.files > 2*maxFiles {
			return fmt.Errorf("%w: more than %d", ErrLimit, maxFiles)
		}
		return nil
	}
	err := dir.from.Entries(dir.node.Ino, func(s string, ino cowfs.Ino) error {
		now = append(now, name{name: s, now: ino})
		return count()
	})
	if err == nil && old != nil {
		err = w.src.Image.Entries(old.Ino, func(s string, ino cowfs.Ino) error {
			then = append(then, name{name: s, old: ino})
			return count()
		})
	}
	if err != nil {
		return nil, fmt.Errorf("list /%s: %w", dir.path, err)
	}
	all := merge(now, then)
	for i := range all {
		all[i].kept = dir.from == w.src.Files && slices.Contains(w.src.Keep, "/"+join(dir.path, all[i].name))
	}
	return all, nil
}

// merge joins two sorted lists.
func merge(now, then []name) []name {
	all := make([]name, 0, max(len(now), len(then)))
	for len(now) > 0 || len(then) > 0 {
		switch {
		case len(then) == 0 || len(now) > 0 && now[0].name < then[0].name:
			all, now = append(all, now[0]), now[1:]
		case len(now) == 0 || then[0].name < now[0].name:
			all, then = append(all, then[0]), then[1:]
		default:
			all = append(all, name{name: now[0].name, now: now[0].now, old: then[0].old})
			now, then = now[1:], then[1:]
		}
	}
	return all
}

// judge sets whether a directory is changed. A directory with a kept entry, of which no
// other entry changed, gets the time of the image: its own time may come from the kept
// entry.
func (w *walker) judge(dir *file, old *cowfs.Node, names []name) error {
	if old == nil {
		dir.changed = true
		return nil
	}
	kept := slices.ContainsFunc(names, func(n name) bool { return n.kept })
	moved := slices.ContainsFunc(names, func(n name) bool { return !n.kept && n.old != n.now })
	if kept && !moved {
		dir.node.Attr.Mtime = old.Attr.Mtime
	}
	same, err := w.same(dir, old)
	dir.changed = !same
	return err
}

// name walks the file with a name in a directory.
func (w *walker) name(dir *file, n name) error {
	f := file{path: join(dir.path, n.name), from: dir.from}
	ino := n.now
	if n.kept {
		f.from, ino = w.src.Image, n.old
	}
	var old *cowfs.Node
	if n.old != 0 {
		node, err := w.src.Image.Node(n.old)
		if err != nil {
			return fmt.Errorf("/%s: %w", f.path, err)
		}
		old = &node
	}
	switch {
	case ino != 0:
		var err error
		if f.node, err = f.from.Node(ino); err != nil {
			return fmt.Errorf("/%s: %w", f.path, err)
		}
		return w.visit(&f, old)
	case n.old != 0:
		return w.lost(f.path)
	}
	return nil
}

// lost reports a path that only the image has.
func (w *walker) lost(path string) error {
	if w.gone == nil {
		return nil
	}
	return w.gone(path)
}

func join(dir, name string) string {
	if dir == "" {
		return name
	}
	return dir + "/" + name
}

// same returns whether the image has the same file at this path, with the same attributes
// and contents, as far as can be told without reading them.
func (w *walker) same(f *file, old *cowfs.Node) (bool, error) {
	if old == nil || old.Ino != f.node.Ino {
		return false, nil
	}
	a, b := &old.Attr, &f.node.Attr
	if f.from == w.src.Image || *a == *b {
		return true, nil // every change of a file changes its time of change
	}
	if a.Mode != b.Mode || a.UID != b.UID || a.GID != b.GID || a.Mtime != b.Mtime || a.Major != b.Major || a.Minor != b.Minor {
		return false, nil
	}
	if f.kind() == cowfs.TypeReg {
		if same, err := w.sameData(f, old); !same || err != nil {
			return false, err
		}
	}
	return w.sameXattrs(f)
}

// sameData returns whether all contents of a file are still the image's.
func (w *walker) sameData(f *file, old *cowfs.Node) (bool, error) {
	if f.node.Attr.Size != old.Attr.Size {
		return false, nil
	}
	blocks := (f.node.Attr.Size + pages.PageSize - 1) / pages.PageSize
	for block := uint64(0); block < blocks; {
		r, err := f.from.Map(&f.node, block, blocks-block)
		if err != nil {
			return false, err
		}
		s, err := w.src.Image.Map(old, block, r.N)
		if err != nil {
			return false, err
		}
		if r.Page != 0 || r.ImageOffset != s.ImageOffset {
			return false, nil
		}
		block += s.N
	}
	return true, nil
}

func (w *walker) sameXattrs(f *file) (bool, error) {
	now, err := xattrs(f.from, f.node.Ino)
	if err != nil {
		return false, err
	}
	old, err := xattrs(w.src.Image, f.node.Ino)
	same := slices.EqualFunc(now, old, func(a, b erofs.Xattr) bool { return a.Name == b.Name && bytes.Equal(a.Value, b.Value) })
	return same, err
}

// xattrs returns the extended attributes of a file, by name.
func xattrs(from *cowfs.Files, ino cowfs.Ino) ([]erofs.Xattr, error) {
	names, err := from.Xattrs(ino)
	if err != nil {
		return nil, err
	}
	var all []erofs.Xattr
	for _, name := range names {
		value, err := from.Xattr(ino, name)
		if err != nil {
			return nil, err
		}
		all = append(all, erofs.Xattr{Name: name, Value: value})
	}
	return all, nil
}

// contents reads a regular file.
type contents struct {
	ctx context.Context
	f   *file
	off uint64
}

// pieceSize is the number of bytes of a file that are read at once.
const pieceSize = 256 << 10

// Read implements io.Reader.
func (c *contents) Read(p []byte) (int, error) {
	n := min(uint64(len(p)), pieceSize, c.f.node.Attr.Size-c.off)
	if n == 0 && len(p) > 0 {
		return 0, io.EOF
	}
	if err := c.f.from.ReadAt(c.ctx, &c.f.node, c.off, p[:n]); err != nil {
		return 0, fmt.Errorf("read /%s: %w", c.f.path, err)
	}
	c.off += n
	return int(n), nil
}
