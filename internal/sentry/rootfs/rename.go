package rootfs

import (
	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/refs"
	"gvisor.dev/gvisor/pkg/sentry/kernel/auth"
	"gvisor.dev/gvisor/pkg/sentry/vfs"

	"ramet.dev/ramet/internal/sentry/rootfs/inode"
	"ramet.dev/ramet/internal/storage/cowfs"
)

// renaming is a rename(2) under way.
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
	if r.to, err = resolveParent(ctx, rp, startOf(rp)); err != nil {
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
		return linuxerr.EXDEV // the old directory may be of any other file system
	}
	r.from = oldParentVD.Dentry().Impl().(*dentry)
	if err := mnt.CheckBeginWrite(); err != nil {
		return err
	}
	defer mnt.EndWrite()
	if err := r.find(rp, opts); err != nil {
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
	if err := r.changeTree(); err != nil {
		vfsObj.AbortRenameDentry(&handle, &r.moved.vfsd, replacedVFSD)
		return err
	}
	vfsObj.RenameBegin(&handle)
	if r.exchange {
		r.exchangeDentries()
		vfsObj.CommitRenameExchangeDentry(&handle, &r.moved.vfsd, replacedVFSD)
	} else {
		toDecRef = r.moveDentry()
		toDecRef = append(toDecRef, vfsObj.CommitRenameReplaceDentry(ctx, &handle, &r.moved.vfsd, replacedVFSD)...)
	}
	r.from.inode.Touch(true)
	if r.to != r.from {
		r.to.inode.Touch(true)
	}
	r.moved.inode.Touch(false)
	vfs.InotifyRename(ctx, &r.moved.inode.Watches, &r.from.inode.Watches, &r.to.inode.Watches, oldName, r.newName, r.moved.inode.IsDir())
	if r.exchange {
		r.replaced.inode.Touch(false)
		vfs.InotifyRename(ctx, &r.replaced.inode.Watches, &r.to.inode.Watches, &r.from.inode.Watches, r.newName, oldName, r.replaced.inode.IsDir())
	}
	return nil
}

// find finds the files and checks whether they may be renamed, in the order of Linux, which
// shows in the errors.
func (r *renaming) find(rp *vfs.ResolvingPath, opts vfs.RenameOptions) (err error) {
	creds := rp.Credentials()
	if err := firstError(r.from.inode.Check(creds, vfs.MayExec), r.to.inode.Check(creds, vfs.MayExec)); err != nil {
		return err
	}
	if r.moved, err = r.from.child(r.oldName); err != nil {
		return err
	}
	if r.replaced, err = r.to.child(r.newName); err != nil {
		return err
	}
	if r.moved == nil || r.replaced == nil && r.exchange {
		return linuxerr.ENOENT
	}
	if r.replaced != nil && opts.Flags&linux.RENAME_NOREPLACE != 0 {
		return linuxerr.EEXIST
	}
	movesDir, replacesDir := r.moved.inode.IsDir(), r.replaced != nil && r.replaced.inode.IsDir()
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
	if err := r.checkTarget(creds, movesDir, replacesDir); err != nil {
		return err
	}
	if r.from != r.to { // the ".." of directories changes
		if movesDir {
			err = r.moved.inode.Check(creds, vfs.MayWrite)
		}
		if err == nil && r.exchange && replacesDir {
			err = r.replaced.inode.Check(creds, vfs.MayWrite)
		}
		if err == nil && movesDir && !replacesDir && r.to.inode.Attr().Nlink == maxLinks {
			err = linuxerr.EMLINK
		}
		if err != nil {
			return err
		}
	}
	if replacesDir && !r.exchange {
		if empty, err := r.replaced.names.table.Tree().Empty(r.replaced.inode.Ino()); err != nil {
			return inode.Errno(err)
		} else if !empty {
			return linuxerr.ENOTEMPTY
		}
	}
	return nil
}

// checkTarget checks whether the moved file may come to its new place.
func (r *renaming) checkTarget(creds *auth.Credentials, movesDir, replacesDir bool) error {
	if r.to.vfsd.IsDead() {
		return linuxerr.ENOENT
	}
	if r.replaced == nil {
		return r.to.inode.Check(creds, vfs.MayWrite|vfs.MayExec)
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

// changeTree changes the entries in the tree. If it fails midway, it undoes its changes as far
// as there is space.
func (r *renaming) changeTree() error {
	tree := r.from.names.table.Tree()
	if err := tree.Room(0); err != nil {
		return inode.Errno(err)
	}
	if err := firstError(r.from.note(), r.to.note(), r.moved.note()); err != nil {
		return err
	}
	entry := func(d *dentry, name string) cowfs.Entry {
		a := d.inode.Attr()
		return cowfs.Entry{Name: name, Ino: d.inode.Ino(), Type: a.DirentType()}
	}
	from, to := r.from.inode.Ino(), r.to.inode.Ino()
	if r.replaced != nil {
		if err := r.replaced.note(); err != nil {
			return err
		}
		if err := tree.Delete(to, entry(r.replaced, r.newName)); err != nil {
			return inode.Errno(err)
		}
	}
	err := tree.Insert(to, entry(r.moved, r.newName))
	if err == nil {
		err = tree.Delete(from, entry(r.moved, r.oldName))
	}
	if err == nil && r.exchange {
		err = tree.Insert(from, entry(r.replaced, r.oldName))
	}
	if err != nil {
		_ = tree.Delete(to, entry(r.moved, r.newName))
		_ = tree.Insert(from, entry(r.moved, r.oldName))
		if r.replaced != nil {
			_ = tree.Insert(to, entry(r.replaced, r.newName))
		}
	}
	return inode.Errno(err)
}

// moveDentry changes the dentries of a rename without exchange, and counts links. It returns
// references that are to be released when names.mu is not locked any more.
func (r *renaming) moveDentry() []refs.RefCounter {
	var gone []refs.RefCounter
	if r.replaced != nil {
		r.replaced.orphan()
		r.replaced.IncRef()
		gone = append(gone, r.replaced)
		if r.replaced.inode.IsDir() {
			r.replaced.inode.Set(func(a *cowfs.Attr) { a.Nlink = 0 })
			r.to.inode.Set(func(a *cowfs.Attr) { a.Nlink-- })
		} else {
			r.replaced.inode.Set(func(a *cowfs.Attr) { a.Nlink-- })
		}
		r.replaced.inode.Touch(false)
	}
	r.moved.move(r.to, r.newName)
	if r.moved.inode.IsDir() && r.from != r.to {
		r.from.inode.Set(func(a *cowfs.Attr) { a.Nlink-- })
		r.to.inode.Set(func(a *cowfs.Attr) { a.Nlink++ })
	}
	return gone
}

// exchangeDentries changes the dentries of an exchange, and counts links.
func (r *renaming) exchangeDentries() {
	r.moved.move(r.to, r.newName)
	r.replaced.move(r.from, r.oldName)
	if r.from == r.to {
		return
	}
	shift := func(from, to *dentry) {
		from.inode.Set(func(a *cowfs.Attr) { a.Nlink-- })
		to.inode.Set(func(a *cowfs.Attr) { a.Nlink++ })
	}
	switch movesDir, replacesDir := r.moved.inode.IsDir(), r.replaced.inode.IsDir(); {
	case movesDir && !replacesDir:
		shift(r.from, r.to)
	case !movesDir && replacesDir:
		shift(r.to, r.from)
	}
}
