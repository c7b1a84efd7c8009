package volumes

import (
	"reflect"
	"sync"

	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/sentry/fsimpl/kernfs"
)

// kernfs keeps names in memory: a reference of the tree is on each name that was made or looked
// up, until it is removed or found to be no longer right. Of a volume only those are kept that
// something else refers to, because a save writes all that are in memory. The others are dropped
// when no operation on a path is under way, so that nobody is about to refer to them.

// dentries are the names that are in memory.
//
// Lock order: opsMu, kernfs's, listMu.
type dentries struct {
	opsMu sync.Mutex // held while names are dropped
	ops   int        // operations on paths under way; guarded by opsMu

	listMu sync.Mutex
	list   map[*kernfs.Dentry]bool
}

// begin is called before an operation on a path, and end after it.
func (t *dentries) begin() {
	t.opsMu.Lock()
	defer t.opsMu.Unlock()
	t.ops++
}

func (t *dentries) end(ctx context.Context) {
	t.opsMu.Lock()
	defer t.opsMu.Unlock()
	t.ops--
	if t.ops > 0 {
		return
	}
	for dropped := true; dropped; { // a directory has a reference for each name in it
		dropped = false
		for _, d := range t.all() {
			// The root has no parent, and a name that was removed no reference of the tree.
			if refsOf(d) == 1 && d.Parent() != nil && d.Inode().Watches().Size() == 0 && !d.VFSDentry().IsDead() {
				d.DecRef(ctx)
				dropped = true
			}
		}
	}
}

func (t *dentries) all() []*kernfs.Dentry {
	t.listMu.Lock()
	defer t.listMu.Unlock()
	all := make([]*kernfs.Dentry, 0, len(t.list))
	for d := range t.list {
		all = append(all, d)
	}
	return all
}

// refsOf returns the number of references on d, which gVisor does not tell: TestCanaryRefs.
func refsOf(d *kernfs.Dentry) int64 {
	return reflect.ValueOf(d).Elem().FieldByName("refs").FieldByName("value").Int()
}

// RegisterDentry implements kernfs.Inode.RegisterDentry.
func (i *inode) RegisterDentry(d *kernfs.Dentry) {
	t := &i.fs.dentries
	t.listMu.Lock()
	defer t.listMu.Unlock()
	t.list[d] = true
}

// UnregisterDentry implements kernfs.Inode.UnregisterDentry.
func (i *inode) UnregisterDentry(d *kernfs.Dentry) {
	t := &i.fs.dentries
	t.listMu.Lock()
	defer t.listMu.Unlock()
	delete(t.list, d)
}
