package volumes

import (
	"sync"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/sentry/fsimpl/kernfs"
	"gvisor.dev/gvisor/pkg/sentry/kernel/auth"
	"gvisor.dev/gvisor/pkg/sentry/vfs"

	"ramet.dev/ramet/internal/engine/wire"
)

// directory has the operations on names, which a file has if it is a directory.
type directory struct {
	contents
}

// Lookup implements kernfs.Inode.Lookup.
func (i *directory) Lookup(_ context.Context, name string) (kernfs.Inode, error) {
	if len(name) > linux.NAME_MAX {
		return nil, linuxerr.ENAMETOOLONG
	}
	return result(i.fs.node(wire.VolumeCall{Op: wire.VolumeLookup, Ino: i.attr.Ino, Name: []byte(name)}))
}

// result keeps a nil inode from becoming an interface that is not nil.
func result(i *inode, err error) (kernfs.Inode, error) {
	if err != nil {
		return nil, err
	}
	return i, nil
}

// HasChildren implements kernfs.Inode.HasChildren: it is the daemon that refuses to remove a
// directory with children.
func (*directory) HasChildren() bool { return false }

// make makes a file for the caller. The kernel has applied the umask.
func (i *directory) make(ctx context.Context, name string, n wire.VolumeNode) (kernfs.Inode, error) {
	creds := auth.CredentialsFromContext(ctx)
	n.UID, n.GID = uint32(creds.EffectiveKUID), uint32(creds.EffectiveKGID)
	if dir := i.known(); dir.Mode&linux.S_ISGID != 0 {
		n.GID = dir.GID
		if n.Mode&linux.S_IFMT == linux.S_IFDIR {
			n.Mode |= linux.S_ISGID
		} else if n.Mode&0o010 != 0 && !creds.InGroup(auth.KGID(dir.GID)) && !creds.HasRootCapability(linux.CAP_FSETID) {
			n.Mode &^= linux.S_ISGID
		}
	}
	return result(i.fs.node(wire.VolumeCall{Op: wire.VolumeMake, Ino: i.attr.Ino, Name: []byte(name), Node: &n}))
}

func permissions(mode linux.FileMode) uint32 { return uint32(mode.Permissions() | mode.ExtraBits()) }

// NewFile implements kernfs.Inode.NewFile.
func (i *directory) NewFile(ctx context.Context, name string, opts vfs.OpenOptions) (kernfs.Inode, error) {
	return i.make(ctx, name, wire.VolumeNode{Mode: linux.S_IFREG | permissions(opts.Mode)})
}

// NewDir implements kernfs.Inode.NewDir.
func (i *directory) NewDir(ctx context.Context, name string, opts vfs.MkdirOptions) (kernfs.Inode, error) {
	return i.make(ctx, name, wire.VolumeNode{Mode: linux.S_IFDIR | permissions(opts.Mode)})
}

// NewSymlink implements kernfs.Inode.NewSymlink.
func (i *directory) NewSymlink(ctx context.Context, name, target string) (kernfs.Inode, error) {
	return i.make(ctx, name, wire.VolumeNode{Mode: linux.S_IFLNK | 0o777, Target: []byte(target)})
}

// NewNode implements kernfs.Inode.NewNode. Sockets are refused: a process of another sandbox
// could not connect to one.
func (i *directory) NewNode(ctx context.Context, name string, opts vfs.MknodOptions) (kernfs.Inode, error) {
	switch {
	case opts.Mode.FileType() == linux.S_IFSOCK || opts.Endpoint != nil:
		return nil, linuxerr.EOPNOTSUPP
	case opts.Mode.FileType() == linux.S_IFDIR:
		return nil, linuxerr.EPERM
	case opts.Mode.FileType() == linux.S_IFLNK:
		return nil, linuxerr.EINVAL
	}
	n := wire.VolumeNode{Mode: uint32(opts.Mode.FileType()) | permissions(opts.Mode)}
	if n.Mode&linux.S_IFMT == 0 {
		n.Mode |= linux.S_IFREG
	}
	if opts.DevMajor != 0 || opts.DevMinor != 0 {
		n.Rdev = uint64(linux.MakeDeviceID(uint16(opts.DevMajor), opts.DevMinor))
	}
	return i.make(ctx, name, n)
}

// NewLink implements kernfs.Inode.NewLink.
func (i *directory) NewLink(_ context.Context, name string, target kernfs.Inode) (kernfs.Inode, error) {
	t, ok := target.(*inode)
	if !ok || t.fs != i.fs {
		return nil, linuxerr.EXDEV
	}
	return result(i.fs.node(wire.VolumeCall{Op: wire.VolumeLink, Ino: t.attr.Ino, To: i.attr.Ino, NewName: []byte(name)}))
}

// Unlink implements kernfs.Inode.Unlink.
func (i *directory) Unlink(_ context.Context, name string, child kernfs.Inode) error {
	c, ok := child.(*inode)
	if !ok {
		return linuxerr.EXDEV
	}
	hold := c.beginRemoval()
	_, err := i.fs.call(wire.VolumeCall{Op: wire.VolumeUnlink, Ino: i.attr.Ino, Name: []byte(name), Hold: hold})
	return err
}

// RmDir implements kernfs.Inode.RmDir.
func (i *directory) RmDir(_ context.Context, name string, _ kernfs.Inode) error {
	_, err := i.fs.call(wire.VolumeCall{Op: wire.VolumeRmdir, Ino: i.attr.Ino, Name: []byte(name)})
	return err
}

// Rename implements kernfs.Inode.Rename.
func (i *directory) Rename(ctx context.Context, oldName, newName string, _, dir kernfs.Inode) error {
	to, ok := dir.(*inode)
	if !ok || to.fs != i.fs {
		return linuxerr.EXDEV
	}
	keep, _ := ctx.Value(keeping{}).(bool)
	hold, err := to.beginReplacing(ctx, newName)
	if err != nil {
		return err
	}
	_, err = i.fs.call(wire.VolumeCall{Op: wire.VolumeRename, Ino: i.attr.Ino, Name: []byte(oldName), To: to.attr.Ino, NewName: []byte(newName), Keep: keep, Hold: hold})
	return err
}

// beginReplacing checks whether the caller may replace what has a name in the directory, which
// kernfs does only for names in memory, and returns whether that is open in this sandbox.
func (i *directory) beginReplacing(ctx context.Context, name string) (hold bool, err error) {
	old, err := i.fs.node(wire.VolumeCall{Op: wire.VolumeLookup, Ino: i.attr.Ino, Name: []byte(name)})
	if linuxerr.Equals(linuxerr.ENOENT, err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer old.DecRef(ctx)
	dir, a := i.known(), old.known()
	creds := auth.CredentialsFromContext(ctx)
	if err := vfs.CheckDeleteSticky(creds, linux.FileMode(dir.Mode), auth.KUID(dir.UID), auth.KUID(a.UID), auth.KGID(a.GID)); err != nil {
		return false, err
	}
	return old.beginRemoval(), nil
}

// IterDirents implements kernfs.Inode.IterDirents. Only descriptors of kernfs's own use it.
func (*directory) IterDirents(context.Context, *vfs.Mount, vfs.IterDirentsCallback, int64, int64) (int64, error) {
	return 0, linuxerr.ENOTDIR
}

// directoryFD is an open directory.
type directoryFD struct {
	fileFD
	vfs.DirectoryFileDescriptionDefaultImpl

	mu sync.Mutex
	// off counts entries, with "." and "..". last is the name of the last entry that was
	// returned: reading goes on behind it, whatever came and went meanwhile.
	off   int64
	last  []byte
	ended bool // the end was reached: later entries are seen after a seek
}

// Release implements vfs.FileDescriptionImpl.Release.
func (*directoryFD) Release(context.Context) {}

// IterDirents implements vfs.FileDescriptionImpl.IterDirents.
func (fd *directoryFD) IterDirents(_ context.Context, cb vfs.IterDirentsCallback) error {
	i := fd.inode()
	fd.mu.Lock()
	defer fd.mu.Unlock()
	for fd.off < 2 {
		e := vfs.Dirent{Name: ".", Type: linux.DT_DIR, Ino: i.attr.Ino, NextOff: fd.off + 1}
		if fd.off == 1 {
			e.Name = ".."
			if parent := fd.dentry().Parent(); parent != nil {
				e.Ino = parent.Inode().(*inode).attr.Ino
			}
		}
		if err := cb.Handle(e); err != nil {
			return err
		}
		fd.off++
	}
	for !fd.ended {
		a, err := i.fs.call(wire.VolumeCall{Op: wire.VolumeList, Ino: i.attr.Ino, Name: fd.last})
		if linuxerr.Equals(linuxerr.ESTALE, err) { // it was removed
			a, err = &wire.VolumeAnswer{}, nil
		}
		if err != nil {
			return err
		}
		for _, e := range a.Entries {
			d := vfs.Dirent{Name: string(e.Name), Type: linux.FileMode(e.Mode).DirentType(), Ino: e.Ino, NextOff: fd.off + 1}
			if err := cb.Handle(d); err != nil {
				return err
			}
			fd.off++
			fd.last = e.Name
		}
		fd.ended = len(a.Entries) < wire.MaxVolumeEntries
	}
	return nil
}

// Sync implements vfs.FileDescriptionImpl.Sync: names are the daemon's.
func (*directoryFD) Sync(context.Context, vfs.SyncOptions) error { return nil }

// Seek implements vfs.FileDescriptionImpl.Seek: to the beginning, or to where the descriptor is.
func (fd *directoryFD) Seek(_ context.Context, offset int64, whence int32) (int64, error) {
	fd.mu.Lock()
	defer fd.mu.Unlock()
	if whence == linux.SEEK_CUR {
		offset += fd.off
	} else if whence != linux.SEEK_SET {
		return 0, linuxerr.EINVAL
	}
	switch {
	case offset < 0:
		return 0, linuxerr.EINVAL
	case offset == fd.off:
		return offset, nil
	}
	target := offset
	fd.off, fd.last, fd.ended = min(target, 2), nil, false
	// Entries are numbered by where they came, so the ones before are counted again.
	for fd.off < target {
		a, err := fd.inode().fs.call(wire.VolumeCall{Op: wire.VolumeList, Ino: fd.inode().attr.Ino, Name: fd.last})
		if err != nil {
			return 0, err
		}
		for _, e := range a.Entries {
			if fd.off == target {
				break
			}
			fd.off++
			fd.last = e.Name
		}
		if len(a.Entries) < wire.MaxVolumeEntries {
			fd.off = target
		}
	}
	return offset, nil
}
