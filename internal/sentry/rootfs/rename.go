package rootfs

import (
	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/refs"
	"gvisor.dev/gvisor/pkg/sentry/kernel/auth"
	"gvisor.dev/gvisor/pkg/sentry/socket/unix/transport"
	"gvisor.dev/gvisor/pkg/sentry/vfs"

	"ramet.dev/ramet/internal/storage/cowfs"
)

type boundEndpoint = transport.BoundEndpoint

// renaming is one rename(2) under way.
type renaming struct {
	from, to         *dentry // directories
	oldName, newName string
	moved            *dentry
	replaced         *dentry // nil: nothing is there
	exchange         bool
}

// RenameAt implements vfs.FilesystemImpl.RenameAt.
func (fs *filesystem) RenameAt(ctx context.Context, rp *vfs.ResolvingPath, oldParentVD vfs.VirtualDentry, oldName string, opts vfs.RenameOptions) error {
	fs.mu.Lock()
	var toDecRef []refs.RefCounter
	defer func() {
		for _, r := range toDecRef {
			r.DecRef(ctx)
		}
	}()
	defer fs.mu.Unlock()
	r := renaming{oldName: oldName, exchange: opts.Flags&linux.RENAME_EXCHANGE != 0}
	var err error
	if r.to, err = fs.parentOf(ctx, rp, rp.Start().Impl().(*dentry)); err != nil {
		return err
	}
	const known = linux.RENAME_NOREPLACE | linux.RENAME_EXCHANGE
	if opts.Flags&^known != 0 || opts.Flags&known == known {
		return linuxerr.EINVAL
	}
	r.newName = rp.Component()
	if r.newName == "." || r.newName == ".." {
		if opts.Flags&linux.RENAME_NOREPLACE != 0 {
			return linuxerr.EEXIST
		}
		return linuxerr.EBUSY
	}
	mnt := rp.Mount()
	if mnt != oldParentVD.Mount() {
		return linuxerr.EXDEV // the old one may be of any other file system
	}
	r.from = oldParentVD.Dentry().Impl().(*dentry)
	if err := mnt.CheckBeginWrite(); err != nil {
		return err
	}
	defer mnt.EndWrite()
	if err := fs.checkRename(rp, &r, opts); err != nil {
		return err
	}
	if r.replaced != nil && r.moved.inode == r.replaced.inode {
		return nil // names of one file: nothing is done, not even an exchange
	}
	vfsObj := rp.VirtualFilesystem()
	mntns := vfs.MountNamespaceFromContext(ctx)
	if mntns != nil {
		defer mntns.DecRef(ctx)
	}
	var replacedVFSD *vfs.Dentry
	if r.replaced != nil {
		replacedVFSD = &r.replaced.vfsd
	}
	handle, err := vfsObj.PrepareRenameDentry(mntns, &r.moved.vfsd, replacedVFSD)
	if err != nil {
		return err
	}
	if err := fs.renameEntries(&r); err != nil {
		vfsObj.AbortRenameDentry(&handle, &r.moved.vfsd, replacedVFSD)
		return err
	}
	vfsObj.RenameBegin(&handle)
	if r.exchange {
		fs.exchangeDentries(&r)
		vfsObj.CommitRenameExchangeDentry(&handle, &r.moved.vfsd, replacedVFSD)
	} else {
		toDecRef = fs.moveDentry(&r)
		toDecRef = append(toDecRef, vfsObj.CommitRenameReplaceDentry(ctx, &handle, &r.moved.vfsd, replacedVFSD)...)
	}
	r.from.inode.touch(true)
	if r.to != r.from {
		r.to.inode.touch(true)
	}
	r.moved.inode.touch(false)
	vfs.InotifyRename(ctx, &r.moved.inode.watches, &r.from.inode.watches, &r.to.inode.watches, oldName, r.newName, r.moved.inode.isDir())
	if r.exchange {
		r.replaced.inode.touch(false)
		vfs.InotifyRename(ctx, &r.replaced.inode.watches, &r.to.inode.watches, &r.from.inode.watches, r.newName, oldName, r.replaced.inode.isDir())
	}
	return nil
}

// checkRename finds what is to be renamed and checks whether it may be, in the
// order of Linux, which shows in the errors.
func (fs *filesystem) checkRename(rp *vfs.ResolvingPath, r *renaming, opts vfs.RenameOptions) (err error) {
	creds := rp.Credentials()
	if err := firstError(r.from.inode.check(creds, vfs.MayExec), r.to.inode.check(creds, vfs.MayExec)); err != nil {
		return err
	}
	if r.moved, err = fs.child(r.from, r.oldName); err != nil {
		return err
	}
	if r.replaced, err = fs.child(r.to, r.newName); err != nil {
		return err
	}
	if r.moved == nil || r.replaced == nil && r.exchange {
		return linuxerr.ENOENT
	}
	if r.replaced != nil && opts.Flags&linux.RENAME_NOREPLACE != 0 {
		return linuxerr.EEXIST
	}
	movesDir, replacesDir := r.moved.inode.isDir(), r.replaced != nil && r.replaced.inode.isDir()
	switch {
	case !movesDir && (opts.MustBeDir || !r.exchange && rp.MustBeDir()), r.exchange && !replacesDir && rp.MustBeDir():
		return linuxerr.ENOTDIR
	case movesDir && r.to.isBelow(r.moved):
		return linuxerr.EINVAL
	case replacesDir && r.from.isBelow(r.replaced) && r.exchange:
		return linuxerr.EINVAL
	case replacesDir && r.from.isBelow(r.replaced):
		return linuxerr.ENOTEMPTY
	case r.replaced != nil && r.replaced.inode == r.moved.inode:
		return nil
	}
	if err := r.from.mayDelete(creds, r.moved); err != nil {
		return err
	}
	if err := fs.checkTarget(creds, r, movesDir, replacesDir); err != nil {
		return err
	}
	if r.from != r.to { // the ".." of directories changes
		if movesDir {
			err = r.moved.inode.check(creds, vfs.MayWrite)
		}
		if err == nil && r.exchange && replacesDir {
			err = r.replaced.inode.check(creds, vfs.MayWrite)
		}
		if err == nil && movesDir && !replacesDir && r.to.inode.get().Nlink == maxLinks {
			err = linuxerr.EMLINK
		}
		if err != nil {
			return err
		}
	}
	if replacesDir && !r.exchange {
		if empty, err := fs.tree.Empty(r.replaced.inode.ino); err != nil {
			return errno(err)
		} else if !empty {
			return linuxerr.ENOTEMPTY
		}
	}
	return nil
}

// checkTarget checks whether something may come to where it is to be moved.
func (fs *filesystem) checkTarget(creds *auth.Credentials, r *renaming, movesDir, replacesDir bool) error {
	if r.to.vfsd.IsDead() {
		return linuxerr.ENOENT
	}
	if r.replaced == nil {
		return r.to.inode.check(creds, vfs.MayWrite|vfs.MayExec)
	}
	if err := r.to.mayDelete(creds, r.replaced); err != nil {
		return err
	}
	switch {
	case r.exchange:
	case movesDir && !replacesDir:
		return linuxerr.ENOTDIR
	case !movesDir && replacesDir:
		return linuxerr.EISDIR
	}
	return nil
}

// renameEntries changes the tree. If it fails midway, what was done is undone as
// far as there is space.
func (fs *filesystem) renameEntries(r *renaming) error {
	if err := fs.tree.Room(0); err != nil {
		return errno(err)
	}
	if err := firstError(fs.note(r.from), fs.note(r.to), fs.note(r.moved)); err != nil {
		return err
	}
	entry := func(d *dentry, name string) cowfs.Entry {
		a := d.inode.get()
		return cowfs.Entry{Name: name, Ino: d.inode.ino, Type: a.DirentType()}
	}
	from, to := r.from.inode.ino, r.to.inode.ino
	if r.replaced != nil {
		if err := fs.note(r.replaced); err != nil {
			return err
		}
		if err := fs.tree.Delete(to, entry(r.replaced, r.newName)); err != nil {
			return errno(err)
		}
	}
	err := fs.tree.Insert(to, entry(r.moved, r.newName))
	if err == nil {
		err = fs.tree.Delete(from, entry(r.moved, r.oldName))
	}
	if err == nil && r.exchange {
		err = fs.tree.Insert(from, entry(r.replaced, r.oldName))
	}
	if err != nil {
		_ = fs.tree.Delete(to, entry(r.moved, r.newName))
		_ = fs.tree.Insert(from, entry(r.moved, r.oldName))
		if r.replaced != nil {
			_ = fs.tree.Insert(to, entry(r.replaced, r.newName))
		}
	}
	return errno(err)
}

// moveDentry changes what is in memory, and counts links. It returns what is to be
// released when fs.mu is not locked any more.
func (fs *filesystem) moveDentry(r *renaming) []refs.RefCounter {
	var gone []refs.RefCounter
	if r.replaced != nil {
		fs.orphan(r.replaced)
		r.replaced.IncRef()
		gone = append(gone, r.replaced)
		if r.replaced.inode.isDir() {
			r.replaced.inode.set(func(a *cowfs.Attr) { a.Nlink = 0 })
			r.to.inode.set(func(a *cowfs.Attr) { a.Nlink-- })
		} else {
			r.replaced.inode.set(func(a *cowfs.Attr) { a.Nlink-- })
		}
		r.replaced.inode.touch(false)
	}
	fs.move(r.moved, r.to, r.newName)
	if r.moved.inode.isDir() && r.from != r.to {
		r.from.inode.set(func(a *cowfs.Attr) { a.Nlink-- })
		r.to.inode.set(func(a *cowfs.Attr) { a.Nlink++ })
	}
	return gone
}

func (fs *filesystem) exchangeDentries(r *renaming) {
	fs.move(r.moved, r.to, r.newName)
	fs.move(r.replaced, r.from, r.oldName)
	if r.from == r.to {
		return
	}
	shift := func(from, to *dentry) {
		from.inode.set(func(a *cowfs.Attr) { a.Nlink-- })
		to.inode.set(func(a *cowfs.Attr) { a.Nlink++ })
	}
	switch movesDir, replacesDir := r.moved.inode.isDir(), r.replaced.inode.isDir(); {
	case movesDir && !replacesDir:
		shift(r.from, r.to)
	case !movesDir && replacesDir:
		shift(r.to, r.from)
	}
}
