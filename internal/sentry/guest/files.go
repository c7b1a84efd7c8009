package guest

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/fspath"
	"gvisor.dev/gvisor/pkg/sentry/kernel/auth"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
	"gvisor.dev/gvisor/pkg/usermem"

	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/wire"
)

// opaqueXattr marks a directory of the writable layer that hides the image's.
const opaqueXattr = "trusted.overlay.opaque"

const statMask = linux.STATX_BASIC_STATS

// fileReader reads a guest file from its start.
type fileReader struct {
	ctx  context.Context
	file *vfs.FileDescription
}

// Read implements io.Reader.
func (r *fileReader) Read(buf []byte) (int, error) {
	n, err := r.file.Read(r.ctx, usermem.BytesIOSequence(buf), vfs.ReadOptions{})
	if n == 0 && err == nil && len(buf) > 0 {
		err = io.EOF
	}
	return int(n), err
}

// tree is one view of the file system: the writable layer alone, or all of it.
type tree struct {
	g     *Guest
	ctx   context.Context
	creds *auth.Credentials
	root  vfs.VirtualDentry
}

func (g *Guest) treeAt(root vfs.VirtualDentry) *tree {
	return &tree{g: g, ctx: g.rootContext(), creds: auth.NewRootCredentials(g.k.RootUserNamespace()), root: root}
}

func (t *tree) at(name string) *vfs.PathOperation {
	return &vfs.PathOperation{Root: t.root, Start: t.root, Path: fspath.Parse(name)}
}

// Changes returns the paths that the writable layer has: everything that was
// created, changed or deleted since the image. Deleted paths have mode 0.
func (g *Guest) Changes() ([]wire.Entry, error) {
	g.ops.RLock()
	defer g.ops.RUnlock()
	t := g.treeAt(g.sessions.upper)
	var entries []wire.Entry
	err := t.walk("/", func(e wire.Entry) error {
		if e.Mode&linux.S_IFMT == linux.S_IFCHR && e.Size == whiteoutDevice {
			e = wire.Entry{Path: e.Path}
		}
		entries = append(entries, e)
		return nil
	})
	return entries, err
}

// whiteoutDevice stands in Size for the device number of a whiteout; sizes of
// character devices are otherwise 0.
const whiteoutDevice = -1

// Describe returns the present state of each path, with all that is below it if
// recursive. Paths that do not exist have mode 0.
func (g *Guest) Describe(paths []string, digests, recursive bool) ([]wire.Entry, error) {
	g.ops.RLock()
	defer g.ops.RUnlock()
	ctx := g.rootContext()
	root, err := g.root(ctx)
	if err != nil {
		return nil, err
	}
	defer root.DecRef(ctx)
	t := g.treeAt(root)
	var entries []wire.Entry
	add := func(e wire.Entry) error {
		if digests && e.Mode&linux.S_IFMT == linux.S_IFREG {
			d, err := t.digest(e.Path)
			switch {
			case vanished(err):
				e = wire.Entry{Path: e.Path}
			case err != nil:
				return err
			}
			e.Digest = d
		}
		entries = append(entries, e)
		return nil
	}
	for _, p := range paths {
		e, err := t.stat(path.Clean("/" + p))
		if err != nil {
			return nil, err
		}
		if err := add(e); err != nil {
			return nil, err
		}
		if recursive && e.Mode&linux.S_IFMT == linux.S_IFDIR {
			if err := t.walk(e.Path, add); err != nil {
				return nil, err
			}
		}
	}
	return entries, nil
}

// ReadFile copies the regular file name to w, and fails if it has more than max
// bytes.
func (g *Guest) ReadFile(name string, limit int64, w io.Writer) (int64, error) {
	g.ops.RLock()
	defer g.ops.RUnlock()
	ctx := g.rootContext()
	root, err := g.root(ctx)
	if err != nil {
		return 0, err
	}
	defer root.DecRef(ctx)
	t := g.treeAt(root)
	e, err := t.stat(path.Clean("/" + name))
	if err != nil {
		return 0, err
	}
	switch {
	case e.Mode == 0:
		return 0, sandbox.NotFound("file", name)
	case e.Mode&linux.S_IFMT != linux.S_IFREG:
		return 0, sandbox.Invalid("path", "%q is not a regular file", name)
	case e.Size > limit:
		return 0, sandbox.Errorf(sandbox.CodeLimit, "%q has %d bytes, more than %d", name, e.Size, limit)
	}
	file, err := t.openFile(e.Path)
	if vanished(err) {
		return 0, sandbox.NotFound("file", name)
	}
	if err != nil {
		return 0, err
	}
	defer file.DecRef(t.ctx)
	return io.Copy(w, io.LimitReader(&fileReader{t.ctx, file}, limit))
}

// walk calls fn for everything below dir, parents first, and does not enter
// other mounts. fn sees opaque directories marked as such.
func (t *tree) walk(dir string, fn func(wire.Entry) error) error {
	names, err := t.list(dir)
	if vanished(err) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, name := range names {
		p := path.Join(dir, name)
		if isMount(p) {
			continue
		}
		e, err := t.stat(p)
		if err != nil {
			return err
		}
		if e.Mode == 0 {
			continue // it was there when the directory was read
		}
		if e.Mode&linux.S_IFMT == linux.S_IFDIR {
			v, err := t.g.k.VFS().GetXattrAt(t.ctx, t.creds, t.at(p), &vfs.GetXattrOptions{Name: opaqueXattr, Size: 8})
			e.Opaque = err == nil && v == "y"
		}
		if err := fn(e); err != nil {
			return err
		}
		if e.Mode&linux.S_IFMT == linux.S_IFDIR {
			if err := t.walk(p, fn); err != nil {
				return err
			}
		}
	}
	return nil
}

// isMount reports whether another file system is mounted at p.
func isMount(p string) bool { return p == "/proc" || p == "/sys" || p == "/dev" }

func (t *tree) stat(name string) (wire.Entry, error) {
	st, err := t.g.k.VFS().StatAt(t.ctx, t.creds, t.at(name), &vfs.StatOptions{Mask: statMask})
	if vanished(err) {
		return wire.Entry{Path: name}, nil
	}
	if err != nil {
		return wire.Entry{}, fmt.Errorf("stat %s: %w", name, err)
	}
	e := wire.Entry{
		Path: name, Mode: uint32(st.Mode), UID: st.UID, GID: st.GID, Size: int64(st.Size),
		Ino: st.Ino, MtimeN: st.Mtime.ToNsec(), CtimeN: st.Ctime.ToNsec(),
	}
	switch st.Mode & linux.S_IFMT {
	case linux.S_IFCHR:
		if st.RdevMajor == 0 && st.RdevMinor == 0 {
			e.Size = whiteoutDevice
		}
	case linux.S_IFLNK:
		e.Link, err = t.g.k.VFS().ReadlinkAt(t.ctx, t.creds, t.at(name))
		if vanished(err) || errors.Is(err, linuxerr.EINVAL) { // which says that it is no link
			return wire.Entry{Path: name}, nil
		}
		if err != nil {
			return wire.Entry{}, fmt.Errorf("read link %s: %w", name, err)
		}
	case linux.S_IFDIR:
		e.Size = 0 // what a directory's size means depends on the layer
	}
	return e, nil
}

// errReplaced says that something else is where a regular file was.
var errReplaced = errors.New("not a regular file any more")

// vanished reports whether err says that a path is not there, or is not what it
// was a moment ago. The guest runs while its files are looked at, so that is as
// good as if it had never been there.
func vanished(err error) bool {
	for _, e := range []error{linuxerr.ENOENT, linuxerr.ENOTDIR, linuxerr.ELOOP, errReplaced} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// openFile opens a regular file. Anything else might never come to an end.
func (t *tree) openFile(name string) (*vfs.FileDescription, error) {
	file, err := t.g.k.VFS().OpenAt(t.ctx, t.creds, t.at(name), &vfs.OpenOptions{Flags: linux.O_RDONLY | linux.O_NONBLOCK})
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", name, err)
	}
	st, err := file.Stat(t.ctx, vfs.StatOptions{Mask: linux.STATX_TYPE})
	if err == nil && st.Mode&linux.S_IFMT != linux.S_IFREG {
		err = errReplaced
	}
	if err != nil {
		file.DecRef(t.ctx)
		return nil, fmt.Errorf("open %s: %w", name, err)
	}
	return file, nil
}

func (t *tree) digest(name string) (string, error) {
	file, err := t.openFile(name)
	if err != nil {
		return "", err
	}
	defer file.DecRef(t.ctx)
	h := sha256.New()
	if _, err := io.Copy(h, &fileReader{t.ctx, file}); err != nil {
		return "", fmt.Errorf("read %s: %w", name, err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// list returns the names in a directory.
func (t *tree) list(dir string) ([]string, error) {
	file, err := t.g.k.VFS().OpenAt(t.ctx, t.creds, t.at(dir), &vfs.OpenOptions{Flags: linux.O_RDONLY | linux.O_DIRECTORY})
	if err != nil {
		return nil, fmt.Errorf("open directory %s: %w", dir, err)
	}
	defer file.DecRef(t.ctx)
	var names []string
	err = file.IterDirents(t.ctx, vfs.IterDirentsCallbackFunc(func(d vfs.Dirent) error {
		if d.Name != "." && d.Name != ".." && !strings.Contains(d.Name, "/") {
			names = append(names, d.Name)
		}
		return nil
	}))
	if err != nil {
		return nil, fmt.Errorf("read directory %s: %w", dir, err)
	}
	return names, nil
}

// listDir returns the names in a directory of the sandbox.
func (g *Guest) listDir(ctx context.Context, dir string) ([]string, error) {
	root, err := g.root(ctx)
	if err != nil {
		return nil, err
	}
	defer root.DecRef(ctx)
	return g.treeAt(root).list(dir)
}
