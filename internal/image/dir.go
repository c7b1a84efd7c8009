package image

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/storage/erofs"
)

// ImportDir makes an image of the directory at path. Symbolic links in it are
// stored, never followed. File systems of the kernel that are mounted in it
// (/proc, /sys) are left empty, and so is this store. A file that changes while
// it is read is stored as it was read; one that cannot be read is an error. Extended
// attributes are kept as ImportTar keeps them.
func (s *Store) ImportDir(ctx context.Context, path string, opt Options) (api.Image, error) {
	if opt.Source == "" {
		opt.Source = path
	}
	return s.build(ctx, opt, func(b *builder) error {
		st, err := os.Stat(path)
		if err != nil {
			return inputError(path, err)
		}
		if !st.IsDir() {
			return api.Invalid("path", "%q is not a directory", path)
		}
		if err := opt.unselected(); err != nil {
			return err
		}
		b.progress.begin(PhaseUnpack, 0)
		w := &dirWalk{b: b, root: path, device: statOf(st).Dev, links: map[fileID]string{}}
		if own, err := os.Stat(s.files.Dir()); err == nil {
			w.store = idOfFile(own)
		}
		if err := filepath.WalkDir(path+"/.", w.visit); err != nil { // "/.": path may be a symbolic link
			return err
		}
		b.progress.end()
		return nil
	})
}

// fileID tells files of one host apart.
type fileID struct{ dev, ino uint64 }

func statOf(st fs.FileInfo) *syscall.Stat_t { return st.Sys().(*syscall.Stat_t) }

func idOfFile(st fs.FileInfo) fileID {
	sys := statOf(st)
	return fileID{sys.Dev, sys.Ino}
}

// dirWalk turns a directory into tree entries, names in order.
type dirWalk struct {
	b      *builder
	root   string
	device uint64 // of root
	store  fileID
	links  map[fileID]string // first names of files that have several
}

func (w *dirWalk) visit(path string, _ fs.DirEntry, err error) error {
	if err != nil {
		return inputError(path, err)
	}
	if err := w.b.ctx.Err(); err != nil {
		return err
	}
	st, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // removed since it was listed
	}
	if err != nil {
		return inputError(path, err)
	}
	name, err := filepath.Rel(w.root, path)
	if err != nil {
		return fmt.Errorf("name %q: %w", path, err)
	}
	sys, id := statOf(st), idOfFile(st)
	if id == w.store {
		return fs.SkipDir
	}
	n := &erofs.Node{Mode: uint16(sys.Mode & 0o7777), UID: sys.Uid, GID: sys.Gid}
	setTime(n, st.ModTime())
	if n.Xattrs, err = hostXattrs(path); err != nil {
		return inputError(path, err)
	}
	if !st.IsDir() && sys.Nlink > 1 {
		if first, ok := w.links[id]; ok {
			return w.b.link(name, first)
		}
		w.links[id] = name
	}
	w.b.progress.detail(name)
	switch st.Mode().Type() {
	case fs.ModeDir:
		n.Kind = erofs.Directory
		if err := w.b.put(name, n); err != nil {
			return err
		}
		if sys.Dev != w.device && isKernelFS(path) {
			return fs.SkipDir
		}
		return nil
	case 0:
		return w.file(path, name, n, id)
	case fs.ModeSymlink:
		n.Kind = erofs.Symlink
		if n.Target, err = os.Readlink(path); err != nil {
			return inputError(path, err)
		}
	case fs.ModeNamedPipe:
		n.Kind = erofs.Fifo
	case fs.ModeSocket:
		n.Kind = erofs.Socket
	case fs.ModeDevice | fs.ModeCharDevice:
		n.Kind = erofs.CharDevice
	case fs.ModeDevice:
		n.Kind = erofs.BlockDevice
	default:
		return api.Errorf(api.CodeUnsupported, "%q is of an unknown type", path)
	}
	return w.b.put(name, n)
}

// file stores a regular file, if it is still the same file: the open must not follow a link
// or wait for a pipe that has replaced it.
func (w *dirWalk) file(path, name string, n *erofs.Node, id fileID) error {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return inputError(path, err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return inputError(path, err)
	}
	if !st.Mode().IsRegular() || idOfFile(st) != id {
		return api.Errorf(api.CodeConflict, "%q changed while it was read", path)
	}
	n.Kind = erofs.Regular
	return w.b.putFile(name, n, struct{ io.Reader }{w.b.input(f)}, st.Size())
}

// hostXattrs returns the extended attributes of a file of the host that a sandbox
// can have, and that may be read. An attribute that vanishes meanwhile is left out.
func hostXattrs(path string) ([]erofs.Xattr, error) {
	list := make([]byte, maxXattrList)
	n, err := unix.Llistxattr(path, list)
	if n <= 0 || err != nil {
		return nil, ignorable(err)
	}
	var all []erofs.Xattr
	value := make([]byte, erofs.MaxXattrValue+1)
	for name := range strings.SplitSeq(strings.TrimSuffix(string(list[:n]), "\x00"), "\x00") {
		if !hasXattr(name) {
			continue
		}
		n, err := unix.Lgetxattr(path, name, value)
		if err := ignorable(err); err != nil {
			return nil, err
		}
		if err == nil {
			all = append(all, erofs.Xattr{Name: name, Value: bytes.Clone(value[:n])})
		}
	}
	return all, nil
}

// maxXattrList is how long a list of names can be, from listxattr(2).
const maxXattrList = 64 << 10

// ignorable drops errors that say that there are no attributes to be had.
func ignorable(err error) error {
	for _, e := range []error{unix.ENOTSUP, unix.ENODATA, unix.ENOENT, unix.EPERM, unix.EACCES} {
		if errors.Is(err, e) {
			return nil
		}
	}
	return err
}

// kernelFilesystems hold no files of their own.
var kernelFilesystems = []int64{
	unix.PROC_SUPER_MAGIC, unix.SYSFS_MAGIC, unix.CGROUP_SUPER_MAGIC, unix.CGROUP2_SUPER_MAGIC,
	unix.DEVPTS_SUPER_MAGIC, unix.DEBUGFS_MAGIC, unix.TRACEFS_MAGIC, unix.SECURITYFS_MAGIC, unix.BPF_FS_MAGIC,
}

func isKernelFS(path string) bool {
	var st unix.Statfs_t
	return unix.Statfs(path, &st) == nil && slices.Contains(kernelFilesystems, int64(st.Type))
}

// inputError gives an error of the host about the input's path a code.
func inputError(path string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return api.NotFound("file", path)
	case errors.Is(err, fs.ErrPermission):
		return api.Invalid("path", "%q cannot be read: permission denied", path)
	}
	return fmt.Errorf("read input: %w", err)
}
