package rootfs

import (
	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/sentry/kernel/auth"
	"gvisor.dev/gvisor/pkg/sentry/socket/unix/transport"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
)

// fileOps has the operations of vfs.FilesystemImpl on the file at a path. They change no
// name.
type fileOps struct {
	*names
}

// at resolves a path and calls fn on the file there, with names locked.
func (o fileOps) at(ctx context.Context, rp *vfs.ResolvingPath, fn func(*dentry) error) error {
	o.sweepIfMany(ctx)
	o.mu.RLock()
	defer o.mu.RUnlock()
	d, err := resolve(ctx, rp)
	if err != nil {
		return err
	}
	return fn(d)
}

// changeAt resolves a path, calls fn on the file there and then notifies watchers of event.
func (o fileOps) changeAt(ctx context.Context, rp *vfs.ResolvingPath, event uint32, fn func(*dentry) error) error {
	var changed *dentry
	err := o.at(ctx, rp, func(d *dentry) error {
		if err := d.note(); err != nil {
			return err
		}
		if err := fn(d); err != nil {
			return err
		}
		d.IncRef()
		changed = d
		return nil
	})
	if err != nil {
		return err
	}
	defer changed.DecRef(ctx)
	if event != 0 {
		changed.InotifyWithParent(ctx, event, 0, vfs.InodeEvent)
	}
	return nil
}

// AccessAt implements vfs.FilesystemImpl.AccessAt.
func (o fileOps) AccessAt(ctx context.Context, rp *vfs.ResolvingPath, creds *auth.Credentials, ats vfs.AccessTypes) error {
	return o.at(ctx, rp, func(d *dentry) error {
		if err := d.inode.Check(creds, ats); err != nil {
			return err
		}
		if ats.MayWrite() && rp.Mount().ReadOnly() {
			return linuxerr.EROFS
		}
		return nil
	})
}

// GetDentryAt implements vfs.FilesystemImpl.GetDentryAt.
func (o fileOps) GetDentryAt(ctx context.Context, rp *vfs.ResolvingPath, opts vfs.GetDentryOptions) (*vfs.Dentry, error) {
	var found *dentry
	err := o.at(ctx, rp, func(d *dentry) error {
		if opts.CheckSearchable {
			if !d.inode.IsDir() {
				return linuxerr.ENOTDIR
			}
			if err := d.inode.Check(rp.Credentials(), vfs.MayExec); err != nil {
				return err
			}
		}
		d.IncRef()
		found = d
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &found.vfsd, nil
}

// GetParentDentryAt implements vfs.FilesystemImpl.GetParentDentryAt.
func (o fileOps) GetParentDentryAt(ctx context.Context, rp *vfs.ResolvingPath) (*vfs.Dentry, error) {
	o.mu.RLock()
	defer o.mu.RUnlock()
	d, err := resolveParent(ctx, rp, startOf(rp))
	if err != nil {
		return nil, err
	}
	if err := d.inode.Check(rp.Credentials(), vfs.MayExec); err != nil {
		return nil, err
	}
	d.IncRef()
	return &d.vfsd, nil
}

// ReadlinkAt implements vfs.FilesystemImpl.ReadlinkAt.
func (o fileOps) ReadlinkAt(ctx context.Context, rp *vfs.ResolvingPath) (target string, err error) {
	err = o.at(ctx, rp, func(d *dentry) error {
		if !d.inode.IsLink() {
			return linuxerr.EINVAL
		}
		target, err = d.inode.Readlink(rp.Mount())
		return err
	})
	return target, err
}

// StatFSAt implements vfs.FilesystemImpl.StatFSAt.
func (o fileOps) StatFSAt(ctx context.Context, rp *vfs.ResolvingPath) (st linux.Statfs, err error) {
	err = o.at(ctx, rp, func(*dentry) error {
		st = o.table.Statfs()
		return nil
	})
	return st, err
}

// StatAt implements vfs.FilesystemImpl.StatAt.
func (o fileOps) StatAt(ctx context.Context, rp *vfs.ResolvingPath, _ vfs.StatOptions) (st linux.Statx, err error) {
	err = o.at(ctx, rp, func(d *dentry) error {
		st = d.inode.Stat()
		return nil
	})
	return st, err
}

// SetStatAt implements vfs.FilesystemImpl.SetStatAt.
func (o fileOps) SetStatAt(ctx context.Context, rp *vfs.ResolvingPath, opts vfs.SetStatOptions) error {
	return o.changeAt(ctx, rp, vfs.InotifyEventFromStatMask(opts.Stat.Mask), func(d *dentry) error {
		return d.inode.SetStat(ctx, rp.Credentials(), &opts)
	})
}

// BoundEndpointAt implements vfs.FilesystemImpl.BoundEndpointAt.
func (o fileOps) BoundEndpointAt(ctx context.Context, rp *vfs.ResolvingPath, _ vfs.BoundEndpointOptions) (ep transport.BoundEndpoint, err error) {
	err = o.at(ctx, rp, func(d *dentry) error {
		if err := d.inode.Check(rp.Credentials(), vfs.MayWrite); err != nil {
			return err
		}
		if ep = d.inode.Endpoint; d.inode.Type() != linux.S_IFSOCK || ep == nil {
			return linuxerr.ECONNREFUSED
		}
		return nil
	})
	return ep, err
}

// ListXattrAt implements vfs.FilesystemImpl.ListXattrAt.
func (o fileOps) ListXattrAt(ctx context.Context, rp *vfs.ResolvingPath, size uint64) (list []string, err error) {
	err = o.at(ctx, rp, func(d *dentry) error {
		list, err = d.inode.ListXattr(rp.Credentials(), size)
		return err
	})
	return list, err
}

// GetXattrAt implements vfs.FilesystemImpl.GetXattrAt.
func (o fileOps) GetXattrAt(ctx context.Context, rp *vfs.ResolvingPath, opts vfs.GetXattrOptions) (val string, err error) {
	err = o.at(ctx, rp, func(d *dentry) error {
		val, err = d.inode.GetXattr(rp.Credentials(), &opts)
		return err
	})
	return val, err
}

// SetXattrAt implements vfs.FilesystemImpl.SetXattrAt.
func (o fileOps) SetXattrAt(ctx context.Context, rp *vfs.ResolvingPath, opts vfs.SetXattrOptions) error {
	return o.changeAt(ctx, rp, linux.IN_ATTRIB, func(d *dentry) error { return d.inode.SetXattr(rp.Credentials(), &opts) })
}

// RemoveXattrAt implements vfs.FilesystemImpl.RemoveXattrAt.
func (o fileOps) RemoveXattrAt(ctx context.Context, rp *vfs.ResolvingPath, name string) error {
	return o.changeAt(ctx, rp, linux.IN_ATTRIB, func(d *dentry) error { return d.inode.RemoveXattr(rp.Credentials(), name) })
}

// GetPosixACLAt implements vfs.FilesystemImpl.GetPosixACLAt. There are no lists of
// access control. That is no error: an overlay on this file system asks for them.
func (o fileOps) GetPosixACLAt(context.Context, *vfs.ResolvingPath, vfs.ACLType) (*vfs.PosixACL, error) {
	return nil, nil
}

// SetPosixACLAt implements vfs.FilesystemImpl.SetPosixACLAt.
func (o fileOps) SetPosixACLAt(context.Context, *vfs.ResolvingPath, vfs.ACLType, *vfs.PosixACL, bool) (*vfs.PosixACL, linux.FileMode, error) {
	return nil, 0, linuxerr.EOPNOTSUPP
}
