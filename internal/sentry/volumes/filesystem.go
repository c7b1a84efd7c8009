package volumes

import (
	"sync"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/sentry/fsimpl/kernfs"
	"gvisor.dev/gvisor/pkg/sentry/kernel/auth"
	"gvisor.dev/gvisor/pkg/sentry/ktime"
	"gvisor.dev/gvisor/pkg/sentry/vfs"

	"ramet.dev/ramet/internal/engine/wire"
)

// Name is the name of the file system in mount(8).
const Name = "volume"

// rootIno is the number of a volume's root directory.
const rootIno = 1

// FilesystemType implements vfs.FilesystemType.
type FilesystemType struct{}

// Name implements vfs.FilesystemType.Name.
func (*FilesystemType) Name() string { return Name }

// Release implements vfs.FilesystemType.Release.
func (*FilesystemType) Release(context.Context) {}

// Source is the internal data of a mount. The guest cannot give one, so it cannot mount this type.
type Source struct {
	Client *Client // of the sentry
	Volume string  // id
}

// GetFilesystem implements vfs.FilesystemType.GetFilesystem. It does not ask the daemon.
func (t *FilesystemType) GetFilesystem(ctx context.Context, v *vfs.VirtualFilesystem, _ *auth.Credentials, _ string, opts vfs.GetFilesystemOptions) (*vfs.Filesystem, *vfs.Dentry, error) {
	source, ok := opts.InternalData.(Source)
	if !ok {
		return nil, nil, linuxerr.EPERM
	}
	minor, err := v.GetAnonBlockDevMinor()
	if err != nil {
		return nil, nil, err
	}
	fs := &filesystem{client: source.Client, volume: source.Volume, minor: minor, clock: ktime.RealtimeClockFromContext(ctx), inodes: map[uint64]*inode{}, dentries: dentries{list: map[*kernfs.Dentry]bool{}}}
	fs.paths.fs = fs
	fs.VFSFilesystem().Init(v, t, fs)
	now := fs.clock.Now().Nanoseconds()
	root := fs.get(&wire.VolumeAttr{Ino: rootIno, Mode: linux.S_IFDIR | 0o777, Nlink: 2, Atime: now, Mtime: now, Ctime: now})
	var d kernfs.Dentry
	d.InitRoot(&fs.Filesystem, root)
	return fs.VFSFilesystem(), d.VFSDentry(), nil
}

// tree has kernfs's methods, those of paths go before which.
type tree struct{ kernfs.Filesystem }

// filesystem implements vfs.FilesystemImpl.
type filesystem struct {
	paths
	tree
	client *Client // not saved: CtxClient
	volume string
	minor  uint32
	clock  ktime.Clock

	mu     sync.Mutex
	inodes map[uint64]*inode // those in use; guarded by mu

	dentries dentries
}

// call has an operation done, of which the caller closes no descriptor: it wants none.
func (fs *filesystem) call(req wire.VolumeCall) (*wire.VolumeAnswer, error) {
	req.Volume = fs.volume
	a, f, err := fs.client.call(&req)
	if f != nil {
		f.Close()
	}
	return a, err
}

// node has an operation done that answers with attributes, and returns the inode of those with a
// reference.
func (fs *filesystem) node(req wire.VolumeCall) (*inode, error) {
	a, err := fs.call(req)
	if err != nil {
		return nil, err
	}
	if a.Attr == nil {
		return nil, linuxerr.EIO
	}
	return fs.get(a.Attr), nil
}

// get returns the inode that has a, with a reference.
func (fs *filesystem) get(a *wire.VolumeAttr) *inode {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if i, ok := fs.inodes[a.Ino]; ok && i.TryIncRef() {
		i.note(a)
		return i
	}
	i := newInode(fs, a)
	fs.inodes[a.Ino] = i
	return i
}

// forget is called when nothing refers to i any more.
func (fs *filesystem) forget(i *inode) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if fs.inodes[i.attr.Ino] == i { // else somebody looked it up meanwhile
		delete(fs.inodes, i.attr.Ino)
	}
}

// Release implements vfs.FilesystemImpl.Release.
func (fs *filesystem) Release(ctx context.Context) {
	fs.VFSFilesystem().VirtualFilesystem().PutAnonBlockDevMinor(fs.minor)
	fs.Filesystem.Release(ctx)
}

// MountOptions implements vfs.FilesystemImpl.MountOptions.
func (*filesystem) MountOptions() string { return "" }

// statFS answers statfs(2).
func (fs *filesystem) statFS() (linux.Statfs, error) {
	const block = 4096
	// files is how many files a volume may hold at most, of nothing else.
	out := linux.Statfs{Type: 0x52616d65, BlockSize: block, FragmentSize: block, NameLength: linux.NAME_MAX}
	a, err := fs.call(wire.VolumeCall{Op: wire.VolumeUsage})
	if err != nil {
		return out, err
	}
	if u := a.Usage; u != nil {
		free := uint64(max(u.Limit-u.Used, 0))
		out.Blocks, out.BlocksFree, out.BlocksAvailable = uint64(u.Limit)/block, free/block, free/block
		out.FilesFree = free / (1024 + 128 + 1) // see package volume: a file, and its name
		out.Files = uint64(u.Nodes) + out.FilesFree
	}
	return out, nil
}
