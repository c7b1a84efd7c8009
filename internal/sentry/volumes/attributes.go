package volumes

import (
	"strings"
	"sync"
	"time"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/sentry/kernel/auth"
	"gvisor.dev/gvisor/pkg/sentry/vfs"

	"ramet.dev/ramet/internal/engine/wire"
)

// attributes are those of a file, as they were last known.
type attributes struct {
	fs *filesystem

	attrMu sync.Mutex
	attr   wire.VolumeAttr // Ino and the type in Mode never change; guarded by attrMu but for those
	noted  time.Time       // when attr was told, in the sentry's time; guarded by attrMu
}

// note takes over attributes that the daemon told.
func (i *attributes) note(a *wire.VolumeAttr) {
	i.attrMu.Lock()
	defer i.attrMu.Unlock()
	if a.Ino == i.attr.Ino && (a.Mode^i.attr.Mode)&linux.S_IFMT == 0 {
		i.attr, i.noted = *a, time.Now()
	}
}

func (i *attributes) known() wire.VolumeAttr {
	i.attrMu.Lock()
	defer i.attrMu.Unlock()
	return i.attr
}

func (i *attributes) is(kind uint32) bool { return i.attr.Mode&linux.S_IFMT == kind } // which never changes

// refresh asks for the attributes.
func (i *attributes) refresh() error {
	a, err := i.fs.call(wire.VolumeCall{Op: wire.VolumeStat, Ino: i.attr.Ino})
	if err != nil {
		return err
	}
	if a.Attr != nil {
		i.note(a.Attr)
	}
	return nil
}

// Mode implements kernfs.Inode.Mode.
func (i *attributes) Mode() linux.FileMode { return linux.FileMode(i.known().Mode) }

// UID implements kernfs.Inode.UID.
func (i *attributes) UID() auth.KUID { return auth.KUID(i.known().UID) }

// GID implements kernfs.Inode.GID.
func (i *attributes) GID() auth.KGID { return auth.KGID(i.known().GID) }

// CheckPermissions implements kernfs.Inode.CheckPermissions. What a path leads to was looked up
// just before, but for the root.
func (i *attributes) CheckPermissions(_ context.Context, creds *auth.Credentials, ats vfs.AccessTypes) error {
	if i.attr.Ino == rootIno && i.age() > rootFresh {
		if err := i.refresh(); err != nil {
			return err
		}
	}
	a := i.known()
	return vfs.GenericCheckPermissions(creds, ats, linux.FileMode(a.Mode), nil, auth.KUID(a.UID), auth.KGID(a.GID))
}

// rootFresh is for how long the permissions of the root are taken for what they were: each path
// leads over them.
const rootFresh = time.Second

// age returns how long ago the attributes were told.
func (i *attributes) age() time.Duration {
	i.attrMu.Lock()
	defer i.attrMu.Unlock()
	return time.Since(i.noted)
}

// set changes attributes.
func (i *attributes) set(set *wire.VolumeSet) error {
	a, err := i.fs.call(wire.VolumeCall{Op: wire.VolumeSetAttr, Ino: i.attr.Ino, Set: set})
	if err != nil {
		return err
	}
	if a.Attr != nil {
		i.note(a.Attr)
	}
	return nil
}

// withoutPrivs returns a mode as a write or a new owner leaves it.
func withoutPrivs(mode uint32) uint32 {
	mode &^= linux.S_ISUID
	if mode&(linux.S_ISGID|0o010) == linux.S_ISGID|0o010 {
		mode &^= linux.S_ISGID
	}
	return mode
}

// StatFS implements kernfs.Inode.StatFS.
func (i *attributes) StatFS(context.Context, *vfs.Filesystem) (linux.Statfs, error) {
	return i.fs.statFS()
}

// Readlink implements kernfs.Inode.Readlink.
func (i *attributes) Readlink(context.Context, *vfs.Mount) (string, error) {
	if !i.is(linux.S_IFLNK) {
		return "", linuxerr.EINVAL
	}
	a, err := i.fs.call(wire.VolumeCall{Op: wire.VolumeReadlink, Ino: i.attr.Ino})
	if err != nil {
		return "", err
	}
	return string(a.Value), nil
}

// Getlink implements kernfs.Inode.Getlink.
func (i *attributes) Getlink(ctx context.Context, mnt *vfs.Mount) (vfs.VirtualDentry, string, error) {
	target, err := i.Readlink(ctx, mnt)
	return vfs.VirtualDentry{}, target, err
}

// checkXattr refuses extended attributes that there are not: there are those of user.
func (i *attributes) checkXattr(name string, without error) error {
	switch {
	case name == linux.XATTR_USER_PREFIX:
		return linuxerr.EINVAL
	case !strings.HasPrefix(name, linux.XATTR_USER_PREFIX):
		return linuxerr.EOPNOTSUPP
	case !i.is(linux.S_IFREG) && !i.is(linux.S_IFDIR):
		return without
	}
	return nil
}

// GetXattr implements kernfs.InodeWithXattrs.GetXattr.
func (i *attributes) GetXattr(_ context.Context, opts vfs.GetXattrOptions) (string, error) {
	if err := i.checkXattr(opts.Name, linuxerr.ENODATA); err != nil {
		return "", err
	}
	a, err := i.fs.call(wire.VolumeCall{Op: wire.VolumeGetX, Ino: i.attr.Ino, Name: []byte(opts.Name)})
	if err != nil {
		return "", err
	}
	if opts.Size > 0 && uint64(len(a.Value)) > opts.Size {
		return "", linuxerr.ERANGE
	}
	return string(a.Value), nil
}

// SetXattr implements kernfs.InodeWithXattrs.SetXattr.
func (i *attributes) SetXattr(_ context.Context, opts vfs.SetXattrOptions) error {
	if err := i.checkXattr(opts.Name, linuxerr.EPERM); err != nil {
		return err
	}
	_, err := i.fs.call(wire.VolumeCall{Op: wire.VolumeSetX, Ino: i.attr.Ino, Name: []byte(opts.Name), Value: []byte(opts.Value), Flags: opts.Flags})
	return err
}

// ListXattr implements kernfs.InodeWithXattrs.ListXattr.
func (i *attributes) ListXattr(_ context.Context, size uint64) ([]string, error) {
	a, err := i.fs.call(wire.VolumeCall{Op: wire.VolumeListX, Ino: i.attr.Ino})
	if err != nil {
		return nil, err
	}
	var names []string
	var total uint64
	for _, n := range a.Names {
		names = append(names, string(n))
		total += uint64(len(n)) + 1
	}
	if size > 0 && total > size {
		return nil, linuxerr.ERANGE
	}
	return names, nil
}

// RemoveXattr implements kernfs.InodeWithXattrs.RemoveXattr.
func (i *attributes) RemoveXattr(_ context.Context, name string) error {
	if err := i.checkXattr(name, linuxerr.EPERM); err != nil {
		return err
	}
	_, err := i.fs.call(wire.VolumeCall{Op: wire.VolumeRemoveX, Ino: i.attr.Ino, Name: []byte(name)})
	return err
}
