package rootfs

import (
	"math"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/refs"
	"gvisor.dev/gvisor/pkg/sentry/kernel/auth"
	"gvisor.dev/gvisor/pkg/sentry/kernel/pipe"
	"gvisor.dev/gvisor/pkg/sentry/vfs"

	"ramet.dev/ramet/internal/storage/cowfs"
)

// maxLinks bounds a file's names.
const maxLinks = math.MaxUint32

// setgidProgram is the mode of a file that gives its group's rights to who runs it.
// Without permission to execute for the group the bit was once a mark for mandatory
// locks, and Linux leaves it alone.
const setgidProgram = linux.S_ISGID | 0o010

// newFile is what is needed to make an inode.
type newFile struct {
	mode         linux.FileMode // type and permissions
	major, minor uint32
	target       string // of a symbolic link
}

// create makes an inode below parent, and a name for it unless name is "". It
// returns a dentry with one user. fs.mu must be locked.
func (fs *filesystem) create(ctx context.Context, parent *dentry, name string, creds *auth.Credentials, f newFile) (*dentry, error) {
	dir := parent.inode.get()
	now := fs.now()
	a := cowfs.Attr{
		Mode: uint32(f.mode), UID: uint32(creds.EffectiveKUID), GID: uint32(creds.EffectiveKGID), Nlink: 1, Major: f.major, Minor: f.minor,
		Size: uint64(len(f.target)), Atime: now, Mtime: now, Ctime: now, Btime: now,
	}
	if a.IsDir() {
		a.Nlink = 2
	}
	// See inode(7), and mode_strip_sgid in Linux, which looks at the mode before the umask is
	// applied: of a program from which that takes the permission, the bit stays here.
	if dir.Mode&linux.S_ISGID != 0 {
		a.GID = dir.GID
		if a.IsDir() {
			a.Mode |= linux.S_ISGID
		} else if a.Mode&setgidProgram == setgidProgram && vfs.ShouldClearSGID(creds, linux.FileMode(a.Mode), auth.KUID(a.UID), auth.KGID(a.GID)) {
			a.Mode &^= linux.S_ISGID
		}
	}
	if err := fs.tree.Room(len(f.target)); err != nil {
		return nil, errno(err)
	}
	if name == "" {
		a.Nlink = 0
	} else if err := fs.note(parent); err != nil {
		return nil, err
	}
	ino := fs.tree.NewIno()
	err := fs.tree.SetAttr(ino, &a)
	if err == nil && f.mode.FileType() == linux.S_IFLNK {
		err = fs.tree.SetTarget(ino, f.target)
	}
	if err == nil && name != "" {
		err = fs.tree.Insert(parent.inode.ino, cowfs.Entry{Name: name, Ino: ino, Type: a.DirentType()})
	}
	if err != nil {
		_ = fs.tree.Remove(ino) // removing needs no space
		return nil, errno(err)
	}
	i := fs.addInode(ino, a)
	i.noCaps.Store(true)
	d := fs.newDentry(i)
	d.refs.Store(1)
	if name != "" {
		fs.adopt(parent, d, name)
		if a.IsDir() {
			parent.inode.set(func(p *cowfs.Attr) { p.Nlink++ })
		}
		parent.inode.touch(true)
	}
	return d, nil
}

// createAt checks whether something may be made at rp, lets make do it, and
// notifies watchers. make returns a dentry with one user, or nil.
func (fs *filesystem) createAt(ctx context.Context, rp *vfs.ResolvingPath, dir bool, make func(parent *dentry, name string) (*dentry, error)) error {
	return fs.createIfAt(ctx, rp, dir, nil, make)
}

// createIfAt calls check, which may be nil, before permissions to write are looked
// at.
func (fs *filesystem) createIfAt(ctx context.Context, rp *vfs.ResolvingPath, dir bool, check func() error, make func(parent *dentry, name string) (*dentry, error)) error {
	fs.sweepIfMany(ctx)
	made, err := fs.createLocked(ctx, rp, dir, check, make)
	if made != nil {
		made.DecRef(ctx)
	}
	return err
}

func (fs *filesystem) createLocked(ctx context.Context, rp *vfs.ResolvingPath, dir bool, check func() error, make func(parent *dentry, name string) (*dentry, error)) (*dentry, error) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	parent, err := fs.parentOf(ctx, rp, rp.Start().Impl().(*dentry))
	if err != nil {
		return nil, err
	}
	if err := parent.inode.check(rp.Credentials(), vfs.MayExec); err != nil {
		return nil, err
	}
	name := rp.Component()
	if name == "." || name == ".." {
		return nil, linuxerr.EEXIST
	}
	if child, err := fs.child(parent, name); err != nil {
		return nil, err
	} else if child != nil {
		return nil, linuxerr.EEXIST
	}
	if !dir && rp.MustBeDir() {
		return nil, linuxerr.ENOENT
	}
	if parent.vfsd.IsDead() {
		return nil, linuxerr.ENOENT
	}
	mnt := rp.Mount()
	if err := mnt.CheckBeginWrite(); err != nil {
		return nil, err
	}
	defer mnt.EndWrite()
	if check != nil {
		if err := check(); err != nil {
			return nil, err
		}
	}
	if err := parent.inode.check(rp.Credentials(), vfs.MayWrite); err != nil {
		return nil, err
	}
	made, err := make(parent, name)
	if err != nil {
		return nil, err
	}
	event := uint32(linux.IN_CREATE)
	if dir {
		event |= linux.IN_ISDIR
	}
	parent.inode.watches.Notify(ctx, name, event, 0, vfs.InodeEvent, false)
	return made, nil
}

// MkdirAt implements vfs.FilesystemImpl.MkdirAt.
func (fs *filesystem) MkdirAt(ctx context.Context, rp *vfs.ResolvingPath, opts vfs.MkdirOptions) error {
	return fs.createAt(ctx, rp, true, func(parent *dentry, name string) (*dentry, error) {
		if parent.inode.get().Nlink == maxLinks {
			return nil, linuxerr.EMLINK
		}
		return fs.create(ctx, parent, name, rp.Credentials(), newFile{mode: linux.S_IFDIR | opts.Mode})
	})
}

// SymlinkAt implements vfs.FilesystemImpl.SymlinkAt.
func (fs *filesystem) SymlinkAt(ctx context.Context, rp *vfs.ResolvingPath, target string) error {
	return fs.createAt(ctx, rp, false, func(parent *dentry, name string) (*dentry, error) {
		return fs.create(ctx, parent, name, rp.Credentials(), newFile{mode: linux.S_IFLNK | 0o777, target: target})
	})
}

// MknodAt implements vfs.FilesystemImpl.MknodAt.
func (fs *filesystem) MknodAt(ctx context.Context, rp *vfs.ResolvingPath, opts vfs.MknodOptions) error {
	return fs.createAt(ctx, rp, false, func(parent *dentry, name string) (*dentry, error) {
		f := newFile{mode: opts.Mode}
		switch opts.Mode.FileType() {
		case linux.S_IFREG, linux.S_IFIFO, linux.S_IFSOCK:
		case linux.S_IFBLK, linux.S_IFCHR:
			f.major, f.minor = opts.DevMajor, opts.DevMinor
		default:
			return nil, linuxerr.EINVAL
		}
		d, err := fs.create(ctx, parent, name, rp.Credentials(), f)
		if err == nil {
			d.inode.endpoint = opts.Endpoint
		}
		return d, err
	})
}

// fifo returns the pipe of a fifo.
func (i *inode) fifo() *pipe.VFSPipe {
	i.mapsMu.Lock()
	defer i.mapsMu.Unlock()
	if i.pipe == nil {
		i.pipe = pipe.NewVFSPipe(true, pipe.DefaultPipeSize)
	}
	return i.pipe
}

// LinkAt implements vfs.FilesystemImpl.LinkAt.
func (fs *filesystem) LinkAt(ctx context.Context, rp *vfs.ResolvingPath, vd vfs.VirtualDentry) error {
	check := func() error {
		if rp.Mount() != vd.Mount() {
			return linuxerr.EXDEV
		}
		a := vd.Dentry().Impl().(*dentry).inode.get()
		// Somebody else's programs that give a group's rights do not get more names,
		// see protected_hardlinks in proc_sys_fs(5): vfs.MayLink leaves this out.
		if a.Mode&setgidProgram == setgidProgram && !vfs.CanActAsOwner(rp.Credentials(), auth.KUID(a.UID)) {
			return linuxerr.EPERM
		}
		return vfs.MayLink(rp.Credentials(), linux.FileMode(a.Mode), nil, auth.KUID(a.UID), auth.KGID(a.GID))
	}
	return fs.createIfAt(ctx, rp, false, check, func(parent *dentry, name string) (*dentry, error) {
		old := vd.Dentry().Impl().(*dentry)
		i := old.inode
		if i.isDir() {
			return nil, linuxerr.EPERM
		}
		a := i.get()
		// A file that never had a name may get one, see O_TMPFILE in open(2).
		if a.Nlink == 0 && (old.parent.Load() != nil || i.nameless.Load()) {
			return nil, linuxerr.ENOENT
		}
		if a.Nlink == maxLinks {
			return nil, linuxerr.EMLINK
		}
		if err := fs.tree.Room(0); err != nil {
			return nil, errno(err)
		}
		if err := firstError(fs.note(old), fs.note(parent)); err != nil {
			return nil, err
		}
		if err := fs.tree.Insert(parent.inode.ino, cowfs.Entry{Name: name, Ino: i.ino, Type: a.DirentType()}); err != nil {
			return nil, errno(err)
		}
		i.set(func(a *cowfs.Attr) { a.Nlink++ })
		i.touch(false)
		parent.inode.touch(true)
		i.watches.Notify(ctx, "", linux.IN_ATTRIB, 0, vfs.InodeEvent, false)
		again, err := fs.inode(i.ino)
		if err != nil {
			return nil, errno(err)
		}
		d := fs.newDentry(again)
		d.refs.Store(1)
		fs.adopt(parent, d, name)
		return d, nil
	})
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// removal is a name to be removed, found and checked.
type removal struct {
	parent, child *dentry
	name          string
}

// toRemove resolves rp to a name that may be removed. fs.mu must be locked.
func (fs *filesystem) toRemove(ctx context.Context, rp *vfs.ResolvingPath, dot, dotdot error) (r removal, err error) {
	if r.parent, err = fs.parentOf(ctx, rp, rp.Start().Impl().(*dentry)); err != nil {
		return r, err
	}
	if err := r.parent.inode.check(rp.Credentials(), vfs.MayExec); err != nil {
		return r, err
	}
	switch r.name = rp.Component(); r.name {
	case ".":
		return r, dot
	case "..":
		return r, dotdot
	}
	if r.child, err = fs.child(r.parent, r.name); err != nil {
		return r, err
	}
	if r.child == nil {
		return r, linuxerr.ENOENT
	}
	if !r.child.inode.isDir() && rp.MustBeDir() {
		return r, linuxerr.ENOTDIR
	}
	return r, r.parent.mayDelete(rp.Credentials(), r.child)
}

// forget takes the name away, in the tree and in memory.
func (fs *filesystem) forget(r removal) error {
	if err := firstError(fs.noteRemoval(r.parent), fs.noteRemoval(r.child)); err != nil {
		return err
	}
	err := fs.tree.Delete(r.parent.inode.ino, cowfs.Entry{Name: r.name, Ino: r.child.inode.ino})
	if err != nil {
		return errno(err)
	}
	fs.orphan(r.child)
	return nil
}

// UnlinkAt implements vfs.FilesystemImpl.UnlinkAt.
func (fs *filesystem) UnlinkAt(ctx context.Context, rp *vfs.ResolvingPath) error {
	return fs.remove(ctx, rp, linuxerr.EISDIR, linuxerr.EISDIR, func(r removal) error {
		if r.child.inode.isDir() {
			return linuxerr.EISDIR
		}
		return nil
	}, func(r removal) {
		// Before the link is gone, with which watches may go.
		vfs.InotifyRemoveChild(ctx, &r.child.inode.watches, &r.parent.inode.watches, r.name)
		r.child.inode.set(func(a *cowfs.Attr) { a.Nlink-- })
		r.child.inode.touch(false)
	})
}

// RmdirAt implements vfs.FilesystemImpl.RmdirAt.
func (fs *filesystem) RmdirAt(ctx context.Context, rp *vfs.ResolvingPath) error {
	return fs.remove(ctx, rp, linuxerr.EINVAL, linuxerr.ENOTEMPTY, func(r removal) error {
		if !r.child.inode.isDir() {
			return linuxerr.ENOTDIR
		}
		empty, err := fs.tree.Empty(r.child.inode.ino)
		if err == nil && !empty {
			return linuxerr.ENOTEMPTY
		}
		return errno(err)
	}, func(r removal) {
		r.child.inode.set(func(a *cowfs.Attr) { a.Nlink = 0 })
		r.child.inode.touch(false)
		r.parent.inode.set(func(a *cowfs.Attr) { a.Nlink-- })
		r.parent.inode.watches.Notify(ctx, r.name, linux.IN_DELETE|linux.IN_ISDIR, 0, vfs.InodeEvent, true)
	})
}

func (fs *filesystem) remove(ctx context.Context, rp *vfs.ResolvingPath, dot, dotdot error, check func(removal) error, done func(removal)) error {
	fs.mu.Lock()
	var toDecRef []refs.RefCounter
	// A dead mount point may take the whole file system along, and that locks.
	defer func() {
		for _, r := range toDecRef {
			r.DecRef(ctx)
		}
	}()
	defer fs.mu.Unlock()
	r, err := fs.toRemove(ctx, rp, dot, dotdot)
	if err != nil {
		return err
	}
	if err := check(r); err != nil {
		return err
	}
	mnt := rp.Mount()
	if err := mnt.CheckBeginWrite(); err != nil {
		return err
	}
	defer mnt.EndWrite()
	vfsObj := rp.VirtualFilesystem()
	mntns := vfs.MountNamespaceFromContext(ctx)
	if mntns != nil {
		defer mntns.DecRef(ctx)
	}
	if err := vfsObj.PrepareDeleteDentry(mntns, &r.child.vfsd); err != nil {
		return err
	}
	if err := fs.forget(r); err != nil {
		vfsObj.AbortDeleteDentry(&r.child.vfsd)
		return err
	}
	done(r)
	r.child.IncRef()
	toDecRef = append(vfsObj.CommitDeleteDentry(ctx, &r.child.vfsd), r.child)
	r.parent.inode.touch(true)
	return nil
}

// BoundEndpointAt implements vfs.FilesystemImpl.BoundEndpointAt.
func (fs *filesystem) BoundEndpointAt(ctx context.Context, rp *vfs.ResolvingPath, _ vfs.BoundEndpointOptions) (ep boundEndpoint, err error) {
	err = fs.at(ctx, rp, func(d *dentry) error {
		if err := d.inode.check(rp.Credentials(), vfs.MayWrite); err != nil {
			return err
		}
		if ep = d.inode.endpoint; !d.inode.is(linux.S_IFSOCK) || ep == nil {
			return linuxerr.ECONNREFUSED
		}
		return nil
	})
	return ep, err
}
