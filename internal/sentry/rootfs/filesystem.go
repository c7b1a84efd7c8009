package rootfs

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/context"
	lerrors "gvisor.dev/gvisor/pkg/errors"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/fspath"
	"gvisor.dev/gvisor/pkg/log"
	"gvisor.dev/gvisor/pkg/sentry/fsutil"
	"gvisor.dev/gvisor/pkg/sentry/kernel/auth"
	"gvisor.dev/gvisor/pkg/sentry/ktime"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
	"gvisor.dev/gvisor/pkg/sentry/vfs"

	"ramet.dev/ramet/internal/storage/cowfs"
	"ramet.dev/ramet/internal/storage/pages"
)

// Name is what mount(8) shows.
const Name = "cowfs"

// Source is what a file system is made of. It takes over all of it.
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
// a *Source. The guest cannot give one, and cannot mount it.
func (t *FilesystemType) GetFilesystem(ctx context.Context, vfsObj *vfs.VirtualFilesystem, creds *auth.Credentials, _ string, opts vfs.GetFilesystemOptions) (*vfs.Filesystem, *vfs.Dentry, error) {
	src, ok := opts.InternalData.(*Source)
	if !ok {
		return nil, nil, linuxerr.EINVAL
	}
	minor, err := vfsObj.GetAnonBlockDevMinor()
	if err != nil {
		return nil, nil, err
	}
	fs := &filesystem{clock: ktime.RealtimeClockFromContext(ctx), devMinor: minor}
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
	vfsfs    vfs.Filesystem
	clock    ktime.Clock
	devMinor uint32
	root     *dentry
	// live are the inodes and dentries that a saved state has.
	live liveObjects

	// Below here nothing is saved.

	tree  *cowfs.FS
	files []*hostFile // of the tree's segments, in their order
	image *hostFile

	// mu protects names. What is looked up under it stays while it is held.
	mu sync.RWMutex
	// ancestryMu protects parents and names of dentries for those who do not
	// hold mu. Who writes them holds both.
	ancestryMu sync.RWMutex

	// cacheMu protects all dentry.children.
	cacheMu  sync.Mutex
	cached   atomic.Int64 // dentries in memory
	sweepAt  atomic.Int64 // how many there may be
	inodesMu sync.Mutex
	inodes   map[cowfs.Ino]*inode

	dirtyMu sync.Mutex
	dirty   map[*inode]struct{}

	// moveMu is held for reading from when pages of a mapped file are moved or
	// freed until its mappings are told; what is freed meanwhile waits in limbo.
	moveMu sync.RWMutex

	// refsMu protects the references that address spaces have on pages of our
	// own, and what was freed while it had some.
	refsMu  sync.Mutex
	refs    fsutil.FrameRefSet
	moving  int
	zombies []freed
}

// freed are pages that the tree gave up while they may still be mapped.
type freed struct {
	page pages.Page
	n    int
	born uint32
}

// manyDentries is how many unused dentries are kept before they are swept.
const manyDentries = 8192

// attach gives the file system its tree, when it is new or restored.
func (fs *filesystem) attach(src *Source) {
	fs.tree = src.Tree
	fs.image = &hostFile{fs: fs, file: src.Image, image: src.Bytes}
	for _, s := range src.Tree.Store().Segments() {
		fs.files = append(fs.files, &hostFile{fs: fs, file: s.File})
	}
	// A store whose own file is still empty has no segment of it.
	fs.files = append(fs.files[:inherited(src)], &hostFile{fs: fs, file: src.Own, own: true})
	fs.inodes = map[cowfs.Ino]*inode{}
	fs.dirty = map[*inode]struct{}{}
	fs.sweepAt.Store(manyDentries)
	fs.tree.OnFree(fs.onFree)
}

func inherited(src *Source) int {
	segments := src.Tree.Store().Segments()
	if n := len(segments); n > 0 && segments[n-1].File == src.Own {
		return n - 1
	}
	return len(segments)
}

func (fs *filesystem) makeRoot() error {
	ino := fs.tree.Root()
	if _, _, err := fs.tree.Attr(ino); errors.Is(err, cowfs.ErrNotExist) {
		// There is no image.
		now := fs.now()
		a := cowfs.Attr{Mode: linux.S_IFDIR | 0o755, Nlink: 2, Atime: now, Mtime: now, Ctime: now, Btime: now}
		if err := fs.tree.SetAttr(fs.tree.NewIno(), &a); err != nil {
			return err
		}
	}
	i, err := fs.inode(ino)
	if err != nil {
		return err
	}
	fs.root = fs.newDentry(i)
	fs.root.refs.Store(2) // the mount's, and ours
	return nil
}

// Release implements vfs.FilesystemImpl.Release.
func (fs *filesystem) Release(ctx context.Context) {
	fs.vfsfs.VirtualFilesystem().PutAnonBlockDevMinor(fs.devMinor)
}

// Sync implements vfs.FilesystemImpl.Sync. Nothing survives the sandbox but
// snapshots, which write out what they need.
func (fs *filesystem) Sync(context.Context) error { return nil }

// MountOptions implements vfs.FilesystemImpl.MountOptions.
func (fs *filesystem) MountOptions() string { return "" }

// Pin makes the files as they are now immutable until Release, and returns what a
// child or a reader needs to open them. Whoever has them mapped writably loses the
// mappings and faults them in again.
func Pin(fsfs *vfs.Filesystem, id string) (cowfs.State, []pages.Segment, error) {
	fs := fsfs.Impl().(*filesystem)
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if err := fs.flush(); err != nil {
		return cowfs.State{}, nil, err
	}
	state, segments, err := fs.tree.Pin(id)
	if err != nil {
		return cowfs.State{}, nil, err
	}
	fs.inodesMu.Lock()
	all := make([]*inode, 0, len(fs.inodes))
	for _, i := range fs.inodes {
		all = append(all, i)
	}
	fs.inodesMu.Unlock()
	for _, i := range all {
		i.invalidateAll()
	}
	return state, segments, nil
}

// Release drops a pin.
func Release(fsfs *vfs.Filesystem, id string) {
	fs := fsfs.Impl().(*filesystem)
	fs.moveMu.Lock()
	defer fs.moveMu.Unlock()
	fs.tree.Release(id)
}

// Trim gives back the space that no pin needs. The file system must not be used any
// more.
func Trim(fsfs *vfs.Filesystem) error { return Tree(fsfs).Trim() }

// Tree returns the tree of a file system of this package.
func Tree(fsfs *vfs.Filesystem) *cowfs.FS { return fsfs.Impl().(*filesystem).tree }

func (fs *filesystem) now() int64 { return fs.clock.Now().Nanoseconds() }

// errno makes an error of the tree one that a guest may see.
func errno(err error) error {
	var host unix.Errno
	switch {
	case err == nil:
		return nil
	case errors.Is(err, pages.ErrNoSpace):
		return linuxerr.ENOSPC
	case errors.As(err, new(*lerrors.Error)):
		return err
	case errors.As(err, &host):
		return linuxerr.ErrorFromUnix(host)
	}
	log.Warningf("File system: %v", err)
	return linuxerr.EIO
}

// statfs answers statfs(2). Without a limit the numbers are a tebibyte's.
func (fs *filesystem) statfs() linux.Statfs {
	s := fs.tree.Space()
	if s.Limit == 0 {
		s.Limit = 1 << 28
		s.Free = max(0, s.Limit-s.Used)
	}
	return linux.Statfs{
		Type: linux.OVERLAYFS_SUPER_MAGIC, BlockSize: pages.PageSize, FragmentSize: pages.PageSize, NameLength: linux.NAME_MAX,
		// As on other file systems, some of what is free is not for everybody.
		Blocks: uint64(s.Limit), BlocksFree: uint64(max(0, s.Limit-s.Used)), BlocksAvailable: uint64(s.Free),
		Files: 1 << 32, FilesFree: 1 << 31,
	}
}

// step resolves one component of a path. It returns whether it followed a
// symbolic link. fs.mu must be held.
func (fs *filesystem) step(ctx context.Context, rp *vfs.ResolvingPath, d *dentry) (*dentry, bool, error) {
	if !d.inode.isDir() {
		return nil, false, linuxerr.ENOTDIR
	}
	if err := d.inode.check(rp.Credentials(), vfs.MayExec); err != nil {
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
	child, err := fs.child(d, name)
	if err != nil {
		return nil, false, err
	}
	if child == nil {
		return nil, false, linuxerr.ENOENT
	}
	if err := rp.CheckMount(ctx, &child.vfsd); err != nil {
		return nil, false, err
	}
	if child.inode.isLink() && rp.ShouldFollowSymlink() {
		target, err := child.inode.readlink(rp.Mount())
		if err != nil {
			return nil, false, err
		}
		followed, err := rp.HandleSymlink(target)
		return d, followed, err
	}
	rp.Advance()
	return child, false, nil
}

// parentOf resolves all but the last component. fs.mu must be held.
func (fs *filesystem) parentOf(ctx context.Context, rp *vfs.ResolvingPath, d *dentry) (*dentry, error) {
	for !rp.Final() {
		next, _, err := fs.step(ctx, rp, d)
		if err != nil {
			return nil, err
		}
		d = next
	}
	if !d.inode.isDir() {
		return nil, linuxerr.ENOTDIR
	}
	return d, nil
}

// resolve resolves a path to what exists there. fs.mu must be held.
func (fs *filesystem) resolve(ctx context.Context, rp *vfs.ResolvingPath) (*dentry, error) {
	d := rp.Start().Impl().(*dentry)
	if rp.Done() && d.inode.isLink() && rp.ShouldFollowSymlink() {
		target, err := d.inode.readlink(rp.Mount())
		if err != nil {
			return nil, err
		}
		if _, err := rp.HandleSymlink(target); err != nil {
			return nil, err
		}
	}
	for !rp.Done() {
		next, _, err := fs.step(ctx, rp, d)
		if err != nil {
			return nil, err
		}
		d = next
	}
	if rp.MustBeDir() && !d.inode.isDir() {
		return nil, linuxerr.ENOTDIR
	}
	return d, nil
}

// at resolves a path and calls fn on what is there, with names locked.
func (fs *filesystem) at(ctx context.Context, rp *vfs.ResolvingPath, fn func(*dentry) error) error {
	fs.sweepIfMany(ctx)
	fs.mu.RLock()
	defer fs.mu.RUnlock()
	d, err := fs.resolve(ctx, rp)
	if err != nil {
		return err
	}
	return fn(d)
}

// AccessAt implements vfs.FilesystemImpl.AccessAt.
func (fs *filesystem) AccessAt(ctx context.Context, rp *vfs.ResolvingPath, creds *auth.Credentials, ats vfs.AccessTypes) error {
	return fs.at(ctx, rp, func(d *dentry) error {
		if err := d.inode.check(creds, ats); err != nil {
			return err
		}
		if ats.MayWrite() && rp.Mount().ReadOnly() {
			return linuxerr.EROFS
		}
		return nil
	})
}

// GetDentryAt implements vfs.FilesystemImpl.GetDentryAt.
func (fs *filesystem) GetDentryAt(ctx context.Context, rp *vfs.ResolvingPath, opts vfs.GetDentryOptions) (*vfs.Dentry, error) {
	var found *dentry
	err := fs.at(ctx, rp, func(d *dentry) error {
		if opts.CheckSearchable {
			if !d.inode.isDir() {
				return linuxerr.ENOTDIR
			}
			if err := d.inode.check(rp.Credentials(), vfs.MayExec); err != nil {
				return err
			}
		}
		d.IncRef()
		found = d
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &found.vfsd, nil
}

// GetParentDentryAt implements vfs.FilesystemImpl.GetParentDentryAt.
func (fs *filesystem) GetParentDentryAt(ctx context.Context, rp *vfs.ResolvingPath) (*vfs.Dentry, error) {
	fs.mu.RLock()
	defer fs.mu.RUnlock()
	d, err := fs.parentOf(ctx, rp, rp.Start().Impl().(*dentry))
	if err != nil {
		return nil, err
	}
	if err := d.inode.check(rp.Credentials(), vfs.MayExec); err != nil {
		return nil, err
	}
	d.IncRef()
	return &d.vfsd, nil
}

// ReadlinkAt implements vfs.FilesystemImpl.ReadlinkAt.
func (fs *filesystem) ReadlinkAt(ctx context.Context, rp *vfs.ResolvingPath) (target string, err error) {
	err = fs.at(ctx, rp, func(d *dentry) error {
		if !d.inode.isLink() {
			return linuxerr.EINVAL
		}
		target, err = d.inode.readlink(rp.Mount())
		return err
	})
	return target, err
}

// StatFSAt implements vfs.FilesystemImpl.StatFSAt.
func (fs *filesystem) StatFSAt(ctx context.Context, rp *vfs.ResolvingPath) (st linux.Statfs, err error) {
	err = fs.at(ctx, rp, func(*dentry) error {
		st = fs.statfs()
		return nil
	})
	return st, err
}

// PrependPath implements vfs.FilesystemImpl.PrependPath.
func (fs *filesystem) PrependPath(_ context.Context, vfsroot, vd vfs.VirtualDentry, b *fspath.Builder) error {
	d := vd.Dentry().Impl().(*dentry)
	fs.ancestryMu.RLock()
	defer fs.ancestryMu.RUnlock()
	if d != fs.root && d.parent.Load() == nil { // from O_TMPFILE
		b.PrependComponent(fmt.Sprintf("/#%d", d.inode.ino))
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

// onFree decides about pages that the tree gives up, see cowfs.FS.OnFree.
func (fs *filesystem) onFree(p pages.Page, n int, born uint32) bool {
	fs.refsMu.Lock()
	defer fs.refsMu.Unlock()
	if fs.moving == 0 && fs.refs.IsEmptyRange(pageRange(p, n)) {
		return false
	}
	fs.zombies = append(fs.zombies, freed{p, n, born})
	return true
}

// beginMove is called before pages of a mapped file are moved or freed, and endMove
// when its mappings were told. In between no page is used again, since an address
// space may be about to map it.
func (fs *filesystem) beginMove() {
	fs.moveMu.RLock()
	fs.refsMu.Lock()
	fs.moving++
	fs.refsMu.Unlock()
}

func (fs *filesystem) endMove() {
	fs.refsMu.Lock()
	fs.moving--
	gone := fs.unmapped()
	fs.refsMu.Unlock()
	fs.moveMu.RUnlock()
	fs.free(gone)
}

// unmapped takes those zombies that nobody maps. fs.refsMu must be locked.
func (fs *filesystem) unmapped() []freed {
	if fs.moving > 0 || len(fs.zombies) == 0 {
		return nil
	}
	var gone []freed
	kept := fs.zombies[:0]
	for _, z := range fs.zombies {
		if fs.refs.IsEmptyRange(pageRange(z.page, z.n)) {
			gone = append(gone, z)
		} else {
			kept = append(kept, z)
		}
	}
	fs.zombies = kept
	return gone
}

func (fs *filesystem) free(gone []freed) {
	for _, z := range gone {
		fs.tree.Free(z.page, z.n, z.born)
	}
}

func pageRange(p pages.Page, n int) memmap.FileRange {
	return memmap.FileRange{Start: uint64(p) * pages.PageSize, End: (uint64(p) + uint64(n)) * pages.PageSize}
}
