package rootfs

import (
	"sync"
	"sync/atomic"

	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/sentry/vfs"

	"ramet.dev/ramet/internal/sentry/rootfs/inode"
)

// names has the dentries of a file system that are in memory, and the locks that protect
// them.
type names struct {
	table *inode.Table
	root  *dentry
	// live are the dentries below root while a state is saved or restored.
	live []*dentry

	// Below here nothing is saved.

	// mu protects names. A dentry that was looked up under it stays while it is held.
	mu sync.RWMutex
	// ancestryMu protects parents and names of dentries for readers that do not hold mu. A
	// writer holds both.
	ancestryMu sync.RWMutex

	// cacheMu protects all dentry.children.
	cacheMu sync.Mutex
	cached  atomic.Int64 // dentries in memory
	sweepAt atomic.Int64 // the number of dentries at which they are swept
}

// manyDentries is the number of unused dentries that are kept before they are swept.
const manyDentries = 8192

// newDentry makes a dentry without users. It takes over a reference on i.
func (n *names) newDentry(i *inode.Inode) *dentry {
	d := &dentry{names: n, inode: i}
	d.vfsd.Init(d)
	return d
}

// sweepIfMany drops unused dentries if there are many. No lock may be held.
func (n *names) sweepIfMany(ctx context.Context) {
	if n.cached.Load() <= n.sweepAt.Load() {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.sweep(ctx)
	// Dentries in use stay; the next sweep comes when there are as many unused again.
	n.sweepAt.Store(n.cached.Load() + manyDentries)
}

// sweep drops all unused dentries. n.mu must be locked.
func (n *names) sweep(ctx context.Context) { n.root.sweepBelow(ctx) }

// The functions below resolve paths. names.mu must be held.

// startOf returns where a path begins.
func startOf(rp *vfs.ResolvingPath) *dentry { return rp.Start().Impl().(*dentry) }

// resolve resolves a path to the file there.
func resolve(ctx context.Context, rp *vfs.ResolvingPath) (*dentry, error) {
	d := startOf(rp)
	if rp.Done() && d.inode.IsLink() && rp.ShouldFollowSymlink() {
		target, err := d.inode.Readlink(rp.Mount())
		if err != nil {
			return nil, err
		}
		if _, err := rp.HandleSymlink(target); err != nil {
			return nil, err
		}
	}
	for !rp.Done() {
		next, _, err := step(ctx, rp, d)
		if err != nil {
			return nil, err
		}
		d = next
	}
	if rp.MustBeDir() && !d.inode.IsDir() {
		return nil, linuxerr.ENOTDIR
	}
	return d, nil
}

// resolveParent resolves all but the last component of a path that goes on at d.
func resolveParent(ctx context.Context, rp *vfs.ResolvingPath, d *dentry) (*dentry, error) {
	for !rp.Final() {
		next, _, err := step(ctx, rp, d)
		if err != nil {
			return nil, err
		}
		d = next
	}
	if !d.inode.IsDir() {
		return nil, linuxerr.ENOTDIR
	}
	return d, nil
}

// step resolves one component of a path. It returns whether it followed a symbolic link.
func step(ctx context.Context, rp *vfs.ResolvingPath, d *dentry) (*dentry, bool, error) {
	if !d.inode.IsDir() {
		return nil, false, linuxerr.ENOTDIR
	}
	if err := d.inode.Check(rp.Credentials(), vfs.MayExec); err != nil {
		return nil, false, err
	}
	name := rp.Component()
	switch name {
	case ".":
		rp.Advance()
		return d, false, nil
	case "..":
		parent := d.parent.Load()
		if atRoot, err := rp.CheckRoot(ctx, &d.vfsd); err != nil {
			return nil, false, err
		} else if atRoot || parent == nil {
			rp.Advance()
			return d, false, nil
		}
		if err := rp.CheckMount(ctx, &parent.vfsd); err != nil {
			return nil, false, err
		}
		rp.Advance()
		return parent, false, nil
	}
	child, err := d.child(name)
	if err != nil {
		return nil, false, err
	}
	if child == nil {
		return nil, false, linuxerr.ENOENT
	}
	if err := rp.CheckMount(ctx, &child.vfsd); err != nil {
		return nil, false, err
	}
	if child.inode.IsLink() && rp.ShouldFollowSymlink() {
		target, err := child.inode.Readlink(rp.Mount())
		if err != nil {
			return nil, false, err
		}
		followed, err := rp.HandleSymlink(target)
		return d, followed, err
	}
	rp.Advance()
	return child, false, nil
}
