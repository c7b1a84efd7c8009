package rootfs

import (
	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/refs"
	"gvisor.dev/gvisor/pkg/sentry/vfs"

	"ramet.dev/ramet/internal/sentry/rootfs/inode"
	"ramet.dev/ramet/internal/storage/cowfs"
)

// UnlinkAt implements vfs.FilesystemImpl.UnlinkAt.
func (fs *filesystem) UnlinkAt(ctx context.Context, rp *vfs.ResolvingPath) error {
	return fs.remove(ctx, rp, linuxerr.EISDIR, linuxerr.EISDIR, func(r removal) error {
		if r.child.inode.IsDir() {
			return linuxerr.EISDIR
		}
		return nil
	}, func(r removal) {
		// Watches may go with the last link, so they are told before.
		vfs.InotifyRemoveChild(ctx, &r.child.inode.Watches, &r.parent.inode.Watches, r.name)
		r.child.inode.Set(func(a *cowfs.Attr) { a.Nlink-- })
		r.child.inode.Touch(false)
	})
}

// RmdirAt implements vfs.FilesystemImpl.RmdirAt.
func (fs *filesystem) RmdirAt(ctx context.Context, rp *vfs.ResolvingPath) error {
	return fs.remove(ctx, rp, linuxerr.EINVAL, linuxerr.ENOTEMPTY, func(r removal) error {
		if !r.child.inode.IsDir() {
			return linuxerr.ENOTDIR
		}
		empty, err := fs.table.Tree().Empty(r.child.inode.Ino())
		if err == nil && !empty {
			return linuxerr.ENOTEMPTY
		}
		return inode.Errno(err)
	}, func(r removal) {
		r.child.inode.Set(func(a *cowfs.Attr) { a.Nlink = 0 })
		r.child.inode.Touch(false)
		r.parent.inode.Set(func(a *cowfs.Attr) { a.Nlink-- })
		r.parent.inode.Watches.Notify(ctx, r.name, linux.IN_DELETE|linux.IN_ISDIR, 0, vfs.InodeEvent, true)
	})
}

// remove removes the name at rp. check says whether a name may be removed; done counts links
// and notifies watchers.
func (n *names) remove(ctx context.Context, rp *vfs.ResolvingPath, dot, dotdot error, check func(removal) error, done func(removal)) error {
	n.mu.Lock()
	var toDecRef []refs.RefCounter
	// A dead mount point may take the whole file system along, and that locks.
	defer func() {
		for _, r := range toDecRef {
			r.DecRef(ctx)
		}
	}()
	defer n.mu.Unlock()
	r, err := findRemoval(ctx, rp, dot, dotdot)
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
	if err := r.apply(); err != nil {
		vfsObj.AbortDeleteDentry(&r.child.vfsd)
		return err
	}
	done(r)
	r.child.IncRef()
	toDecRef = append(vfsObj.CommitDeleteDentry(ctx, &r.child.vfsd), r.child)
	r.parent.inode.Touch(true)
	return nil
}

// removal is a name that is to be removed.
type removal struct {
	parent, child *dentry
	name          string
}

// findRemoval resolves rp to a name that may be removed. dot and dotdot are the errors for "."
// and "..". names.mu must be locked.
func findRemoval(ctx context.Context, rp *vfs.ResolvingPath, dot, dotdot error) (r removal, err error) {
	if r.parent, err = resolveParent(ctx, rp, startOf(rp)); err != nil {
		return r, err
	}
	if err := r.parent.inode.Check(rp.Credentials(), vfs.MayExec); err != nil {
		return r, err
	}
	switch r.name = rp.Component(); r.name {
	case ".":
		return r, dot
	case "..":
		return r, dotdot
	}
	if r.child, err = r.parent.child(r.name); err != nil {
		return r, err
	}
	if r.child == nil {
		return r, linuxerr.ENOENT
	}
	if !r.child.inode.IsDir() && rp.MustBeDir() {
		return r, linuxerr.ENOTDIR
	}
	return r, r.parent.mayDelete(rp.Credentials(), r.child)
}

// apply removes the name in the tree and in memory.
func (r *removal) apply() error {
	if err := firstError(r.parent.noteRemoval(), r.child.noteRemoval()); err != nil {
		return err
	}
	err := r.parent.names.table.Tree().Delete(r.parent.inode.Ino(), cowfs.Entry{Name: r.name, Ino: r.child.inode.Ino()})
	if err != nil {
		return inode.Errno(err)
	}
	r.child.orphan()
	return nil
}
