package volumes

import (
	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/sentry/fsimpl/kernfs"
	"gvisor.dev/gvisor/pkg/sentry/kernel/auth"
	"gvisor.dev/gvisor/pkg/sentry/kernel/pipe"
	"gvisor.dev/gvisor/pkg/sentry/vfs"

	"ramet.dev/ramet/internal/engine/wire"
)

// Open implements kernfs.Inode.Open.
func (i *inode) Open(ctx context.Context, rp *vfs.ResolvingPath, d *kernfs.Dentry, opts vfs.OpenOptions) (*vfs.FileDescription, error) {
	if opts.Flags&linux.O_NOATIME != 0 && !vfs.CanActAsOwner(rp.Credentials(), i.UID()) {
		return nil, linuxerr.EPERM
	}
	switch i.attr.Mode & linux.S_IFMT {
	case linux.S_IFREG:
		return i.openRegular(ctx, rp, d, &opts)
	case linux.S_IFDIR:
		if opts.Flags&linux.O_TMPFILE == linux.O_TMPFILE {
			return nil, linuxerr.EOPNOTSUPP
		}
		if opts.Flags&linux.O_DIRECT != 0 {
			return nil, linuxerr.EINVAL
		}
		if ats := vfs.AccessTypesForOpenFlags(&opts); ats.MayWrite() {
			return nil, linuxerr.EISDIR
		}
		fd := &directoryFD{}
		fd.LockFD.Init(&i.locks)
		if err := fd.vfsfd.Init(fd, opts.Flags, rp.Credentials(), rp.Mount(), d.VFSDentry(), &vfs.FileDescriptionOptions{AllowDirectIO: true}); err != nil {
			return nil, err
		}
		return &fd.vfsfd, nil
	case linux.S_IFLNK:
		return nil, linuxerr.ELOOP
	case linux.S_IFIFO:
		i.mu.Lock()
		if i.fifo == nil {
			i.fifo = pipe.NewVFSPipe(true, pipe.DefaultPipeSize)
		}
		fifo := i.fifo
		i.mu.Unlock()
		return fifo.Open(ctx, rp.Mount(), d.VFSDentry(), opts.Flags, &i.locks)
	case linux.S_IFCHR, linux.S_IFBLK:
		return nil, linuxerr.EACCES // as of a mount with nodev, whose flag gVisor keeps and does not regard
	}
	return nil, linuxerr.ENXIO
}

func (i *inode) openRegular(ctx context.Context, rp *vfs.ResolvingPath, d *kernfs.Dentry, opts *vfs.OpenOptions) (*vfs.FileDescription, error) {
	if _, err := i.file(); err != nil {
		return nil, err
	}
	if opts.Flags&linux.O_TRUNC != 0 { // kernfs has begun the write
		set := &wire.VolumeSet{Size: new(int64)}
		if mode := i.known().Mode; withoutPrivs(mode) != mode && !rp.Credentials().HasRootCapability(linux.CAP_FSETID) {
			mode = withoutPrivs(mode) &^ linux.S_IFMT
			set.Mode = &mode
		}
		if err := i.resize(set); err != nil {
			return nil, err
		}
	}
	fd := &regularFD{}
	fd.LockFD.Init(&i.locks)
	if err := fd.vfsfd.Init(fd, opts.Flags, rp.Credentials(), rp.Mount(), d.VFSDentry(), &vfs.FileDescriptionOptions{AllowDirectIO: true}); err != nil {
		return nil, err
	}
	return &fd.vfsfd, nil
}

// fileFD is the common part of open files.
type fileFD struct {
	vfsfd vfs.FileDescription
	vfs.FileDescriptionDefaultImpl
	vfs.LockFD
}

func (fd *fileFD) dentry() *kernfs.Dentry { return fd.vfsfd.Dentry().Impl().(*kernfs.Dentry) }
func (fd *fileFD) inode() *inode          { return fd.dentry().Inode().(*inode) }

// Stat implements vfs.FileDescriptionImpl.Stat.
func (fd *fileFD) Stat(ctx context.Context, opts vfs.StatOptions) (linux.Statx, error) {
	return fd.inode().Stat(ctx, nil, opts)
}

// SetStat implements vfs.FileDescriptionImpl.SetStat.
func (fd *fileFD) SetStat(ctx context.Context, opts vfs.SetStatOptions) error {
	creds := auth.CredentialsFromContext(ctx)
	if err := fd.inode().SetStat(ctx, nil, creds, opts); err != nil {
		return err
	}
	if ev := vfs.InotifyEventFromStatMask(opts.Stat.Mask); ev != 0 {
		fd.dentry().InotifyWithParent(ctx, ev, 0, vfs.InodeEvent)
	}
	return nil
}

// StatFS implements vfs.FileDescriptionImpl.StatFS.
func (fd *fileFD) StatFS(context.Context) (linux.Statfs, error) { return fd.inode().fs.statFS() }

// ListXattr implements vfs.FileDescriptionImpl.ListXattr.
func (fd *fileFD) ListXattr(ctx context.Context, size uint64) ([]string, error) {
	return fd.inode().ListXattr(ctx, size)
}

// GetXattr implements vfs.FileDescriptionImpl.GetXattr.
func (fd *fileFD) GetXattr(ctx context.Context, opts vfs.GetXattrOptions) (string, error) {
	if err := fd.mayXattr(ctx, vfs.MayRead, opts.Name); err != nil {
		return "", err
	}
	return fd.inode().GetXattr(ctx, opts)
}

// SetXattr implements vfs.FileDescriptionImpl.SetXattr.
func (fd *fileFD) SetXattr(ctx context.Context, opts vfs.SetXattrOptions) error {
	if err := fd.mayXattr(ctx, vfs.MayWrite, opts.Name); err != nil {
		return err
	}
	return fd.inode().SetXattr(ctx, opts)
}

// RemoveXattr implements vfs.FileDescriptionImpl.RemoveXattr.
func (fd *fileFD) RemoveXattr(ctx context.Context, name string) error {
	if err := fd.mayXattr(ctx, vfs.MayWrite, name); err != nil {
		return err
	}
	return fd.inode().RemoveXattr(ctx, name)
}

// mayXattr checks what kernfs checks of attributes that are named by a path.
func (fd *fileFD) mayXattr(ctx context.Context, ats vfs.AccessTypes, name string) error {
	i, creds := fd.inode(), auth.CredentialsFromContext(ctx)
	if err := vfs.GenericCheckPermissions(creds, ats, i.Mode(), nil, i.UID(), i.GID()); err != nil {
		return err
	}
	return vfs.CheckXattrPermissions(creds, ats, i.Mode(), i.UID(), name)
}
