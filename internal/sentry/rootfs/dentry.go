package rootfs

import (
	"sync/atomic"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/sentry/kernel/auth"
	"gvisor.dev/gvisor/pkg/sentry/vfs"

	"ramet.dev/ramet/internal/sentry/rootfs/inode"
)

// dentry implements vfs.DentryImpl: a name of an inode. It holds a reference on
// its parent.
type dentry struct {
	vfsd  vfs.Dentry
	names *names
	inode *inode.Inode
	// refs counts users. At 0 a dentry stays until it is swept, if it is among the
	// children of its parent; otherwise it is destroyed. Then refs is -1.
	refs atomic.Int64
	// parent and name are protected by names.mu and names.ancestryMu. parent is nil
	// for the root and for files that never had a name.
	parent atomic.Pointer[dentry]
	name   string
	// unlinked is set, with names.mu locked, when the dentry is removed from the
	// children of its parent.
	unlinked atomic.Bool
	// children has the children that are in memory. Protected by names.cacheMu.
	children map[string]*dentry
}

// child returns the child called name, or nil. names.mu must be held.
func (d *dentry) child(name string) (*dentry, error) {
	if len(name) > linux.NAME_MAX {
		return nil, linuxerr.ENAMETOOLONG
	}
	n := d.names
	n.cacheMu.Lock()
	c := d.children[name]
	n.cacheMu.Unlock()
	if c != nil {
		return c, nil
	}
	e, ok, err := n.table.Tree().Lookup(d.inode.Ino(), name)
	if err != nil || !ok {
		return nil, inode.Errno(err)
	}
	i, err := n.table.Get(e.Ino)
	if err != nil {
		return nil, inode.Errno(err)
	}
	c = n.newDentry(i)
	n.cacheMu.Lock()
	defer n.cacheMu.Unlock()
	if other := d.children[name]; other != nil {
		i.DecRef(nil) // not the last reference: other has one
		return other, nil
	}
	d.adoptLocked(c, name)
	return c, nil
}

// adopt makes c, which has no parent, a child of d. names.mu must be locked.
func (d *dentry) adopt(c *dentry, name string) {
	d.names.cacheMu.Lock()
	defer d.names.cacheMu.Unlock()
	d.adoptLocked(c, name)
}

func (d *dentry) adoptLocked(c *dentry, name string) {
	n := d.names
	n.ancestryMu.Lock()
	c.parent.Store(d)
	c.name = name
	n.ancestryMu.Unlock()
	d.refs.Add(1)
	d.put(c, name)
	n.cached.Add(1)
}

func (d *dentry) put(c *dentry, name string) {
	if d.children == nil {
		d.children = map[string]*dentry{}
	}
	d.children[name] = c
}

// move gives d another parent and name. names.mu must be locked.
func (d *dentry) move(to *dentry, name string) {
	n, from := d.names, d.parent.Load()
	n.cacheMu.Lock()
	defer n.cacheMu.Unlock()
	if from.children[d.name] == d {
		delete(from.children, d.name)
	}
	to.put(d, name)
	n.ancestryMu.Lock()
	d.parent.Store(to)
	d.name = name
	n.ancestryMu.Unlock()
	to.refs.Add(1)
	from.refs.Add(-1) // not the last: the caller uses from
}

// orphan removes d from the children of its parent. d keeps its parent, for "..", and
// the reference on it. names.mu must be locked.
func (d *dentry) orphan() {
	n := d.names
	n.cacheMu.Lock()
	delete(d.parent.Load().children, d.name)
	n.cacheMu.Unlock()
	n.cached.Add(-1)
	d.unlinked.Store(true)
}

// sweepBelow drops all unused dentries below d. names.mu must be locked.
func (d *dentry) sweepBelow(ctx context.Context) {
	n := d.names
	n.cacheMu.Lock()
	children := make([]*dentry, 0, len(d.children))
	for _, c := range d.children {
		children = append(children, c)
	}
	n.cacheMu.Unlock()
	for _, c := range children {
		c.sweepBelow(ctx)
		if c.inode.Remembers() || !c.refs.CompareAndSwap(0, -1) {
			continue
		}
		n.cacheMu.Lock()
		delete(d.children, c.name)
		n.cacheMu.Unlock()
		n.cached.Add(-1)
		c.inode.DecRef(ctx)
		d.refs.Add(-1) // d itself is looked at by the caller
	}
}

// isBelow returns whether d is top or below it. names.ancestryMu or names.mu must be held.
func (d *dentry) isBelow(top *dentry) bool {
	for ; d != nil; d = d.parent.Load() {
		if d == top {
			return true
		}
	}
	return false
}

// mayDelete checks whether child may be removed from directory d.
func (d *dentry) mayDelete(creds *auth.Credentials, child *dentry) error {
	if err := d.inode.Check(creds, vfs.MayWrite|vfs.MayExec); err != nil {
		return err
	}
	a, c := d.inode.Attr(), child.inode.Attr()
	return vfs.CheckDeleteSticky(creds, linux.FileMode(a.Mode), auth.KUID(a.UID), auth.KUID(c.UID), auth.KGID(c.GID))
}

// note records in the tree where a file of the image is, and all directories above it,
// before the file changes: a diff finds its path by that. It fails if there is no room for
// a new record, nor for attributes. names.mu must be held.
func (d *dentry) note() error { return d.noteIf(d.names.table.Tree().Room) }

// noteRemoval is note for a file that is removed: there must be room for that. names.mu must
// be held.
func (d *dentry) noteRemoval() error { return d.noteIf(func(int) error { return nil }) }

func (d *dentry) noteIf(room func(bytes int) error) error {
	for parent := d.parent.Load(); parent != nil && d.inode.Ino().OfImage() && !d.inode.Noted.Load(); parent = d.parent.Load() {
		if err := d.names.table.Tree().NoteParent(d.inode.Ino(), parent.inode.Ino(), d.name, room); err != nil {
			return inode.Errno(err)
		}
		d.inode.Noted.Store(true)
		d = parent
	}
	return nil
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

// destroy ends a dentry that has no users and that cannot be found any more.
func (d *dentry) destroy(ctx context.Context) {
	if !d.refs.CompareAndSwap(0, -1) {
		return // it is destroyed by another goroutine
	}
	d.inode.DecRef(ctx)
	if parent := d.parent.Load(); parent != nil {
		parent.DecRef(ctx)
	}
}

// InotifyWithParent implements vfs.DentryImpl.InotifyWithParent.
func (d *dentry) InotifyWithParent(ctx context.Context, events, cookie uint32, et vfs.EventType) {
	if d.inode.IsDir() {
		events |= linux.IN_ISDIR
	}
	deleted := d.vfsd.IsDead()
	d.names.ancestryMu.RLock()
	defer d.names.ancestryMu.RUnlock()
	if parent := d.parent.Load(); parent != nil {
		parent.inode.Watches.Notify(ctx, d.name, events, cookie, et, deleted)
	}
	d.inode.Watches.Notify(ctx, "", events, cookie, et, deleted)
}

// Watches implements vfs.DentryImpl.Watches.
func (d *dentry) Watches() *vfs.Watches { return &d.inode.Watches }

// OnZeroWatches implements vfs.DentryImpl.OnZeroWatches.
func (d *dentry) OnZeroWatches(context.Context) {}
