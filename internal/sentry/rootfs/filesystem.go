package rootfs

import (
	"errors"
	"fmt"
	"os"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/fspath"
	"gvisor.dev/gvisor/pkg/sentry/kernel/auth"
	"gvisor.dev/gvisor/pkg/sentry/ktime"
	"gvisor.dev/gvisor/pkg/sentry/vfs"

	"ramet.dev/ramet/internal/sentry/rootfs/inode"
	"ramet.dev/ramet/internal/storage/cowfs"
	"ramet.dev/ramet/internal/storage/pages"
)

// Name is the name of the file system in mount(8).
const Name = "cowfs"

// Source is what a file system is made of. The file system takes over all of it.
type Source struct {
	Tree *cowfs.FS
	// Own is the file of the tree's own pages.
	Own *os.File
	// Image is the descriptor of the image below Tree, which Bytes maps.
	Image *os.File
	Bytes []byte
}

// FilesystemType implements vfs.FilesystemType.
type FilesystemType struct{}

// Name implements vfs.FilesystemType.Name.
func (*FilesystemType) Name() string { return Name }

// Release implements vfs.FilesystemType.Release.
func (*FilesystemType) Release(context.Context) {}

// GetFilesystem implements vfs.FilesystemType.GetFilesystem: its internal data is
// a *Source. The guest cannot give a *Source, so it cannot mount this type.
func (t *FilesystemType) GetFilesystem(ctx context.Context, vfsObj *vfs.VirtualFilesystem, creds *auth.Credentials, _ string, opts vfs.GetFilesystemOptions) (*vfs.Filesystem, *vfs.Dentry, error) {
	src, ok := opts.InternalData.(*Source)
	if !ok {
		return nil, nil, linuxerr.EINVAL
	}
	minor, err := vfsObj.GetAnonBlockDevMinor()
	if err != nil {
		return nil, nil, err
	}
	fs := &filesystem{}
	fs.names = &names{table: inode.NewTable(ktime.RealtimeClockFromContext(ctx), minor)}
	fs.attach(src)
	fs.vfsfs.Init(vfsObj, t, fs)
	if err := fs.makeRoot(); err != nil {
		fs.vfsfs.DecRef(ctx)
		return nil, nil, err
	}
	return &fs.vfsfs, &fs.root.vfsd, nil
}

// filesystem implements vfs.FilesystemImpl.
type filesystem struct {
	vfsfs vfs.Filesystem
	fileOps
}

// attach gives the file system its tree, when it is new or restored.
func (fs *filesystem) attach(src *Source) {
	fs.table.Attach(src.Tree, src.Own, src.Image, src.Bytes)
	fs.sweepAt.Store(manyDentries)
}

func (fs *filesystem) makeRoot() error {
	tree := fs.table.Tree()
	ino := tree.Root()
	if _, _, err := tree.Attr(ino); errors.Is(err, cowfs.ErrNotExist) {
		// There is no image.
		now := fs.table.Now()
		a := cowfs.Attr{Mode: linux.S_IFDIR | 0o755, Nlink: 2, Atime: now, Mtime: now, Ctime: now, Btime: now}
		if err := tree.SetAttr(tree.NewIno(), &a); err != nil {
			return err
		}
	}
	i, err := fs.table.Get(ino)
	if err != nil {
		return err
	}
	fs.root = fs.newDentry(i)
	fs.root.refs.Store(2) // the mount's, and ours
	return nil
}

// Release implements vfs.FilesystemImpl.Release.
func (fs *filesystem) Release(ctx context.Context) {
	fs.vfsfs.VirtualFilesystem().PutAnonBlockDevMinor(fs.table.DevMinor())
}

// Sync implements vfs.FilesystemImpl.Sync. Nothing survives the sandbox but
// snapshots, which write out what they need.
func (fs *filesystem) Sync(context.Context) error { return nil }

// MountOptions implements vfs.FilesystemImpl.MountOptions.
func (fs *filesystem) MountOptions() string { return "" }

// PrependPath implements vfs.FilesystemImpl.PrependPath.
func (fs *filesystem) PrependPath(_ context.Context, vfsroot, vd vfs.VirtualDentry, b *fspath.Builder) error {
	d := vd.Dentry().Impl().(*dentry)
	fs.ancestryMu.RLock()
	defer fs.ancestryMu.RUnlock()
	if d != fs.root && d.parent.Load() == nil { // from O_TMPFILE
		b.PrependComponent(fmt.Sprintf("/#%d", d.inode.Ino()))
		b.AppendString(" (deleted)")
		return vfs.PrependPathSyntheticError{}
	}
	for mnt := vd.Mount(); ; {
		if mnt == vfsroot.Mount() && &d.vfsd == vfsroot.Dentry() {
			return vfs.PrependPathAtVFSRootError{}
		}
		if mnt != nil && &d.vfsd == mnt.Root() {
			return nil
		}
		parent := d.parent.Load()
		if parent == nil {
			return vfs.PrependPathAtNonMountRootError{}
		}
		b.PrependComponent(d.name)
		d = parent
	}
}

// IsDescendant implements vfs.FilesystemImpl.IsDescendant.
func (fs *filesystem) IsDescendant(vfsroot, vd vfs.VirtualDentry) bool {
	fs.ancestryMu.RLock()
	defer fs.ancestryMu.RUnlock()
	top, ok := vfsroot.Dentry().Impl().(*dentry)
	return ok && vd.Dentry().Impl().(*dentry).isBelow(top)
}

// Pin makes the files as they are now immutable until Release, and returns what a child or a
// reader needs to open them. An address space that has a file mapped writably loses the
// mappings and faults them in again.
func Pin(fsfs *vfs.Filesystem, id string) (cowfs.State, []pages.Segment, error) {
	fs := fsfs.Impl().(*filesystem)
	fs.mu.Lock()
	defer fs.mu.Unlock()
	return fs.table.Pin(id)
}

// Release drops a pin.
func Release(fsfs *vfs.Filesystem, id string) { fsfs.Impl().(*filesystem).table.Release(id) }

// Trim gives back the space that no pin needs. The file system must not be used any
// more.
func Trim(fsfs *vfs.Filesystem) error { return Tree(fsfs).Trim() }

// Tree returns the tree of a file system of this package.
func Tree(fsfs *vfs.Filesystem) *cowfs.FS { return fsfs.Impl().(*filesystem).table.Tree() }
