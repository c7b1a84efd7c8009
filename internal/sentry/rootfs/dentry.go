package rootfs

import (
	"sync/atomic"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/sentry/vfs"

	"ramet.dev/ramet/internal/storage/cowfs"
	"ramet.dev/ramet/internal/storage/pages"
)

// dentry implements vfs.DentryImpl: a name of an inode. It holds a reference on
// its parent.
type dentry struct {
	vfsd  vfs.Dentry
	fs    *filesystem
	inode *inode
	// refs counts users. At 0 the dentry stays until it is swept, if it is among
	// its parent's children, and else is destroyed; then it is -1.
	refs atomic.Int64
	// parent and name are protected by fs.mu and fs.ancestryMu. parent is nil for
	// the root and for files that never had a name.
	parent atomic.Pointer[dentry]
	name   string
	// unlinked is set, with fs.mu locked, when it stops being among its parent's
	// children.
	unlinked atomic.Bool
	// children are those that are in memory. Protected by fs.cacheMu.
	children map[string]*dentry
}

// newDentry makes a dentry without users. It takes over a reference on i.
func (fs *filesystem) newDentry(i *inode) *dentry {
	d := &dentry{fs: fs, inode: i}
	d.vfsd.Init(d)
	return d
}

// child returns what is called name in d, or nil. fs.mu must be held.
func (fs *filesystem) child(d *dentry, name string) (*dentry, error) {
	if len(name) > linux.NAME_MAX {
		return nil, linuxerr.ENAMETOOLONG
	}
	fs.cacheMu.Lock()
	c := d.children[name]
	fs.cacheMu.Unlock()
	if c != nil {
		return c, nil
	}
	e, ok, err := fs.tree.Lookup(d.inode.ino, name)
	if err != nil || !ok {
		return nil, errno(err)
	}
	i, err := fs.inode(e.Ino)
	if err != nil {
		return nil, errno(err)
	}
	c = fs.newDentry(i)
	fs.cacheMu.Lock()
	defer fs.cacheMu.Unlock()
	if other := d.children[name]; other != nil {
		fs.dropInode(nil, i) // it has other users: it is other's
		return other, nil
	}
	fs.adoptLocked(d, c, name)
	return c, nil
}

// adopt makes c, which has no parent, a child of d. fs.mu must be locked.
func (fs *filesystem) adopt(d, c *dentry, name string) {
	fs.cacheMu.Lock()
	defer fs.cacheMu.Unlock()
	fs.adoptLocked(d, c, name)
}

func (fs *filesystem) adoptLocked(d, c *dentry, name string) {
	fs.ancestryMu.Lock()
	c.parent.Store(d)
	c.name = name
	fs.ancestryMu.Unlock()
	d.refs.Add(1)
	if d.children == nil {
		d.children = map[string]*dentry{}
	}
	d.children[name] = c
	fs.cached.Add(1)
}

// orphan takes c from its parent's children. It keeps its parent, for "..", and
// the reference on it. fs.mu must be locked.
func (fs *filesystem) orphan(c *dentry) {
	fs.cacheMu.Lock()
	delete(c.parent.Load().children, c.name)
	fs.cacheMu.Unlock()
	fs.cached.Add(-1)
	c.unlinked.Store(true)
}

// move gives c another parent and name. fs.mu must be locked.
func (fs *filesystem) move(c, to *dentry, name string) {
	from := c.parent.Load()
	fs.cacheMu.Lock()
	defer fs.cacheMu.Unlock()
	if from.children[c.name] == c {
		delete(from.children, c.name)
	}
	if to.children == nil {
		to.children = map[string]*dentry{}
	}
	to.children[name] = c
	fs.ancestryMu.Lock()
	c.parent.Store(to)
	c.name = name
	fs.ancestryMu.Unlock()
	to.refs.Add(1)
	from.refs.Add(-1) // not the last: its caller has it locked
}

// isBelow says whether d is top or below it. fs.ancestryMu or fs.mu must be held.
func (d *dentry) isBelow(top *dentry) bool {
	for ; d != nil; d = d.parent.Load() {
		if d == top {
			return true
		}
	}
	return false
}

// IncRef implements vfs.DentryImpl.IncRef.
func (d *dentry) IncRef() { d.refs.Add(1) }

// TryIncRef implements vfs.DentryImpl.TryIncRef.
func (d *dentry) TryIncRef() bool {
	for {
		n := d.refs.Load()
		if n <= 0 {
			return false
		}
		if d.refs.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// DecRef implements vfs.DentryImpl.DecRef.
func (d *dentry) DecRef(ctx context.Context) {
	if d.refs.Add(-1) == 0 && (d.unlinked.Load() || d.parent.Load() == nil) {
		d.destroy(ctx)
	}
}

// destroy ends a dentry that nobody uses and that cannot be found any more.
func (d *dentry) destroy(ctx context.Context) {
	if !d.refs.CompareAndSwap(0, -1) {
		return // somebody else does
	}
	d.fs.dropInode(ctx, d.inode)
	if parent := d.parent.Load(); parent != nil {
		parent.DecRef(ctx)
	}
}

// sweepIfMany drops unused dentries if there are many. No lock may be held.
func (fs *filesystem) sweepIfMany(ctx context.Context) {
	if fs.cached.Load() <= fs.sweepAt.Load() {
		return
	}
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.sweep(ctx)
	// What is in use stays; do not try again before there is as much again.
	fs.sweepAt.Store(fs.cached.Load() + manyDentries)
}

// sweep drops all dentries that nobody uses. fs.mu must be locked.
func (fs *filesystem) sweep(ctx context.Context) { fs.sweepBelow(ctx, fs.root) }

func (fs *filesystem) sweepBelow(ctx context.Context, d *dentry) {
	fs.cacheMu.Lock()
	children := make([]*dentry, 0, len(d.children))
	for _, c := range d.children {
		children = append(children, c)
	}
	fs.cacheMu.Unlock()
	for _, c := range children {
		fs.sweepBelow(ctx, c)
		if c.inode.remembers() || !c.refs.CompareAndSwap(0, -1) {
			continue
		}
		fs.cacheMu.Lock()
		delete(d.children, c.name)
		fs.cacheMu.Unlock()
		fs.cached.Add(-1)
		fs.dropInode(ctx, c.inode)
		d.refs.Add(-1) // d itself is looked at next
	}
}

// remembers says whether the inode has state that is nowhere else.
func (i *inode) remembers() bool { return i.endpoint != nil || i.watches.Size() > 0 }

// InotifyWithParent implements vfs.DentryImpl.InotifyWithParent.
func (d *dentry) InotifyWithParent(ctx context.Context, events, cookie uint32, et vfs.EventType) {
	if d.inode.isDir() {
		events |= linux.IN_ISDIR
	}
	deleted := d.vfsd.IsDead()
	d.fs.ancestryMu.RLock()
	defer d.fs.ancestryMu.RUnlock()
	if parent := d.parent.Load(); parent != nil {
		parent.inode.watches.Notify(ctx, d.name, events, cookie, et, deleted)
	}
	d.inode.watches.Notify(ctx, "", events, cookie, et, deleted)
}

// Watches implements vfs.DentryImpl.Watches.
func (d *dentry) Watches() *vfs.Watches { return &d.inode.watches }

// OnZeroWatches implements vfs.DentryImpl.OnZeroWatches.
func (d *dentry) OnZeroWatches(context.Context) {}

// note records where a file of the image is, and all directories above it, before
// something about it changes: a diff finds its path by that. It fails if that is new
// and there is no room for it, nor for attributes. fs.mu must be held.
func (fs *filesystem) note(d *dentry) error { return fs.noteIf(d, fs.tree.Room) }

// noteRemoval is note for what is removed, for which there must be room. fs.mu must
// be held.
func (fs *filesystem) noteRemoval(d *dentry) error {
	return fs.noteIf(d, func(int) error { return nil })
}

func (fs *filesystem) noteIf(d *dentry, room func(bytes int) error) error {
	for parent := d.parent.Load(); parent != nil && d.inode.ino.OfImage() && !d.inode.noted.Load(); parent = d.parent.Load() {
		if err := fs.tree.NoteParent(d.inode.ino, parent.inode.ino, d.name, room); err != nil {
			return errno(err)
		}
		d.inode.noted.Store(true)
		d = parent
	}
	return nil
}

// inode returns the inode with a number, with a reference for the caller.
func (fs *filesystem) inode(ino cowfs.Ino) (*inode, error) {
	fs.inodesMu.Lock()
	defer fs.inodesMu.Unlock()
	if i, ok := fs.inodes[ino]; ok {
		i.refs++
		return i, nil
	}
	a, _, err := fs.tree.Attr(ino)
	if err != nil {
		return nil, err
	}
	return fs.addInodeLocked(ino, a), nil
}

// addInode adds a new inode, with a reference for the caller.
func (fs *filesystem) addInode(ino cowfs.Ino, a cowfs.Attr) *inode {
	fs.inodesMu.Lock()
	defer fs.inodesMu.Unlock()
	return fs.addInodeLocked(ino, a)
}

func (fs *filesystem) addInodeLocked(ino cowfs.Ino, a cowfs.Attr) *inode {
	i := &inode{fs: fs, ino: ino, refs: 1, attr: a}
	i.mode.Store(a.Mode)
	fs.inodes[ino] = i
	return i
}

// dropInode gives up a reference, and with the last one the inode: its attributes
// go to the tree, or, if it has no name, all of it goes. Where the tree has no space
// for that, the inode stays in memory until flush.
func (fs *filesystem) dropInode(ctx context.Context, i *inode) {
	fs.inodesMu.Lock()
	i.refs--
	if i.refs > 0 {
		fs.inodesMu.Unlock()
		return
	}
	fs.letGo(i)
	gone := i.get().Nlink == 0
	fs.inodesMu.Unlock()
	if gone {
		i.watches.HandleDeletion(ctx)
	}
}

// letGo drops an inode without references from memory, if the tree has all of it
// then. fs.inodesMu must be locked: so nobody reads its old attributes from the tree.
func (fs *filesystem) letGo(i *inode) {
	var err error
	if i.get().Nlink > 0 {
		err = fs.flushInode(i)
	} else if err = fs.tree.Remove(i.ino); err == nil {
		fs.clean(i)
	}
	if err != nil {
		_ = errno(err) // logged
		fs.markDirty(i)
		return
	}
	delete(fs.inodes, i.ino)
}

func (fs *filesystem) markDirty(i *inode) {
	fs.dirtyMu.Lock()
	defer fs.dirtyMu.Unlock()
	fs.dirty[i] = struct{}{}
}

func (fs *filesystem) clean(i *inode) bool {
	fs.dirtyMu.Lock()
	defer fs.dirtyMu.Unlock()
	_, ok := fs.dirty[i]
	delete(fs.dirty, i)
	return ok
}

func (fs *filesystem) flushInode(i *inode) error {
	if !fs.clean(i) {
		return nil
	}
	i.attrMu.Lock()
	err := fs.tree.SetAttr(i.ino, &i.attr)
	i.attrMu.Unlock()
	if err != nil {
		fs.markDirty(i)
	}
	return err
}

// flush writes the attributes of all changed inodes to the tree.
func (fs *filesystem) flush() error {
	fs.dirtyMu.Lock()
	all := make([]*inode, 0, len(fs.dirty))
	for i := range fs.dirty {
		all = append(all, i)
	}
	fs.dirtyMu.Unlock()
	for _, i := range all {
		if err := fs.flushOne(i); err != nil {
			return err
		}
	}
	return nil
}

// flushOne is flush for an inode, which may be gone meanwhile or be one that
// dropInode could not drop.
func (fs *filesystem) flushOne(i *inode) error {
	fs.inodesMu.Lock()
	defer fs.inodesMu.Unlock()
	switch {
	case fs.inodes[i.ino] != i:
		return nil
	case i.refs > 0:
		return fs.flushInode(i)
	}
	fs.letGo(i)
	if i.get().Nlink > 0 && fs.inodes[i.ino] == i {
		return pages.ErrNoSpace
	}
	return nil
}
