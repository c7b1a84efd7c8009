package merge

import (
	"bytes"
	"context"
	"errors"
	"maps"
)

// Types of files in File.Mode, from stat(2).
const (
	typeMask = 0o170000
	typeDir  = 0o040000
	typeReg  = 0o100000
	typeLink = 0o120000
)

// File is a file of a tree. It is immutable.
type File struct {
	Mode         uint32 // type and permissions, as stat(2) has them
	UID, GID     uint32
	Major, Minor uint32 // of a device
	Target       string // of a symbolic link
	Xattrs       map[string]string
	Size         int64
	Content      Content // of a regular file
	// Inode identifies the file: names of a tree with the same Inode are one file. Links
	// is the number of its names.
	Inode uint64
	Links uint32
}

func (f *File) kind() uint32 { return f.Mode & typeMask }

// IsDir returns whether the file is a directory. A nil file is none.
func (f *File) IsDir() bool { return f != nil && f.kind() == typeDir }

// Content is the contents of a regular file.
type Content interface {
	// Same compares it with another content of the same size, which is no Text.
	Same(ctx context.Context, other Content) (bool, error)
	// Bytes returns all of it, or ErrTooLarge if it is too large to be compared line by
	// line.
	Bytes(ctx context.Context) ([]byte, error)
}

// ErrTooLarge is wrapped by errors about a file that is too large to be merged line by line.
var ErrTooLarge = errors.New("too large to be merged line by line")

// Text is a Content that was made by a merge.
type Text []byte

// Bytes implements Content.
func (t Text) Bytes(context.Context) ([]byte, error) { return t, nil }

// Same implements Content.
func (t Text) Same(ctx context.Context, other Content) (bool, error) {
	b, err := other.Bytes(ctx)
	if errors.Is(err, ErrTooLarge) {
		return false, nil // a merged text is never too large
	}
	return bytes.Equal(t, b), err
}

// Tree is a tree of files. Paths are clean and absolute, and no symbolic link is
// followed.
type Tree interface {
	// Lookup returns nil if there is no file at path.
	Lookup(ctx context.Context, path string) (*File, error)
	// List returns the names in a directory, none if there is no directory.
	List(ctx context.Context, dir string) ([]string, error)
	// Names returns the paths of a file, which is no directory.
	Names(ctx context.Context, f *File) ([]string, error)
}

// sameFile returns whether a and b of two trees are one file, which may have been changed.
// Files that are made later have other numbers.
func sameFile(a, b *File) bool {
	return a != nil && b != nil && !a.IsDir() && a.Inode == b.Inode && a.kind() == b.kind()
}

// sameContent compares two regular files.
func sameContent(ctx context.Context, a, b *File) (bool, error) {
	if a.Size != b.Size {
		return false, nil
	}
	if _, ok := b.Content.(Text); ok {
		return b.Content.Same(ctx, a.Content)
	}
	return a.Content.Same(ctx, b.Content)
}

// sameData returns whether two files of one type are the same except attributes.
func sameData(ctx context.Context, a, b *File) (bool, error) {
	switch a.kind() {
	case typeReg:
		return sameContent(ctx, a, b)
	case typeLink:
		return a.Target == b.Target, nil
	}
	return a.Major == b.Major && a.Minor == b.Minor, nil
}

func sameAttrs(a, b *File) bool {
	return a.Mode == b.Mode && a.UID == b.UID && a.GID == b.GID && maps.Equal(a.Xattrs, b.Xattrs)
}

// same returns whether two files are the same. nil is no file.
func same(ctx context.Context, a, b *File) (bool, error) {
	if a == nil || b == nil || a == b {
		return a == b, nil
	}
	if !sameAttrs(a, b) {
		return false, nil
	}
	return sameData(ctx, a, b)
}
