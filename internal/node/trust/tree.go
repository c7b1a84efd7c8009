package trust

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"ramet.dev/ramet/internal/node/fsview"
	"ramet.dev/ramet/internal/storage/cowfs"
)

const (
	// maxLinks is how many symbolic links a path may lead over, as for the guest.
	maxLinks = 40
	// maxNames bounds the entries of a directory that are listed, and maxRead the bytes that are read
	// of all files of a tree. A bundle has some hundred KiB.
	maxNames = 16 << 10
	maxRead  = 64 << 20
)

// tree is the files of a guest as truststore reads them: an fs.FS that resolves symbolic links as
// the guest does, and never out of its files. It is not safe for concurrent use.
type tree struct {
	files *cowfs.Files
	ctx   context.Context // until when it is read
	left  int64           // bytes that may still be read
}

func newTree(ctx context.Context, files *cowfs.Files) *tree { return &tree{files, ctx, maxRead} }

// resolve returns the path without symbolic links that name stands for, and the file. If all but
// the last element exist, real is valid with fs.ErrNotExist, too.
func (t *tree) resolve(name string) (real string, n cowfs.Node, err error) {
	n, err = t.files.Node(t.files.Root())
	var at []string         // names above n
	above := []cowfs.Node{} // directories above n
	todo := strings.Split(name, "/")
	for links := 0; err == nil && len(todo) > 0; {
		next := todo[0]
		todo = todo[1:]
		switch {
		case !n.Attr.IsDir():
			return "", n, fs.ErrNotExist
		case next == "" || next == ".":
			continue
		case next == "..":
			if len(at) > 0 {
				n, above, at = above[len(above)-1], above[:len(above)-1], at[:len(at)-1]
			}
			continue
		}
		ino, ok, lerr := t.files.Lookup(n.Ino, next)
		if lerr != nil {
			return "", n, lerr
		}
		if !ok {
			if slices.ContainsFunc(todo, func(s string) bool { return s != "" && s != "." }) {
				return "", n, fs.ErrNotExist
			}
			return path.Join(append(slices.Clone(at), next)...), n, fs.ErrNotExist
		}
		found, nerr := t.files.Node(ino)
		if nerr != nil {
			return "", n, nerr
		}
		if found.Attr.Mode&cowfs.TypeMask == cowfs.TypeLink {
			if links++; links > maxLinks {
				return "", n, fs.ErrNotExist
			}
			target, terr := t.files.Target(ino)
			if terr != nil {
				return "", n, terr
			}
			if strings.HasPrefix(target, "/") && len(above) > 0 {
				n, above, at = above[0], above[:0], at[:0]
			}
			todo = append(strings.Split(target, "/"), todo...)
			continue
		}
		above, at, n = append(above, n), append(at, next), found
	}
	if len(at) == 0 {
		return ".", n, err
	}
	return path.Join(at...), n, err
}

// place returns where a file is to be written that truststore calls name, without symbolic links.
// Another kind of file in its place, a link that leads nowhere, and a mount of the guest are errors.
func (t *tree) place(name string) (string, error) {
	real, n, err := t.resolve(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if real == "" {
			real, err = t.below(name)
		} else {
			err = nil
		}
	case err == nil && n.Attr.Mode&cowfs.TypeMask != cowfs.TypeReg:
		err = fmt.Errorf("/%s is not a file", real)
	}
	if err != nil {
		return "", err
	}
	for _, mount := range fsview.OwnPaths() {
		if strings.HasPrefix("/"+real+"/", mount+"/") {
			return "", fmt.Errorf("/%s is in %s", name, mount)
		}
	}
	return real, nil
}

// below is place for a file whose directory does not exist.
func (t *tree) below(name string) (string, error) {
	for dir := path.Dir(name); ; dir = path.Dir(dir) {
		real, n, err := t.resolve(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue // the root directory exists
		}
		if err != nil {
			return "", err
		}
		rest := strings.TrimPrefix(name, dir+"/")
		next, _, _ := strings.Cut(rest, "/")
		_, ok, err := t.files.Lookup(n.Ino, next)
		switch {
		case err != nil:
			return "", err
		case ok || !n.Attr.IsDir():
			return "", fmt.Errorf("/%s is no directory, or a link that leads nowhere", path.Join(dir, next))
		}
		return path.Join(real, rest), nil
	}
}

// Open implements fs.FS.
func (t *tree) Open(name string) (fs.File, error) {
	n, err := t.find("open", name)
	if err != nil {
		return nil, err
	}
	return &file{t, infoOf(path.Base(name), n), n, 0}, nil
}

// Stat implements fs.StatFS.
func (t *tree) Stat(name string) (fs.FileInfo, error) {
	n, err := t.find("stat", name)
	if err != nil {
		return nil, err
	}
	return infoOf(path.Base(name), n), nil
}

// ReadDir implements fs.ReadDirFS.
func (t *tree) ReadDir(name string) ([]fs.DirEntry, error) {
	n, err := t.find("readdir", name)
	if err != nil {
		return nil, err
	}
	if !n.Attr.IsDir() {
		return nil, &fs.PathError{Op: "readdir", Path: name, Err: errors.New("not a directory")}
	}
	var entries []fs.DirEntry
	err = t.files.Entries(n.Ino, func(name string, ino cowfs.Ino) error {
		if len(entries) == maxNames {
			return fmt.Errorf("it has more than %d entries", maxNames)
		}
		e, err := t.files.Node(ino)
		entries = append(entries, fs.FileInfoToDirEntry(infoOf(name, e)))
		return err
	})
	if err != nil {
		return nil, &fs.PathError{Op: "readdir", Path: name, Err: err}
	}
	return entries, nil
}

func (t *tree) find(op, name string) (cowfs.Node, error) {
	if !fs.ValidPath(name) {
		return cowfs.Node{}, &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}
	}
	_, n, err := t.resolve(name)
	if err != nil {
		return n, &fs.PathError{Op: op, Path: name, Err: err}
	}
	return n, nil
}

// file is an open file of a tree.
type file struct {
	tree *tree
	info info
	node cowfs.Node
	pos  uint64
}

func (f *file) Stat() (fs.FileInfo, error) { return f.info, nil }
func (f *file) Close() error               { return nil }

// Read implements io.Reader.
func (f *file) Read(buf []byte) (int, error) {
	if f.node.Attr.Mode&cowfs.TypeMask != cowfs.TypeReg {
		return 0, &fs.PathError{Op: "read", Path: f.info.name, Err: errors.New("not a regular file")}
	}
	size := min(uint64(len(buf)), f.node.Attr.Size-f.pos)
	if size == 0 {
		return 0, io.EOF
	}
	if f.tree.left -= int64(size); f.tree.left < 0 {
		return 0, fmt.Errorf("the files with certificates have more than %d MiB", maxRead>>20)
	}
	err := f.tree.files.ReadAt(f.tree.ctx, &f.node, f.pos, buf[:size])
	if err != nil {
		return 0, err
	}
	f.pos += size
	return int(size), nil
}

// info describes a file of a tree.
type info struct {
	name string
	attr cowfs.Attr
}

func infoOf(name string, n cowfs.Node) info { return info{name, n.Attr} }

func (i info) Name() string       { return i.name }
func (i info) Size() int64        { return int64(i.attr.Size) }
func (i info) ModTime() time.Time { return time.Unix(0, i.attr.Mtime) }
func (i info) IsDir() bool        { return i.attr.IsDir() }
func (i info) Sys() any           { return nil }

// Mode implements fs.FileInfo.
func (i info) Mode() fs.FileMode {
	m := fs.FileMode(i.attr.Mode & 0o777)
	switch i.attr.Mode & cowfs.TypeMask {
	case cowfs.TypeReg:
		return m
	case cowfs.TypeDir:
		return m | fs.ModeDir
	case cowfs.TypeLink:
		return m | fs.ModeSymlink
	}
	return m | fs.ModeIrregular
}
