package rootfs

import (
	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/sentry/kernel/auth"
	"gvisor.dev/gvisor/pkg/sentry/vfs"

	"ramet.dev/ramet/internal/sentry/rootfs/inode"
)

// fileFD is the common part of open files.
type fileFD struct {
	vfsfd vfs.FileDescription
	vfs.FileDescriptionDefaultImpl
	vfs.LockFD
}

func (fd *fileFD) dentry() *dentry     { return fd.vfsfd.Dentry().Impl().(*dentry) }
func (fd *fileFD) inode() *inode.Inode { return fd.dentry().inode }

// Stat implements vfs.FileDescriptionImpl.Stat.
func (fd *fileFD) Stat(context.Context, vfs.StatOptions) (linux.Statx, error) {
	return fd.inode().Stat(), nil
}

// change calls fn to change the open file, and notifies watchers of event.
func (fd *fileFD) change(ctx context.Context, event uint32, fn func(*inode.Inode) error) error {
	d := fd.dentry()
	d.names.mu.RLock()
	err := d.note()
	d.names.mu.RUnlock()
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
	return fd.change(ctx, vfs.InotifyEventFromStatMask(opts.Stat.Mask), func(i *inode.Inode) error { return i.SetStat(ctx, creds, &opts) })
}

// StatFS implements vfs.FileDescriptionImpl.StatFS.
func (fd *fileFD) StatFS(context.Context) (linux.Statfs, error) {
	return fd.dentry().names.table.Statfs(), nil
}

// ListXattr implements vfs.FileDescriptionImpl.ListXattr.
func (fd *fileFD) ListXattr(ctx context.Context, size uint64) ([]string, error) {
	return fd.inode().ListXattr(credentials(ctx, fd), size)
}

// GetXattr implements vfs.FileDescriptionImpl.GetXattr.
func (fd *fileFD) GetXattr(ctx context.Context, opts vfs.GetXattrOptions) (string, error) {
	return fd.inode().GetXattr(credentials(ctx, fd), &opts)
}

// SetXattr implements vfs.FileDescriptionImpl.SetXattr.
func (fd *fileFD) SetXattr(ctx context.Context, opts vfs.SetXattrOptions) error {
	return fd.change(ctx, linux.IN_ATTRIB, func(i *inode.Inode) error { return i.SetXattr(credentials(ctx, fd), &opts) })
}

// RemoveXattr implements vfs.FileDescriptionImpl.RemoveXattr.
func (fd *fileFD) RemoveXattr(ctx context.Context, name string) error {
	return fd.change(ctx, linux.IN_ATTRIB, func(i *inode.Inode) error { return i.RemoveXattr(credentials(ctx, fd), name) })
}

// Sync implements vfs.FileDescriptionImpl.Sync.
func (fd *fileFD) Sync(context.Context, vfs.SyncOptions) error { return nil }

// credentials returns those of the caller, or, if there is none, of the one that opened fd.
func credentials(ctx context.Context, fd *fileFD) *auth.Credentials {
	if creds := auth.CredentialsFromContext(ctx); creds != nil {
		return creds
	}
	return fd.vfsfd.Credentials()
}
