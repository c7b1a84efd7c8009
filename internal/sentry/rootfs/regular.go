package rootfs

import (
	"sync"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
	"gvisor.dev/gvisor/pkg/usermem"
)

// regularFD is an open regular file.
type regularFD struct {
	fileFD
	offMu sync.Mutex
	off   int64
}

// CanPunch returns whether Allocate of file knows other modes than 0.
func CanPunch(file *vfs.FileDescription) bool {
	fd, ok := file.Impl().(interface{ CanPunch() bool })
	return ok && fd.CanPunch()
}

// CanPunch reports that Allocate knows other modes than 0.
func (*regularFD) CanPunch() bool { return true }

// Release implements vfs.FileDescriptionImpl.Release.
func (fd *regularFD) Release(context.Context) {}

// knownFlags are the flags of preadv2(2) that change nothing here.
const knownFlags = linux.RWF_HIPRI | linux.RWF_DSYNC | linux.RWF_SYNC

// PRead implements vfs.FileDescriptionImpl.PRead.
func (fd *regularFD) PRead(ctx context.Context, dst usermem.IOSequence, offset int64, opts vfs.ReadOptions) (int64, error) {
	if offset < 0 {
		return 0, linuxerr.EINVAL
	}
	if opts.Flags&^knownFlags != 0 {
		return 0, linuxerr.EOPNOTSUPP
	}
	if dst.NumBytes() == 0 {
		return 0, nil
	}
	i := fd.inode()
	n, err := i.Read(ctx, dst, uint64(offset))
	i.Accessed(fd.vfsfd.Mount())
	return n, err
}

// Read implements vfs.FileDescriptionImpl.Read.
func (fd *regularFD) Read(ctx context.Context, dst usermem.IOSequence, opts vfs.ReadOptions) (int64, error) {
	fd.offMu.Lock()
	defer fd.offMu.Unlock()
	n, err := fd.PRead(ctx, dst, fd.off, opts)
	fd.off += n
	return n, err
}

// PWrite implements vfs.FileDescriptionImpl.PWrite.
func (fd *regularFD) PWrite(ctx context.Context, src usermem.IOSequence, offset int64, opts vfs.WriteOptions) (int64, error) {
	n, _, err := fd.pwrite(ctx, src, offset, opts)
	return n, err
}

// Write implements vfs.FileDescriptionImpl.Write.
func (fd *regularFD) Write(ctx context.Context, src usermem.IOSequence, opts vfs.WriteOptions) (int64, error) {
	fd.offMu.Lock()
	defer fd.offMu.Unlock()
	n, end, err := fd.pwrite(ctx, src, fd.off, opts)
	fd.off = end
	return n, err
}

// pwrite returns the offset behind the written bytes.
func (fd *regularFD) pwrite(ctx context.Context, src usermem.IOSequence, offset int64, opts vfs.WriteOptions) (written, end int64, err error) {
	if offset < 0 {
		return 0, offset, linuxerr.EINVAL
	}
	if opts.Flags&^knownFlags != 0 {
		return 0, offset, linuxerr.EOPNOTSUPP
	}
	if src.NumBytes() == 0 {
		return 0, offset, nil
	}
	appended := fd.vfsfd.StatusFlags()&linux.O_APPEND != 0
	return fd.inode().Write(ctx, src, offset, appended, credentials(ctx, &fd.fileFD))
}

// Allocate implements vfs.FileDescriptionImpl.Allocate.
func (fd *regularFD) Allocate(ctx context.Context, mode, offset, length uint64) error {
	return fd.inode().Allocate(mode, offset, length, credentials(ctx, &fd.fileFD))
}

// Seek implements vfs.FileDescriptionImpl.Seek.
func (fd *regularFD) Seek(_ context.Context, offset int64, whence int32) (int64, error) {
	fd.offMu.Lock()
	defer fd.offMu.Unlock()
	i := fd.inode()
	switch whence {
	case linux.SEEK_SET:
	case linux.SEEK_CUR:
		offset += fd.off
	case linux.SEEK_END:
		offset += int64(i.Attr().Size)
	case linux.SEEK_DATA, linux.SEEK_HOLE:
		found, err := i.SeekData(offset, whence == linux.SEEK_HOLE)
		if err != nil {
			return 0, err
		}
		offset = found
	default:
		return 0, linuxerr.EINVAL
	}
	if offset < 0 {
		return 0, linuxerr.EINVAL
	}
	fd.off = offset
	return offset, nil
}

// ConfigureMMap implements vfs.FileDescriptionImpl.ConfigureMMap.
func (fd *regularFD) ConfigureMMap(_ context.Context, opts *memmap.MMapOpts) error {
	opts.SentryOwnedContent = true
	return vfs.GenericConfigureMMap(&fd.vfsfd, fd.inode(), opts)
}
