package rootfs

import (
	"strings"
	"sync"
	"sync/atomic"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/sentry/kernel/auth"
	"gvisor.dev/gvisor/pkg/sentry/kernel/pipe"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
	"gvisor.dev/gvisor/pkg/sentry/socket/unix/transport"
	"gvisor.dev/gvisor/pkg/sentry/vfs"

	"ramet.dev/ramet/internal/storage/cowfs"
	"ramet.dev/ramet/internal/storage/pages"
)

// inode is a file of any kind, while it is in memory.
type inode struct {
	fs  *filesystem
	ino cowfs.Ino
	// refs counts dentries. Protected by fs.inodesMu.
	refs int
	// noted says that fs.note is done for it.
	noted atomic.Bool

	// mu makes writes, truncations and changes of attributes one after another.
	mu sync.Mutex

	// attrMu protects attr, and stored: something may be mapped that was stored to, see
	// Translate. mode is a copy of attr.Mode that is read without.
	attrMu sync.Mutex
	attr   cowfs.Attr
	stored bool
	mode   atomic.Uint32
	// noCaps says that there is no security.capability.
	noCaps atomic.Bool
	// nameless says that the file may never get a name, see O_TMPFILE in open(2).
	nameless atomic.Bool

	// mapsMu protects mappings, and writable: how many pages shared and writable
	// mappings have.
	mapsMu   sync.Mutex
	mappings memmap.MappingSet
	writable atomic.Int64
	mapped   atomic.Bool // mappings was ever used
	saved    string      // mappings in a saved state, and while one is made: see savemaps.go
	// translated is whether anything may be mapped: Translate was called since
	// invalidateAll. Not saved, as that comes before.
	translated atomic.Bool

	locks   vfs.FileLocks
	watches vfs.Watches
	// pipe is set for fifos, endpoint for bound sockets. Protected by mapsMu.
	pipe     *pipe.VFSPipe
	endpoint transport.BoundEndpoint
}

func (i *inode) is(fileType uint32) bool { return i.mode.Load()&linux.S_IFMT == fileType }
func (i *inode) isDir() bool             { return i.is(linux.S_IFDIR) }
func (i *inode) isLink() bool            { return i.is(linux.S_IFLNK) }

// get returns the attributes.
func (i *inode) get() cowfs.Attr {
	i.attrMu.Lock()
	defer i.attrMu.Unlock()
	return i.attr
}

// set changes attributes in memory.
func (i *inode) set(change func(a *cowfs.Attr)) {
	i.attrMu.Lock()
	change(&i.attr)
	i.mode.Store(i.attr.Mode)
	i.attrMu.Unlock()
	i.fs.markDirty(i)
}

// touch sets times of change to now: mtime too if data changed.
func (i *inode) touch(data bool) {
	now := i.fs.now()
	i.set(func(a *cowfs.Attr) {
		a.Ctime = now
		if data {
			a.Mtime = now
		}
	})
}

// staleAtime is how old a time of access gets before reading renews it, even if
// nothing was written since: as with Linux's relatime.
const staleAtime = 24 * 3600 * 1e9

// accessed renews the time of access where relatime would. Files that nobody
// changed keep the image's: else reading would be a change.
func (i *inode) accessed(mnt *vfs.Mount) {
	if i.ino.OfImage() && !i.noted.Load() {
		return
	}
	a := i.get()
	now := i.fs.now()
	if a.Atime > a.Mtime && a.Atime > a.Ctime && now-a.Atime < staleAtime {
		return
	}
	if mnt.Options().Flags.NoATime || mnt.CheckBeginWrite() != nil {
		return
	}
	defer mnt.EndWrite()
	i.set(func(a *cowfs.Attr) { a.Atime = now })
}

// check checks permissions.
func (i *inode) check(creds *auth.Credentials, ats vfs.AccessTypes) error {
	a := i.get()
	return vfs.GenericCheckPermissions(creds, ats, linux.FileMode(a.Mode), nil, auth.KUID(a.UID), auth.KGID(a.GID))
}

// mayDelete checks whether child may be taken out of directory d.
func (d *dentry) mayDelete(creds *auth.Credentials, child *dentry) error {
	if err := d.inode.check(creds, vfs.MayWrite|vfs.MayExec); err != nil {
		return err
	}
	a, c := d.inode.get(), child.inode.get()
	return vfs.CheckDeleteSticky(creds, linux.FileMode(a.Mode), auth.KUID(a.UID), auth.KUID(c.UID), auth.KGID(c.GID))
}

func (i *inode) readlink(mnt *vfs.Mount) (string, error) {
	i.accessed(mnt)
	target, err := i.fs.tree.Target(i.ino)
	return target, errno(err)
}

// told returns the attributes to who may compare them later: the next store through a
// mapping changes the times. mapsMu keeps others from being told the same meanwhile.
func (i *inode) told() cowfs.Attr {
	if !i.mapped.Load() {
		return i.get()
	}
	i.mapsMu.Lock()
	defer i.mapsMu.Unlock()
	a, stored := i.noteStores()
	if stored {
		i.mappings.InvalidateAll(memmap.InvalidateOpts{})
	}
	return a
}

// noteStores returns the attributes with the times of all stores so far, and whether
// there were any through mappings: from now on another one is to be noted, so these are to
// be taken away before mapsMu is unlocked.
func (i *inode) noteStores() (a cowfs.Attr, stored bool) {
	i.attrMu.Lock()
	defer i.attrMu.Unlock()
	a, stored = i.attr, i.stored
	i.stored = false
	return a, stored
}

// stat answers statx(2).
func (i *inode) stat() linux.Statx {
	a := i.told()
	blocks := a.Blocks + (a.ImageEnd+pages.PageSize-1)/pages.PageSize
	if whole := (a.Size + pages.PageSize - 1) / pages.PageSize; a.ImageEnd > 0 {
		blocks = min(blocks, whole) // blocks of the image that were replaced count once
	}
	size := a.Size
	if i.isDir() {
		size = pages.PageSize
	}
	return linux.Statx{
		Mask:    linux.STATX_BASIC_STATS | linux.STATX_BTIME,
		Blksize: pages.PageSize, Nlink: a.Nlink, UID: a.UID, GID: a.GID, Mode: uint16(a.Mode), Ino: uint64(i.ino),
		Size: size, Blocks: blocks * (pages.PageSize / 512),
		Atime: timestamp(a.Atime), Btime: timestamp(a.Btime), Ctime: timestamp(a.Ctime), Mtime: timestamp(a.Mtime),
		RdevMajor: a.Major, RdevMinor: a.Minor, DevMajor: linux.UNNAMED_MAJOR, DevMinor: i.fs.devMinor,
	}
}

// timestamp is right before 1970 too.
func timestamp(ns int64) linux.StatxTimestamp {
	t := linux.StatxTimestamp{Sec: ns / 1e9}
	rest := ns % 1e9
	if rest < 0 {
		t.Sec--
		rest += 1e9
	}
	t.Nsec = uint32(rest)
	return t
}

const settable = linux.STATX_MODE | linux.STATX_UID | linux.STATX_GID | linux.STATX_ATIME | linux.STATX_MTIME | linux.STATX_CTIME | linux.STATX_SIZE

// setStat does the work of chmod(2), chown(2), utimensat(2) and truncate(2).
func (i *inode) setStat(ctx context.Context, creds *auth.Credentials, opts *vfs.SetStatOptions) error {
	s := &opts.Stat
	if s.Mask == 0 && !opts.ClearPrivs { // chown(2) with no new owner still takes set-id bits
		return nil
	}
	if s.Mask&^uint32(settable) != 0 {
		return linuxerr.EPERM
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	a := i.get()
	if s.Mask&linux.STATX_SIZE != 0 {
		switch a.Mode & linux.S_IFMT {
		case linux.S_IFREG:
		case linux.S_IFDIR:
			return linuxerr.EISDIR
		default:
			return linuxerr.EINVAL
		}
	}
	if err := vfs.CheckSetStat(ctx, creds, opts, linux.FileMode(a.Mode), nil, auth.KUID(a.UID), auth.KGID(a.GID)); err != nil {
		return err
	}
	const both = linux.STATX_ATIME | linux.STATX_MTIME
	if s.Mask&both != 0 && s.Mask&both != both && !vfs.CanActAsOwner(creds, auth.KUID(a.UID)) {
		return linuxerr.EPERM // only both together may be set to now, see utimensat(2)
	}
	if s.Mask&linux.STATX_SIZE != 0 {
		if err := i.truncate(s.Size); err != nil {
			return err
		}
	}
	clear := opts.ClearPrivs
	if clear {
		i.dropCaps()
		// Truncation leaves them to whoever may set them; a new owner has none but marks for locks.
		clear = s.Mask&linux.STATX_SIZE == 0 || !creds.HasRootCapability(linux.CAP_FSETID)
	}
	now := i.fs.now()
	i.set(func(a *cowfs.Attr) { applyStat(a, s, clear, creds, now) })
	return nil
}

func applyStat(a *cowfs.Attr, s *linux.Statx, clear bool, creds *auth.Credentials, now int64) {
	if clear && !a.IsDir() { // before it has another group
		clearIDs(a, creds)
	}
	if s.Mask&linux.STATX_UID != 0 {
		a.UID = s.UID
	}
	if s.Mask&linux.STATX_GID != 0 {
		a.GID = s.GID
	}
	if s.Mask&linux.STATX_MODE != 0 {
		a.Mode = a.Mode&linux.S_IFMT | uint32(s.Mode)&^linux.S_IFMT
	}
	a.Ctime = now
	if s.Mask&linux.STATX_SIZE != 0 {
		a.Mtime = now
	}
	timeOf := func(t linux.StatxTimestamp) int64 {
		if t.Nsec == linux.UTIME_NOW {
			return now
		}
		return t.ToNsecCapped()
	}
	if s.Mask&linux.STATX_ATIME != 0 {
		a.Atime = timeOf(s.Atime)
	}
	if s.Mask&linux.STATX_MTIME != 0 {
		a.Mtime = timeOf(s.Mtime)
	}
	if s.Mask&linux.STATX_CTIME != 0 {
		a.Ctime = timeOf(s.Ctime)
	}
}

// SetStatAt implements vfs.FilesystemImpl.SetStatAt.
func (fs *filesystem) SetStatAt(ctx context.Context, rp *vfs.ResolvingPath, opts vfs.SetStatOptions) error {
	return fs.changeAt(ctx, rp, vfs.InotifyEventFromStatMask(opts.Stat.Mask), func(d *dentry) error {
		return d.inode.setStat(ctx, rp.Credentials(), &opts)
	})
}

// changeAt resolves a path, calls fn on what is there and then notifies watchers of
// event.
func (fs *filesystem) changeAt(ctx context.Context, rp *vfs.ResolvingPath, event uint32, fn func(*dentry) error) error {
	var changed *dentry
	err := fs.at(ctx, rp, func(d *dentry) error {
		if err := fs.note(d); err != nil {
			return err
		}
		if err := fn(d); err != nil {
			return err
		}
		d.IncRef()
		changed = d
		return nil
	})
	if err != nil {
		return err
	}
	defer changed.DecRef(ctx)
	if event != 0 {
		changed.InotifyWithParent(ctx, event, 0, vfs.InodeEvent)
	}
	return nil
}

// StatAt implements vfs.FilesystemImpl.StatAt.
func (fs *filesystem) StatAt(ctx context.Context, rp *vfs.ResolvingPath, _ vfs.StatOptions) (st linux.Statx, err error) {
	err = fs.at(ctx, rp, func(d *dentry) error {
		st = d.inode.stat()
		return nil
	})
	return st, err
}

// Extended attributes, see xattr(7). Of security.* only file capabilities exist.

const capsXattr = linux.XATTR_SECURITY_PREFIX + "capability"

func (i *inode) checkXattr(creds *auth.Credentials, name string, write bool) error {
	switch {
	case name == linux.XATTR_USER_PREFIX, name == linux.XATTR_TRUSTED_PREFIX:
		return linuxerr.EINVAL
	case strings.HasPrefix(name, linux.XATTR_USER_PREFIX):
		// Other kinds of files have none, see xattr(7).
		if !i.is(linux.S_IFREG) && !i.isDir() {
			if write {
				return linuxerr.EPERM
			}
			return linuxerr.ENODATA
		}
		if a := i.get(); write && i.isDir() && a.Mode&linux.S_ISVTX != 0 && !vfs.CanActAsOwner(creds, auth.KUID(a.UID)) {
			return linuxerr.EPERM
		}
		ats := vfs.MayRead
		if write {
			ats = vfs.MayWrite
		}
		return i.check(creds, ats)
	case strings.HasPrefix(name, linux.XATTR_TRUSTED_PREFIX):
		if !creds.HasRootCapability(linux.CAP_SYS_ADMIN) {
			if write {
				return linuxerr.EPERM
			}
			return linuxerr.ENODATA
		}
		return nil
	case name == capsXattr:
		if write && !creds.HasRootCapability(linux.CAP_SETFCAP) {
			return linuxerr.EPERM
		}
		return nil
	}
	return linuxerr.EOPNOTSUPP
}

func (i *inode) listXattr(creds *auth.Credentials, size uint64) ([]string, error) {
	all, err := i.fs.tree.Xattrs(i.ino)
	if err != nil {
		return nil, errno(err)
	}
	var names []string
	total := 0
	for _, n := range all {
		if strings.HasPrefix(n, linux.XATTR_TRUSTED_PREFIX) && !creds.HasRootCapability(linux.CAP_SYS_ADMIN) {
			continue
		}
		names = append(names, n)
		total += len(n) + 1
	}
	if size != 0 && uint64(total) > size {
		return nil, linuxerr.ERANGE
	}
	return names, nil
}

func (i *inode) getXattr(creds *auth.Credentials, opts *vfs.GetXattrOptions) (string, error) {
	if opts.Name == capsXattr && i.noCaps.Load() {
		return "", linuxerr.ENODATA
	}
	if err := i.checkXattr(creds, opts.Name, false); err != nil {
		return "", err
	}
	val, ok, err := i.fs.tree.Xattr(i.ino, opts.Name)
	if err != nil {
		return "", errno(err)
	}
	if !ok {
		if opts.Name == capsXattr {
			i.noCaps.Store(true)
		}
		return "", linuxerr.ENODATA
	}
	if opts.Size != 0 && uint64(len(val)) > opts.Size {
		return "", linuxerr.ERANGE
	}
	return string(val), nil
}

func (i *inode) setXattr(creds *auth.Credentials, opts *vfs.SetXattrOptions) error {
	if err := i.checkXattr(creds, opts.Name, true); err != nil {
		return err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	_, ok, err := i.fs.tree.Xattr(i.ino, opts.Name)
	switch {
	case err != nil:
		return errno(err)
	case ok && opts.Flags&linux.XATTR_CREATE != 0:
		return linuxerr.EEXIST
	case !ok && opts.Flags&linux.XATTR_REPLACE != 0:
		return linuxerr.ENODATA
	}
	if err := i.fs.tree.Room(len(opts.Name) + len(opts.Value)); err != nil {
		return errno(err)
	}
	if err := i.fs.tree.SetXattr(i.ino, opts.Name, []byte(opts.Value)); err != nil {
		return errno(err)
	}
	if opts.Name == capsXattr {
		i.noCaps.Store(false)
	}
	i.touch(false)
	return nil
}

func (i *inode) removeXattr(creds *auth.Credentials, name string) error {
	if err := i.checkXattr(creds, name, true); err != nil {
		return err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	ok, err := i.fs.tree.RemoveXattr(i.ino, name)
	if err != nil {
		return errno(err)
	}
	if !ok {
		return linuxerr.ENODATA
	}
	i.touch(false)
	return nil
}

// dropPrivs takes away what makes a file run with privileges, as writing to it
// does: set-id bits, unless the writer may keep them, and capabilities. i.mu must
// be locked.
func (i *inode) dropPrivs(creds *auth.Credentials) {
	i.dropCaps()
	if i.mode.Load()&(linux.S_ISUID|linux.S_ISGID) != 0 && !creds.HasRootCapability(linux.CAP_FSETID) {
		i.set(func(a *cowfs.Attr) { clearIDs(a, creds) })
	}
}

// clearIDs takes set-id bits away. A set-group-id bit without permission to execute
// for the group, once a mark for mandatory locks, stays for members of the group and for
// who may set it.
func clearIDs(a *cowfs.Attr, creds *auth.Credentials) {
	a.Mode &^= linux.S_ISUID
	if a.Mode&0o010 != 0 || !creds.InGroup(auth.KGID(a.GID)) && !creds.HasRootCapability(linux.CAP_FSETID) {
		a.Mode &^= linux.S_ISGID
	}
}

// dropCaps takes file capabilities away, as writing to a file does.
func (i *inode) dropCaps() {
	if i.noCaps.Load() {
		return
	}
	if _, err := i.fs.tree.RemoveXattr(i.ino, capsXattr); err == nil {
		i.noCaps.Store(true)
	}
}

// ListXattrAt implements vfs.FilesystemImpl.ListXattrAt.
func (fs *filesystem) ListXattrAt(ctx context.Context, rp *vfs.ResolvingPath, size uint64) (names []string, err error) {
	err = fs.at(ctx, rp, func(d *dentry) error {
		names, err = d.inode.listXattr(rp.Credentials(), size)
		return err
	})
	return names, err
}

// GetXattrAt implements vfs.FilesystemImpl.GetXattrAt.
func (fs *filesystem) GetXattrAt(ctx context.Context, rp *vfs.ResolvingPath, opts vfs.GetXattrOptions) (val string, err error) {
	err = fs.at(ctx, rp, func(d *dentry) error {
		val, err = d.inode.getXattr(rp.Credentials(), &opts)
		return err
	})
	return val, err
}

// SetXattrAt implements vfs.FilesystemImpl.SetXattrAt.
func (fs *filesystem) SetXattrAt(ctx context.Context, rp *vfs.ResolvingPath, opts vfs.SetXattrOptions) error {
	return fs.changeAt(ctx, rp, linux.IN_ATTRIB, func(d *dentry) error { return d.inode.setXattr(rp.Credentials(), &opts) })
}

// RemoveXattrAt implements vfs.FilesystemImpl.RemoveXattrAt.
func (fs *filesystem) RemoveXattrAt(ctx context.Context, rp *vfs.ResolvingPath, name string) error {
	return fs.changeAt(ctx, rp, linux.IN_ATTRIB, func(d *dentry) error { return d.inode.removeXattr(rp.Credentials(), name) })
}

// GetPosixACLAt implements vfs.FilesystemImpl.GetPosixACLAt. There are no lists of
// access control. That is no error: an overlay on this file system asks for them.
func (fs *filesystem) GetPosixACLAt(context.Context, *vfs.ResolvingPath, vfs.ACLType) (*vfs.PosixACL, error) {
	return nil, nil
}

// SetPosixACLAt implements vfs.FilesystemImpl.SetPosixACLAt.
func (fs *filesystem) SetPosixACLAt(context.Context, *vfs.ResolvingPath, vfs.ACLType, *vfs.PosixACL, bool) (*vfs.PosixACL, linux.FileMode, error) {
	return nil, 0, linuxerr.EOPNOTSUPP
}
