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

// openExisting returns the file at rp.
func (n *names) openExisting(ctx context.Context, rp *vfs.ResolvingPath) (*dentry, error) {
	n.mu.RLock()
	defer n.mu.RUnlock()
	d, err := resolve(ctx, rp)
	if err != nil {
		return nil, err
	}
	d.IncRef()
	return d, nil
}

// openNameless makes a file for O_TMPFILE.
func (n *names) openNameless(ctx context.Context, rp *vfs.ResolvingPath, opts *vfs.OpenOptions) (*dentry, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	dir, err := resolve(ctx, rp)
	if err != nil {
		return nil, err
	}
	if !dir.inode.IsDir() {
		return nil, linuxerr.ENOTDIR
	}
	if err := dir.inode.Check(rp.Credentials(), vfs.MayWrite|vfs.MayExec); err != nil {
		return nil, err
	}
	if err := rp.Mount().CheckBeginWrite(); err != nil {
		return nil, err
	}
	defer rp.Mount().EndWrite()
	d, err := dir.create("", rp.Credentials(), newFile{mode: linux.S_IFREG | opts.Mode.Permissions() | opts.Mode.ExtraBits()})
	if err == nil {
		d.inode.Nameless.Store(opts.Flags&linux.O_EXCL != 0)
	}
	return d, err
}

// openOrCreate returns the file at rp, or makes one there.
func (n *names) openOrCreate(ctx context.Context, rp *vfs.ResolvingPath, opts *vfs.OpenOptions) (d *dentry, created bool, err error) {
	mustCreate := opts.Flags&linux.O_EXCL != 0
	n.mu.Lock()
	defer n.mu.Unlock()
	d = startOf(rp)
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
		parent, err := resolveParent(ctx, rp, d)
		if err != nil {
			return nil, false, err
		}
		if err := parent.inode.Check(rp.Credentials(), vfs.MayExec); err != nil {
			return nil, false, err
		}
		if rp.MustBeDir() {
			return nil, false, linuxerr.EISDIR
		}
		name := rp.Component()
		child, followed, err := step(ctx, rp, parent)
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
			d, err := parent.openNew(ctx, rp, name, opts)
			return d, true, err
		}
		if err != nil {
			return nil, false, err
		}
		if mustCreate {
			return nil, false, linuxerr.EEXIST
		}
		if rp.MustBeDir() && !child.inode.IsDir() {
			return nil, false, linuxerr.ENOTDIR
		}
		child.IncRef()
		return child, false, nil
	}
}

// openNew makes a file in directory d for O_CREAT.
func (d *dentry) openNew(ctx context.Context, rp *vfs.ResolvingPath, name string, opts *vfs.OpenOptions) (*dentry, error) {
	if err := d.inode.Check(rp.Credentials(), vfs.MayWrite); err != nil {
		return nil, err
	}
	if d.vfsd.IsDead() {
		return nil, linuxerr.ENOENT
	}
	if err := rp.Mount().CheckBeginWrite(); err != nil {
		return nil, err
	}
	defer rp.Mount().EndWrite()
	made, err := d.create(name, rp.Credentials(), newFile{mode: linux.S_IFREG | opts.Mode.Permissions() | opts.Mode.ExtraBits()})
	if err == nil {
		d.inode.Watches.Notify(ctx, name, linux.IN_CREATE, 0, vfs.PathEvent, false)
	}
	return made, err
}

// open opens the file.
func (d *dentry) open(ctx context.Context, rp *vfs.ResolvingPath, opts *vfs.OpenOptions, created bool) (*vfs.FileDescription, error) {
	ats := vfs.AccessTypesForOpenFlags(opts)
	i := d.inode
	switch { // before permissions, as Linux does
	case i.IsLink():
		return nil, linuxerr.ELOOP // O_PATH is the VFS's
	case i.IsDir() && (opts.Flags&linux.O_CREAT != 0 || ats.MayWrite()):
		return nil, linuxerr.EISDIR
	}
	if !created {
		if err := i.Check(rp.Credentials(), ats); err != nil {
			return nil, err
		}
		if opts.Flags&linux.O_NOATIME != 0 && !vfs.CanActAsOwner(rp.Credentials(), auth.KUID(i.Attr().UID)) {
			return nil, linuxerr.EPERM
		}
	}
	mnt := rp.Mount()
	switch i.Type() {
	case linux.S_IFREG:
		return d.openRegular(ctx, rp, opts, created)
	case linux.S_IFDIR:
		if opts.Flags&linux.O_DIRECT != 0 {
			return nil, linuxerr.EINVAL
		}
		fd := &directoryFD{}
		fd.LockFD.Init(&i.Locks)
		if err := fd.vfsfd.Init(fd, opts.Flags, rp.Credentials(), mnt, &d.vfsd, &vfs.FileDescriptionOptions{AllowDirectIO: true}); err != nil {
			return nil, err
		}
		return &fd.vfsfd, nil
	case linux.S_IFIFO:
		if opts.FileExec {
			return nil, linuxerr.EACCES // opening it would wait for a writer
		}
		return i.Fifo().Open(ctx, mnt, &d.vfsd, opts.Flags, &i.Locks)
	case linux.S_IFCHR, linux.S_IFBLK:
		kind := vfs.CharDevice
		if i.Type() == linux.S_IFBLK {
			kind = vfs.BlockDevice
		}
		a := i.Attr()
		return rp.VirtualFilesystem().OpenDeviceSpecialFile(ctx, mnt, &d.vfsd, kind, a.Major, a.Minor, opts)
	}
	return nil, linuxerr.ENXIO // a socket
}

func (d *dentry) openRegular(ctx context.Context, rp *vfs.ResolvingPath, opts *vfs.OpenOptions, created bool) (*vfs.FileDescription, error) {
	fd := &regularFD{}
	fd.LockFD.Init(&d.inode.Locks)
	mnt := rp.Mount()
	if err := fd.vfsfd.Init(fd, opts.Flags, rp.Credentials(), mnt, &d.vfsd, &vfs.FileDescriptionOptions{AllowDirectIO: true}); err != nil {
		return nil, err
	}
	err := fd.prepareOpen(mnt, opts, created)
	if err != nil {
		fd.vfsfd.DecRef(ctx)
		return nil, err
	}
	return &fd.vfsfd, nil
}

// prepareOpen makes the changes that opening for writing makes.
func (fd *regularFD) prepareOpen(mnt *vfs.Mount, opts *vfs.OpenOptions, created bool) error {
	truncate := opts.Flags&linux.O_TRUNC != 0 && !created
	if !fd.vfsfd.IsWritable() && !truncate {
		return nil
	}
	d := fd.dentry()
	d.names.mu.RLock()
	err := d.note()
	d.names.mu.RUnlock()
	if err != nil || !truncate {
		return err
	}
	if err := mnt.CheckBeginWrite(); err != nil {
		return err
	}
	defer mnt.EndWrite()
	return d.inode.Empty(fd.vfsfd.Credentials())
}
