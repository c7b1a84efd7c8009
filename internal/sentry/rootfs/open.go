package rootfs

import (
	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/sentry/kernel/auth"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
)

// OpenAt implements vfs.FilesystemImpl.OpenAt.
func (fs *filesystem) OpenAt(ctx context.Context, rp *vfs.ResolvingPath, opts vfs.OpenOptions) (*vfs.FileDescription, error) {
	fs.sweepIfMany(ctx)
	var d *dentry
	var created bool
	var err error
	switch {
	case opts.Flags&linux.O_TMPFILE == linux.O_TMPFILE:
		d, err = fs.openNameless(ctx, rp, &opts)
		created = true
	case opts.Flags&linux.O_CREAT != 0:
		d, created, err = fs.openOrCreate(ctx, rp, &opts)
	default:
		d, err = fs.openExisting(ctx, rp)
	}
	if err != nil {
		return nil, err
	}
	defer d.DecRef(ctx)
	// Without locks: opening a fifo may wait.
	fd, err := d.open(ctx, rp, &opts, created)
	if err == nil && created {
		fd.SetCreated()
	}
	return fd, err
}

func (fs *filesystem) openExisting(ctx context.Context, rp *vfs.ResolvingPath) (*dentry, error) {
	fs.mu.RLock()
	defer fs.mu.RUnlock()
	d, err := fs.resolve(ctx, rp)
	if err != nil {
		return nil, err
	}
	d.IncRef()
	return d, nil
}

// openNameless makes a file for O_TMPFILE.
func (fs *filesystem) openNameless(ctx context.Context, rp *vfs.ResolvingPath, opts *vfs.OpenOptions) (*dentry, error) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	dir, err := fs.resolve(ctx, rp)
	if err != nil {
		return nil, err
	}
	if !dir.inode.isDir() {
		return nil, linuxerr.ENOTDIR
	}
	if err := dir.inode.check(rp.Credentials(), vfs.MayWrite|vfs.MayExec); err != nil {
		return nil, err
	}
	if err := rp.Mount().CheckBeginWrite(); err != nil {
		return nil, err
	}
	defer rp.Mount().EndWrite()
	d, err := fs.create(ctx, dir, "", rp.Credentials(), newFile{mode: linux.S_IFREG | opts.Mode.Permissions() | opts.Mode.ExtraBits()})
	if err == nil {
		d.inode.nameless.Store(opts.Flags&linux.O_EXCL != 0)
	}
	return d, err
}

// openOrCreate returns what is at rp, or makes a file there.
func (fs *filesystem) openOrCreate(ctx context.Context, rp *vfs.ResolvingPath, opts *vfs.OpenOptions) (d *dentry, created bool, err error) {
	mustCreate := opts.Flags&linux.O_EXCL != 0
	fs.mu.Lock()
	defer fs.mu.Unlock()
	d = rp.Start().Impl().(*dentry)
	if rp.Done() {
		if rp.MustBeDir() {
			return nil, false, linuxerr.EISDIR
		}
		if mustCreate {
			return nil, false, linuxerr.EEXIST
		}
		d.IncRef()
		return d, false, nil
	}
	for {
		parent, err := fs.parentOf(ctx, rp, d)
		if err != nil {
			return nil, false, err
		}
		if err := parent.inode.check(rp.Credentials(), vfs.MayExec); err != nil {
			return nil, false, err
		}
		if rp.MustBeDir() {
			return nil, false, linuxerr.EISDIR
		}
		name := rp.Component()
		child, followed, err := fs.step(ctx, rp, parent)
		if followed {
			if mustCreate {
				return nil, false, linuxerr.EEXIST
			}
			if err != nil {
				return nil, false, err // the VFS goes on elsewhere
			}
			d = parent
			continue
		}
		if linuxerr.Equals(linuxerr.ENOENT, err) {
			d, err := fs.openNew(ctx, rp, parent, name, opts)
			return d, true, err
		}
		if err != nil {
			return nil, false, err
		}
		if mustCreate {
			return nil, false, linuxerr.EEXIST
		}
		if rp.MustBeDir() && !child.inode.isDir() {
			return nil, false, linuxerr.ENOTDIR
		}
		child.IncRef()
		return child, false, nil
	}
}

func (fs *filesystem) openNew(ctx context.Context, rp *vfs.ResolvingPath, parent *dentry, name string, opts *vfs.OpenOptions) (*dentry, error) {
	if err := parent.inode.check(rp.Credentials(), vfs.MayWrite); err != nil {
		return nil, err
	}
	if parent.vfsd.IsDead() {
		return nil, linuxerr.ENOENT
	}
	if err := rp.Mount().CheckBeginWrite(); err != nil {
		return nil, err
	}
	defer rp.Mount().EndWrite()
	d, err := fs.create(ctx, parent, name, rp.Credentials(), newFile{mode: linux.S_IFREG | opts.Mode.Permissions() | opts.Mode.ExtraBits()})
	if err == nil {
		parent.inode.watches.Notify(ctx, name, linux.IN_CREATE, 0, vfs.PathEvent, false)
	}
	return d, err
}

// open opens what d is.
func (d *dentry) open(ctx context.Context, rp *vfs.ResolvingPath, opts *vfs.OpenOptions, created bool) (*vfs.FileDescription, error) {
	ats := vfs.AccessTypesForOpenFlags(opts)
	i := d.inode
	switch { // before permissions, as Linux does
	case i.isLink():
		return nil, linuxerr.ELOOP // O_PATH is the VFS's
	case i.isDir() && (opts.Flags&linux.O_CREAT != 0 || ats.MayWrite()):
		return nil, linuxerr.EISDIR
	}
	if !created {
		if err := i.check(rp.Credentials(), ats); err != nil {
			return nil, err
		}
		if opts.Flags&linux.O_NOATIME != 0 && !vfs.CanActAsOwner(rp.Credentials(), auth.KUID(i.get().UID)) {
			return nil, linuxerr.EPERM
		}
	}
	mnt := rp.Mount()
	switch i.mode.Load() & linux.S_IFMT {
	case linux.S_IFREG:
		return d.openRegular(ctx, rp, opts, created)
	case linux.S_IFDIR:
		if opts.Flags&linux.O_DIRECT != 0 {
			return nil, linuxerr.EINVAL
		}
		fd := &directoryFD{}
		fd.LockFD.Init(&i.locks)
		if err := fd.vfsfd.Init(fd, opts.Flags, rp.Credentials(), mnt, &d.vfsd, &vfs.FileDescriptionOptions{AllowDirectIO: true}); err != nil {
			return nil, err
		}
		return &fd.vfsfd, nil
	case linux.S_IFIFO:
		if opts.FileExec {
			return nil, linuxerr.EACCES // opening it would wait for a writer
		}
		return i.fifo().Open(ctx, mnt, &d.vfsd, opts.Flags, &i.locks)
	case linux.S_IFCHR, linux.S_IFBLK:
		kind := vfs.CharDevice
		if i.is(linux.S_IFBLK) {
			kind = vfs.BlockDevice
		}
		a := i.get()
		return rp.VirtualFilesystem().OpenDeviceSpecialFile(ctx, mnt, &d.vfsd, kind, a.Major, a.Minor, opts)
	}
	return nil, linuxerr.ENXIO // a socket
}

func (d *dentry) openRegular(ctx context.Context, rp *vfs.ResolvingPath, opts *vfs.OpenOptions, created bool) (*vfs.FileDescription, error) {
	fd := &regularFD{}
	fd.LockFD.Init(&d.inode.locks)
	mnt := rp.Mount()
	if err := fd.vfsfd.Init(fd, opts.Flags, rp.Credentials(), mnt, &d.vfsd, &vfs.FileDescriptionOptions{AllowDirectIO: true}); err != nil {
		return nil, err
	}
	err := d.prepareOpen(mnt, fd, opts, created)
	if err != nil {
		fd.vfsfd.DecRef(ctx)
		return nil, err
	}
	return &fd.vfsfd, nil
}

// prepareOpen does what opening for writing changes.
func (d *dentry) prepareOpen(mnt *vfs.Mount, fd *regularFD, opts *vfs.OpenOptions, created bool) error {
	truncate := opts.Flags&linux.O_TRUNC != 0 && !created
	if !fd.vfsfd.IsWritable() && !truncate {
		return nil
	}
	d.fs.mu.RLock()
	err := d.fs.note(d)
	d.fs.mu.RUnlock()
	if err != nil || !truncate {
		return err
	}
	if err := mnt.CheckBeginWrite(); err != nil {
		return err
	}
	defer mnt.EndWrite()
	d.inode.mu.Lock()
	defer d.inode.mu.Unlock()
	if err := d.inode.truncate(0); err != nil {
		return err
	}
	d.inode.dropPrivs(fd.vfsfd.Credentials())
	d.inode.touch(true)
	return nil
}

// fileFD is what all open files have in common.
type fileFD struct {
	vfsfd vfs.FileDescription
	vfs.FileDescriptionDefaultImpl
	vfs.LockFD
}

func (fd *fileFD) dentry() *dentry { return fd.vfsfd.Dentry().Impl().(*dentry) }
func (fd *fileFD) inode() *inode   { return fd.dentry().inode }

// Stat implements vfs.FileDescriptionImpl.Stat.
func (fd *fileFD) Stat(context.Context, vfs.StatOptions) (linux.Statx, error) {
	return fd.inode().stat(), nil
}

// change changes something about the open file and notifies watchers of event.
func (fd *fileFD) change(ctx context.Context, event uint32, fn func(*inode) error) error {
	d := fd.dentry()
	d.fs.mu.RLock()
	err := d.fs.note(d)
	d.fs.mu.RUnlock()
	if err == nil {
		err = fn(d.inode)
	}
	if err == nil && event != 0 {
		d.InotifyWithParent(ctx, event, 0, vfs.InodeEvent)
	}
	return err
}

// SetStat implements vfs.FileDescriptionImpl.SetStat.
func (fd *fileFD) SetStat(ctx context.Context, opts vfs.SetStatOptions) error {
	creds := credentials(ctx, fd)
	return fd.change(ctx, vfs.InotifyEventFromStatMask(opts.Stat.Mask), func(i *inode) error { return i.setStat(ctx, creds, &opts) })
}

// StatFS implements vfs.FileDescriptionImpl.StatFS.
func (fd *fileFD) StatFS(context.Context) (linux.Statfs, error) { return fd.dentry().fs.statfs(), nil }

// ListXattr implements vfs.FileDescriptionImpl.ListXattr.
func (fd *fileFD) ListXattr(ctx context.Context, size uint64) ([]string, error) {
	return fd.inode().listXattr(credentials(ctx, fd), size)
}

// GetXattr implements vfs.FileDescriptionImpl.GetXattr.
func (fd *fileFD) GetXattr(ctx context.Context, opts vfs.GetXattrOptions) (string, error) {
	return fd.inode().getXattr(credentials(ctx, fd), &opts)
}

// SetXattr implements vfs.FileDescriptionImpl.SetXattr.
func (fd *fileFD) SetXattr(ctx context.Context, opts vfs.SetXattrOptions) error {
	return fd.change(ctx, linux.IN_ATTRIB, func(i *inode) error { return i.setXattr(credentials(ctx, fd), &opts) })
}

// RemoveXattr implements vfs.FileDescriptionImpl.RemoveXattr.
func (fd *fileFD) RemoveXattr(ctx context.Context, name string) error {
	return fd.change(ctx, linux.IN_ATTRIB, func(i *inode) error { return i.removeXattr(credentials(ctx, fd), name) })
}

// Sync implements vfs.FileDescriptionImpl.Sync.
func (fd *fileFD) Sync(context.Context, vfs.SyncOptions) error { return nil }
