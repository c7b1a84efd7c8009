package volumes

import (
	"sync"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/sentry/kernel/auth"
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

// Release implements vfs.FileDescriptionImpl.Release.
func (*regularFD) Release(context.Context) {}

// CanPunch reports that Allocate knows other modes than 0.
func (*regularFD) CanPunch() bool { return true }

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
	return fd.inode().read(ctx, dst, offset)
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
	creds := auth.CredentialsFromContext(ctx)
	return fd.inode().write(ctx, src, offset, fd.vfsfd.StatusFlags()&linux.O_APPEND != 0, creds)
}

// Allocate implements vfs.FileDescriptionImpl.Allocate.
func (fd *regularFD) Allocate(_ context.Context, mode, offset, length uint64) error {
	return fd.inode().allocate(mode, offset, length)
}

// Seek implements vfs.FileDescriptionImpl.Seek.
func (fd *regularFD) Seek(_ context.Context, offset int64, whence int32) (int64, error) {
	fd.offMu.Lock()
	defer fd.offMu.Unlock()
	i := fd.inode()
	size := func() (int64, error) {
		f, err := i.file()
		if err != nil {
			return 0, err
		}
		return sizeOf(f)
	}
	switch whence {
	case linux.SEEK_SET:
	case linux.SEEK_CUR:
		offset += fd.off
	case linux.SEEK_END, linux.SEEK_DATA, linux.SEEK_HOLE:
		n, err := size()
		if err != nil {
			return 0, err
		}
		switch {
		case whence == linux.SEEK_END:
			offset += n
		case offset < 0 || offset >= n:
			return 0, linuxerr.ENXIO
		case whence == linux.SEEK_HOLE: // all is taken for data, as on many file systems
			offset = n
		}
	default:
		return 0, linuxerr.EINVAL
	}
	if offset < 0 {
		return 0, linuxerr.EINVAL
	}
	fd.off = offset
	return offset, nil
}

// Sync implements vfs.FileDescriptionImpl.Sync.
func (fd *regularFD) Sync(context.Context, vfs.SyncOptions) error {
	i := fd.inode()
	f, err := i.file()
	if err != nil {
		return err
	}
	if err := unix.Fsync(int(f.Fd())); err != nil {
		return linuxerr.EIO
	}
	return nil
}

// ConfigureMMap implements vfs.FileDescriptionImpl.ConfigureMMap.
func (fd *regularFD) ConfigureMMap(_ context.Context, opts *memmap.MMapOpts) error {
	return vfs.GenericConfigureMMap(&fd.vfsfd, fd.inode(), opts)
}
