package volumes

import (
	"sync/atomic"

	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/sentry/fsimpl/kernfs"
	"gvisor.dev/gvisor/pkg/sentry/kernel/pipe"
	"gvisor.dev/gvisor/pkg/sentry/vfs"

	"ramet.dev/ramet/internal/engine/wire"
)

// inode is a file that is in use: it implements kernfs.Inode and, if it is regular,
// memmap.Mappable. There is one for each file.
type inode struct {
	kernfs.InodeNotAnonymous
	kernfs.InodeWatches
	directory
	refs atomic.Int64
	// held says that the daemon may keep the file without a name, until it is forgotten.
	held  atomic.Bool
	locks vfs.FileLocks

	// fifo is that of a named pipe, once it was opened: processes of this sandbox meet there.
	fifo *pipe.VFSPipe
}

func newInode(fs *filesystem, a *wire.VolumeAttr) *inode {
	i := &inode{}
	i.fs, i.attr = fs, *a
	i.refs.Store(1)
	return i
}

// IncRef implements kernfs.Inode.IncRef.
func (i *inode) IncRef() { i.refs.Add(1) }

// TryIncRef implements kernfs.Inode.TryIncRef.
func (i *inode) TryIncRef() bool {
	for {
		n := i.refs.Load()
		if n <= 0 {
			return false
		}
		if i.refs.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// DecRef implements kernfs.Inode.DecRef.
func (i *inode) DecRef(context.Context) {
	if i.refs.Add(-1) != 0 {
		return
	}
	i.fs.forget(i)
	if i.held.Load() {
		// If it fails, the daemon forgets it with the sandbox.
		_, _ = i.fs.call(wire.VolumeCall{Op: wire.VolumeForget, Ino: i.attr.Ino})
	}
	i.close()
}

// Keep implements kernfs.Inode.Keep: kernfs keeps names until they are dropped, see dentries.
func (*inode) Keep() bool { return true }

// Valid implements kernfs.Inode.Valid: whether the name still leads to this file.
func (i *inode) Valid(_ context.Context, parent *kernfs.Dentry, name string) bool {
	dir, ok := parent.Inode().(*inode)
	if !ok {
		return false
	}
	a, err := i.fs.call(wire.VolumeCall{Op: wire.VolumeLookup, Ino: dir.attr.Ino, Name: []byte(name)})
	if err != nil || a.Attr == nil || a.Attr.Ino != i.attr.Ino {
		return false
	}
	i.note(a.Attr)
	return true
}

// beginRemoval returns whether the file is open, and then notes that it may lose its last name.
func (i *inode) beginRemoval() bool {
	i.filesMu.Lock()
	defer i.filesMu.Unlock()
	if i.data == nil {
		return false
	}
	i.held.Store(true)
	return true
}
