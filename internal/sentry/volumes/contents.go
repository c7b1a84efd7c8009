package volumes

import (
	"os"
	"sync"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/sentry/fsutil"
	"gvisor.dev/gvisor/pkg/sentry/hostfd"
	"gvisor.dev/gvisor/pkg/sentry/kernel/auth"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
	"gvisor.dev/gvisor/pkg/usermem"

	"ramet.dev/ramet/internal/engine/wire"
)

// contents are the bytes of a file, and where they are mapped: mapping.go.
type contents struct {
	attributes

	// mu orders changes of contents.
	mu sync.Mutex

	// filesMu protects data and appended: the descriptors of the contents, nil until they are
	// needed. pages is what mappings are of, nil until there is one. None is saved.
	filesMu  sync.Mutex
	data     *os.File
	appended *os.File
	pages    *fsutil.MmapCachedFile

	mapsMu   sync.Mutex
	mappings memmap.MappingSet // guarded by mapsMu
}

// file returns the descriptor of the contents: for reading and writing if the daemon lets
// this sandbox write, else for reading.
func (i *contents) file() (*os.File, error) { return i.open(&i.data, false) }

// open returns the descriptor that is kept in f, which it asks for if there is none.
func (i *contents) open(f **os.File, appended bool) (*os.File, error) {
	i.filesMu.Lock()
	defer i.filesMu.Unlock()
	if *f != nil {
		return *f, nil
	}
	_, got, err := i.fs.client.call(&wire.VolumeCall{Volume: i.fs.volume, Op: wire.VolumeOpen, Ino: i.attr.Ino, Append: appended})
	if err != nil {
		return nil, err
	}
	if got == nil {
		return nil, linuxerr.EIO
	}
	*f = got
	return got, nil
}

// read reads to dst at off.
func (i *contents) read(ctx context.Context, dst usermem.IOSequence, off int64) (int64, error) {
	f, err := i.file()
	if err != nil {
		return 0, err
	}
	rw := hostfd.GetReadWriterAt(int32(f.Fd()), off, 0)
	defer hostfd.PutReadWriterAt(rw)
	return dst.CopyOutFrom(ctx, rw)
}

// write writes src at off, or at the end if it is to be appended. It returns the offset behind
// what it wrote.
func (i *contents) write(ctx context.Context, src usermem.IOSequence, off int64, appended bool, creds *auth.Credentials) (written, end int64, err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	f, err := i.file()
	if err != nil {
		return 0, off, err
	}
	size, err := sizeOf(f)
	if err != nil {
		return 0, off, err
	}
	if appended {
		// The host appends, so that what others append at the same time is kept.
		if f, err = i.open(&i.appended, true); err != nil {
			return 0, off, err
		}
		off = size
	}
	n, err := vfs.CheckLimit(ctx, off, src.NumBytes())
	if err != nil {
		return 0, off, err
	}
	if off+n > size {
		if err := i.grow(off + n); err != nil {
			return 0, off, err
		}
	}
	if err := i.dropPrivs(creds); err != nil {
		return 0, off, err
	}
	rw := hostfd.GetReadWriterAt(int32(f.Fd()), off, 0)
	defer hostfd.PutReadWriterAt(rw)
	written, err = src.TakeFirst64(n).CopyInTo(ctx, rw)
	return written, off + written, err
}

// grow has the daemon let the contents reach up to an end. A file without names has no room.
func (i *contents) grow(end int64) error {
	_, err := i.fs.call(wire.VolumeCall{Op: wire.VolumeGrow, Ino: i.attr.Ino, Size: end})
	return err
}

// dropPrivs removes set-id bits, which a write by others than root does.
func (i *contents) dropPrivs(creds *auth.Credentials) error {
	mode := i.known().Mode
	if withoutPrivs(mode) == mode || creds.HasRootCapability(linux.CAP_FSETID) {
		return nil
	}
	mode = withoutPrivs(mode) &^ linux.S_IFMT
	return i.set(&wire.VolumeSet{Mode: &mode})
}

// allocate does the work of fallocate(2).
func (i *contents) allocate(mode, off, length uint64) error {
	const keep, punch = linux.FALLOC_FL_KEEP_SIZE, linux.FALLOC_FL_PUNCH_HOLE
	switch mode {
	case 0, keep, punch | keep, linux.FALLOC_FL_ZERO_RANGE, linux.FALLOC_FL_ZERO_RANGE | keep:
	default:
		return linuxerr.EOPNOTSUPP
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	f, err := i.file()
	if err != nil {
		return err
	}
	if mode&punch == 0 {
		if err := i.grow(int64(off + length)); err != nil {
			return err
		}
	}
	if err := unix.Fallocate(int(f.Fd()), uint32(mode), int64(off), int64(length)); err != nil {
		return errnoError(uint32(err.(unix.Errno)))
	}
	return nil
}

// Stat implements kernfs.Inode.Stat.
func (i *contents) Stat(context.Context, *vfs.Filesystem, vfs.StatOptions) (linux.Statx, error) {
	err := i.refresh()
	if linuxerr.Equals(linuxerr.ESTALE, err) {
		if err = i.statWithoutName(); err != nil {
			return linux.Statx{}, err
		}
	}
	if err != nil {
		return linux.Statx{}, err
	}
	a := i.known()
	size := uint64(a.Size)
	if i.is(linux.S_IFDIR) {
		size = 4096
	}
	major, minor := linux.DecodeDeviceID(uint32(a.Rdev))
	return linux.Statx{
		Mask: linux.STATX_BASIC_STATS, Blksize: 4096, Nlink: a.Nlink, UID: a.UID, GID: a.GID, Mode: uint16(a.Mode), Ino: a.Ino,
		Size: size, Blocks: uint64(a.Blocks),
		Atime: linux.NsecToStatxTimestamp(a.Atime), Mtime: linux.NsecToStatxTimestamp(a.Mtime), Ctime: linux.NsecToStatxTimestamp(a.Ctime),
		RdevMajor: uint32(major), RdevMinor: minor, DevMajor: linux.UNNAMED_MAJOR, DevMinor: i.fs.minor,
	}, nil
}

// statWithoutName has the attributes of a file that was removed while it is open.
func (i *contents) statWithoutName() error {
	i.filesMu.Lock()
	data := i.data
	i.filesMu.Unlock()
	var size int64
	if data != nil {
		var err error
		if size, err = sizeOf(data); err != nil {
			return err
		}
	}
	i.attrMu.Lock()
	defer i.attrMu.Unlock()
	i.attr.Nlink, i.attr.Size = 0, size
	return nil
}

func sizeOf(f *os.File) (int64, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return 0, err
	}
	return st.Size, nil
}

// settable are the attributes that SetStat can change.
const settable = linux.STATX_MODE | linux.STATX_UID | linux.STATX_GID | linux.STATX_ATIME | linux.STATX_MTIME | linux.STATX_CTIME | linux.STATX_SIZE

// SetStat implements kernfs.Inode.SetStat.
func (i *contents) SetStat(ctx context.Context, _ *vfs.Filesystem, creds *auth.Credentials, opts vfs.SetStatOptions) error {
	s := &opts.Stat
	if s.Mask == 0 && !opts.ClearPrivs {
		return nil
	}
	if s.Mask&^uint32(settable) != 0 {
		return linuxerr.EPERM
	}
	a := i.known()
	if s.Mask&linux.STATX_SIZE != 0 && !i.is(linux.S_IFREG) {
		if i.is(linux.S_IFDIR) {
			return linuxerr.EISDIR
		}
		return linuxerr.EINVAL
	}
	if err := vfs.CheckSetStat(ctx, creds, &opts, linux.FileMode(a.Mode), nil, auth.KUID(a.UID), auth.KGID(a.GID)); err != nil {
		return err
	}
	set := &wire.VolumeSet{}
	const both = linux.STATX_ATIME | linux.STATX_MTIME
	if s.Mask&both != 0 && s.Mask&both != both && !vfs.CanActAsOwner(creds, auth.KUID(a.UID)) {
		return linuxerr.EPERM // only both together may be set to now, see utimensat(2)
	}
	mode := a.Mode
	if s.Mask&linux.STATX_MODE != 0 {
		mode = uint32(s.Mode)
	}
	// Truncation keeps set-id bits if the caller may set them, a new owner keeps none.
	clear := opts.ClearPrivs && (s.Mask&linux.STATX_SIZE == 0 || !creds.HasRootCapability(linux.CAP_FSETID))
	if clear && !i.is(linux.S_IFDIR) {
		mode = withoutPrivs(mode)
	}
	if mode &= linux.PermissionsMask | linux.S_ISUID | linux.S_ISGID | linux.S_ISVTX; s.Mask&linux.STATX_MODE != 0 || clear {
		set.Mode = &mode
	}
	if s.Mask&linux.STATX_UID != 0 {
		set.UID = &s.UID
	}
	if s.Mask&linux.STATX_GID != 0 {
		set.GID = &s.GID
	}
	now := i.fs.clock.Now().Nanoseconds()
	at := func(t linux.StatxTimestamp) *int64 {
		ns := t.ToNsecCapped()
		if t.Nsec == linux.UTIME_NOW {
			ns = now
		}
		return &ns
	}
	if s.Mask&linux.STATX_ATIME != 0 {
		set.Atime = at(s.Atime)
	}
	if s.Mask&linux.STATX_MTIME != 0 {
		set.Mtime = at(s.Mtime)
	}
	if s.Mask&linux.STATX_SIZE == 0 {
		return i.set(set)
	}
	size := int64(s.Size)
	if size < 0 {
		return linuxerr.EINVAL
	}
	set.Size = &size
	return i.resize(set)
}

// resize is set with a size.
func (i *contents) resize(set *wire.VolumeSet) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if err := i.set(set); err != nil {
		return err
	}
	i.cut(uint64(*set.Size))
	return nil
}

// close closes the descriptors, when nothing refers to the file any more.
func (i *contents) close() {
	i.filesMu.Lock()
	defer i.filesMu.Unlock()
	for _, f := range []*os.File{i.data, i.appended} {
		if f != nil {
			f.Close()
		}
	}
	i.data, i.appended = nil, nil
	if i.pages != nil {
		i.pages.MappableRelease()
	}
}
