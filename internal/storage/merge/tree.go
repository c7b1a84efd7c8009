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

// File is what a tree has at a path. Nobody changes one.
type File struct {
	Mode         uint32 // type and permissions, as stat(2) has them
	UID, GID     uint32
	Major, Minor uint32 // of a device
	Target       string // of a symbolic link
	Xattrs       map[string]string
	Size         int64
	Content      Content // of a regular file
	// Names of a tree with the same Inode are one file. It has so many Links.
	Inode uint64
	Links uint32
}

func (f *File) kind() uint32 { return f.Mode & typeMask }

// IsDir says whether there is a directory, which is not where there is nothing.
func (f *File) IsDir() bool { return f != nil && f.kind() == typeDir }

// Content is what a regular file contains.
type Content interface {
	// Same compares it with another of the same size, that is no Text.
	Same(ctx context.Context, other Content) (bool, error)
	// Bytes returns all of it, or ErrTooLarge if that is too much to compare
	// line by line.
	Bytes(ctx context.Context) ([]byte, error)
}

// ErrTooLarge says that a file is not looked at line by line.
var ErrTooLarge = errors.New("too large to be merged line by line")

// Text is a Content that a merge made.
type Text []byte

// Bytes implements Content.
func (t Text) Bytes(context.Context) ([]byte, error) { return t, nil }

// Same implements Content.
func (t Text) Same(ctx context.Context, other Content) (bool, error) {
	b, err := other.Bytes(ctx)
	if errors.Is(err, ErrTooLarge) {
		return false, nil // a merged text never is
	}
	return bytes.Equal(t, b), err
}

// Tree is a tree of files. Paths are clean and absolute, and no symbolic link is
// followed.
type Tree interface {
	// Lookup returns nil if there is nothing at path.
	Lookup(ctx context.Context, path string) (*File, error)
	// List returns the names in a directory, none if there is no directory.
	List(ctx context.Context, dir string) ([]string, error)
	// Names returns the paths of a file that is no directory.
	Names(ctx context.Context, f *File) ([]string, error)
}

// sameFile says whether what a path of two trees leads to is one file, that may have
// been changed. Files that are made later have other numbers.
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

// sameData says whether two files of one type are the same but for attributes.
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

// same says whether there is the same at a path of two trees. nil is nothing.
func same(ctx context.Context, a, b *File) (bool, error) {
	if a == nil || b == nil || a == b {
		return a == b, nil
	}
	if !sameAttrs(a, b) {
		return false, nil
	}
	return sameData(ctx, a, b)
}
