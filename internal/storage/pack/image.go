package pack

import (
	"context"
	"errors"
	"fmt"
	"io"

	"ramet.dev/ramet/internal/storage/cowfs"
	"ramet.dev/ramet/internal/storage/erofs"
	"ramet.dev/ramet/internal/storage/pages"
)

// Image receives the files of an image. Paths are relative to the root, which is "".
type Image interface {
	// Put stores a file of any type, a regular file only if it is empty.
	Put(path string, n *erofs.Node) error
	// PutFile stores a regular file of size bytes.
	PutFile(path string, n *erofs.Node, contents io.Reader, size int64) error
	// Link makes path another name of the file at target.
	Link(path, target string) error
}

// Fill puts all files in an image.
func (s *Source) Fill(ctx context.Context, image Image) error {
	f := filler{ctx: ctx, image: image, first: map[identity]string{}}
	err := s.walk(ctx, visitor{file: f.put})
	var entry *erofs.EntryError
	if errors.As(err, &entry) {
		err = fmt.Errorf("/%s: %w: %s", entry.Path, ErrUnfit, entry.Reason)
	}
	if err != nil {
		return fmt.Errorf("pack image: %w", err)
	}
	return nil
}

// filler puts the files of a walk in an image.
type filler struct {
	ctx   context.Context
	image Image
	first map[identity]string // the first name of files that have several
}

var kinds = map[uint32]erofs.Kind{
	cowfs.TypeDir: erofs.Directory, cowfs.TypeReg: erofs.Regular, cowfs.TypeLink: erofs.Symlink,
	typeFifo: erofs.Fifo, typeChar: erofs.CharDevice, typeBlock: erofs.BlockDevice, typeSocket: erofs.Socket,
}

func (f *filler) put(file *file) error {
	a := &file.node.Attr
	if file.several() {
		if first, ok := f.first[file.identity()]; ok {
			return f.image.Link(file.path, first)
		}
		f.first[file.identity()] = file.path
	}
	n := &erofs.Node{Kind: kinds[file.kind()], Mode: uint16(a.Mode & 0o7777), UID: a.UID, GID: a.GID, Major: a.Major, Minor: a.Minor}
	if a.Mtime > 0 { // images have no times before 1970
		n.MtimeSec, n.MtimeNsec = a.Mtime/1e9, uint32(a.Mtime%1e9)
	}
	var err error
	if n.Xattrs, err = xattrs(file.from, file.node.Ino); err != nil {
		return fmt.Errorf("/%s: %w", file.path, err)
	}
	switch n.Kind {
	case 0:
		return fmt.Errorf("%w: /%s has the mode %#o", pages.ErrCorrupt, file.path, a.Mode)
	case erofs.Symlink:
		if n.Target, err = file.from.Target(file.node.Ino); err != nil {
			return fmt.Errorf("/%s: %w", file.path, err)
		}
	case erofs.Regular:
		return f.image.PutFile(file.path, n, &contents{ctx: f.ctx, f: file}, int64(a.Size))
	}
	return f.image.Put(file.path, n)
}
