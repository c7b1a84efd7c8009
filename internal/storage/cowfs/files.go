package cowfs

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"ramet.dev/ramet/internal/storage/btree"
	"ramet.dev/ramet/internal/storage/erofs"
	"ramet.dev/ramet/internal/storage/pages"
)

// Files reads the files of a tree and of the image below it. Like the View that it reads
// through, it trusts neither: its results are right or an error that wraps ErrCorrupt. It
// does not check that directories are a tree, so a caller that walks them bounds depth and
// number. It is not safe for concurrent use.
type Files struct {
	view  *btree.View
	image *erofs.Reader // nil: none
	data  []byte        // the bytes that image reads
	links linksOfImage  // see ImageLinks
}

// NewFiles returns the files of a view above an image, which is usually mapped, and nil if
// there is none. Both stay the caller's.
func NewFiles(view *btree.View, image []byte) (*Files, error) {
	f := &Files{view: view, data: image}
	if image != nil {
		var err error
		if f.image, err = erofs.NewReader(image); err != nil {
			return nil, fmt.Errorf("open image: %w", err)
		}
	}
	return f, view.Err()
}

// Bytes returns the size of the pages and the image in bytes: no tree of a sandbox has more
// data.
func (f *Files) Bytes() int64 { return int64(f.view.Pages())*pages.PageSize + int64(len(f.data)) }

// SamePlace returns whether the pages of a run are the same on two sides.
func SamePlace(a, b *Files, r *Run) bool {
	return btree.SamePages(a.view, b.view, r.Page, pages.Page(r.N))
}

// Root returns the root directory's number.
func (f *Files) Root() Ino { return rootOf(f.image) }

func rootOf(image *erofs.Reader) Ino {
	if image == nil {
		return FirstIno
	}
	return Ino(image.Root())
}

// Node is a file of one tree.
type Node struct {
	Ino  Ino
	Attr Attr
}

// Node returns the file with a number. If there is none the error wraps
// ErrNotExist.
func (f *Files) Node(ino Ino) (Node, error) {
	n := Node{Ino: ino}
	var buf [keyRoom]byte
	val, ok, err := f.view.Get(key(&buf, ino, keyAttr))
	if err != nil {
		return n, err
	}
	if ok {
		return n, n.Attr.Decode(val)
	}
	in, err := f.imageInode(ino)
	if err != nil {
		return n, err
	}
	n.Attr = imageAttr(&in)
	return n, nil
}

func (f *Files) imageInode(ino Ino) (erofs.Inode, error) {
	if f.image == nil || !ino.OfImage() {
		return erofs.Inode{}, fmt.Errorf("inode %d: %w", ino, ErrNotExist)
	}
	return f.image.Inode(uint64(ino))
}

// Lookup finds an entry of a directory.
func (f *Files) Lookup(dir Ino, name string) (ino Ino, ok bool, err error) {
	if !validName(name) {
		return 0, false, nil
	}
	var buf [keyRoom]byte
	val, ok, err := f.view.Get(entryKey(&buf, dir, name))
	if err != nil {
		return 0, false, err
	}
	if ok {
		ino, typ, err := entryOf(val)
		return ino, err == nil && typ != whiteout, err
	}
	return f.ImageLookup(dir, name)
}

// ImageLookup is Lookup in the image alone.
func (f *Files) ImageLookup(dir Ino, name string) (Ino, bool, error) {
	if f.image == nil || !dir.OfImage() {
		return 0, false, nil
	}
	in, err := f.image.Inode(uint64(dir))
	if err != nil || in.Mode&TypeMask != TypeDir {
		return 0, false, err
	}
	nid, _, ok, err := f.image.Lookup(&in, name)
	return Ino(nid), ok, err
}

// validName returns whether a name can be part of a path.
func validName(name string) bool {
	return name != "" && name != "." && name != ".." && len(name) <= erofs.MaxNameLen && strings.IndexByte(name, '/') < 0 && strings.IndexByte(name, 0) < 0
}

// Entries calls fn for the entries of a directory in the order of their names. It ends with
// the first error of fn and returns it.
func (f *Files) Entries(dir Ino, fn func(name string, ino Ino) error) error {
	image := f.image
	if image != nil && dir.OfImage() {
		// A directory under the number of another file of the image has no entries there.
		if in, err := image.Inode(uint64(dir)); err != nil {
			return err
		} else if in.Mode&TypeMask != TypeDir {
			image = nil
		}
	}
	var bad error
	err := mergeEntries(f.view, image, dir, "", func(e Entry) bool {
		if !validName(e.Name) {
			bad = fmt.Errorf("%w: directory %d: entry %q", pages.ErrCorrupt, dir, e.Name)
		} else {
			bad = fn(e.Name, e.Ino)
		}
		return bad == nil
	})
	return firstError(bad, err)
}

// Find resolves a clean absolute path without following symbolic links. If there is no file
// the error wraps ErrNotExist.
func (f *Files) Find(path string) (Node, error) {
	n, err := f.Node(f.Root())
	for name := range strings.SplitSeq(strings.Trim(path, "/"), "/") {
		if err != nil || name == "" {
			break
		}
		if !n.Attr.IsDir() {
			return n, fmt.Errorf("%s: %w", path, ErrNotExist)
		}
		ino, ok, err := f.Lookup(n.Ino, name)
		if err != nil {
			return n, err
		}
		if !ok {
			return n, fmt.Errorf("%s: %w", path, ErrNotExist)
		}
		if n, err = f.Node(ino); err != nil {
			return n, err
		}
	}
	return n, err
}

// Target returns the target of a symbolic link.
func (f *Files) Target(ino Ino) (string, error) {
	var buf [keyRoom]byte
	b, err := getBlob(f.view, key(&buf, ino, keyTarget))
	if b != nil || err != nil {
		return string(b), err
	}
	in, err := f.imageInode(ino)
	if err != nil {
		return "", fmt.Errorf("%w: the target of link %d: %w", pages.ErrCorrupt, ino, err)
	}
	return f.image.Readlink(&in)
}

// Xattrs returns the names of a file's extended attributes, in their order.
func (f *Files) Xattrs(ino Ino) ([]string, error) {
	return xattrNames(f.view, f.image, ino)
}

// Xattr returns an extended attribute, nil if there is none.
func (f *Files) Xattr(ino Ino, name string) ([]byte, error) {
	if name == "" || len(name) > MaxXattrName {
		return nil, nil
	}
	return xattr(f.view, f.image, ino, name)
}

// ErrLimit is wrapped by errors about trees that no sandbox makes: with too many changes or
// too long a path.
var ErrLimit = errors.New("there are too many changes")

// MaxPathLen bounds paths. It is more than a system call takes: deeper directories can only
// be made by relative paths.
const MaxPathLen = 32 << 10

// IsCorrupt returns whether an error is about a corrupt tree or image.
func IsCorrupt(err error) bool {
	for _, e := range []error{pages.ErrCorrupt, ErrNotExist, erofs.ErrCorrupt, erofs.ErrUnsupported} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// ErrTooLarge is wrapped by errors about a file with more bytes than the caller allows.
var ErrTooLarge = errors.New("file is too large")

// ReadFile returns the contents of a regular file that has at most limit bytes.
func (f *Files) ReadFile(ctx context.Context, n *Node, limit int64) ([]byte, error) {
	if n.Attr.Size > uint64(limit) {
		return nil, fmt.Errorf("%w: it has %d bytes", ErrTooLarge, n.Attr.Size)
	}
	buf := make([]byte, n.Attr.Size)
	return buf, f.ReadAt(ctx, n, 0, buf)
}

// ReadAt fills buf from a regular file. The range must be within the file.
func (f *Files) ReadAt(ctx context.Context, n *Node, off uint64, buf []byte) error {
	for len(buf) > 0 {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		r, err := f.Map(n, off/pages.PageSize, BlocksIn(off+uint64(len(buf)))-off/pages.PageSize)
		if err != nil {
			return err
		}
		skip := off % pages.PageSize
		size := min(r.N*pages.PageSize-skip, uint64(len(buf)))
		if err := f.ReadRun(n, &r, skip, buf[:size]); err != nil {
			return err
		}
		off, buf = off+size, buf[size:]
	}
	return nil
}

// Map returns the longest run of a regular file that begins at block and has at
// most n blocks.
func (f *Files) Map(n *Node, block, most uint64) (Run, error) {
	r, _, err := findRun(f.view, f.image, n.Ino, &n.Attr, block, most)
	return r, err
}

// ReadRun fills buf from a run, skip bytes behind its beginning.
func (f *Files) ReadRun(n *Node, r *Run, skip uint64, buf []byte) error {
	switch {
	case r.Page != 0:
		return f.view.ReadAt(r.Page+pages.Page(skip/pages.PageSize), int(skip%pages.PageSize), buf)
	case r.Zero():
		clear(buf)
		return nil
	}
	// The image's part may be shorter than the run.
	start := r.Block*pages.PageSize + skip
	part := uint64(0)
	if start < n.Attr.ImageEnd {
		part = min(uint64(len(buf)), n.Attr.ImageEnd-start)
	}
	off := r.ImageOffset + skip
	if off > uint64(len(f.data)) || part > uint64(len(f.data))-off {
		return fmt.Errorf("%w: inode %d: the image's data at %d", pages.ErrCorrupt, n.Ino, off)
	}
	copy(buf, f.data[off:off+part])
	clear(buf[part:])
	return nil
}

// Link is the place of an entry.
type Link struct {
	Dir  Ino
	Name string
}

// Links returns the entries of a file that the tree knows: all of a file that is not the
// image's; of a file of the image those by which it was changed and those that it got.
func (f *Files) Links(ino Ino) ([]Link, error) {
	var all []Link
	var buf [keyRoom]byte
	err := f.view.Scan(key(&buf, ino, keyParent), func(k, _ []byte) bool {
		i, kind, rest := keyOf(k)
		if i != ino || kind != keyParent {
			return false
		}
		if len(rest) > 8 {
			all = append(all, Link{Ino(binary.BigEndian.Uint64(rest)), string(rest[8:])})
		}
		return true
	})
	if err != nil {
		return nil, err
	}
	return f.verify(ino, all)
}

// verify returns those entries that lead to the file.
func (f *Files) verify(ino Ino, all []Link) ([]Link, error) {
	kept := all[:0]
	for _, p := range all {
		there, ok, err := f.Lookup(p.Dir, p.Name)
		if err != nil {
			return nil, err
		}
		if ok && there == ino {
			kept = append(kept, p)
		}
	}
	return kept, nil
}

// Paths returns the paths of a file, in order. It is slow for a file of the image: see
// ImageLinks.
func (f *Files) Paths(ino Ino) ([]string, error) {
	places, err := f.allLinks(ino)
	if err != nil {
		return nil, err
	}
	var all []string
	for _, p := range places {
		dir, ok, err := f.dirPath(p.Dir)
		if err != nil {
			return nil, err
		}
		if ok {
			all = append(all, strings.TrimSuffix(dir, "/")+"/"+p.Name)
		}
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

// allLinks returns all entries of a file, in the tree and in the image.
func (f *Files) allLinks(ino Ino) ([]Link, error) {
	made, err := f.Links(ino)
	if err != nil {
		return nil, err
	}
	came, err := f.ImageLinks(ino)
	return append(made, came...), err
}

// dirPath returns the path of a directory. ok is false if it has none.
func (f *Files) dirPath(dir Ino) (at string, ok bool, err error) {
	for dir != f.Root() {
		places, err := f.allLinks(dir)
		if err != nil || len(places) == 0 {
			return "", false, err
		}
		if at = "/" + places[0].Name + at; len(at) > MaxPathLen {
			return "", false, fmt.Errorf("%w: a path is longer than %d bytes", ErrLimit, MaxPathLen)
		}
		dir = places[0].Dir
	}
	if at == "" {
		at = "/"
	}
	return at, true, nil
}
