package rootfs

import (
	"errors"
	"io"
	"math"
	"sync"
	"unsafe"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/safecopy"
	"gvisor.dev/gvisor/pkg/safemem"
	"gvisor.dev/gvisor/pkg/sentry/hostfd"
	"gvisor.dev/gvisor/pkg/sentry/kernel/auth"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
	"gvisor.dev/gvisor/pkg/usermem"

	"ramet.dev/ramet/internal/storage/cowfs"
)

// regularFD is an open regular file.
type regularFD struct {
	fileFD
	offMu sync.Mutex
	off   int64
}

func credentials(ctx context.Context, fd *fileFD) *auth.Credentials {
	if creds := auth.CredentialsFromContext(ctx); creds != nil {
		return creds
	}
	return fd.vfsfd.Credentials()
}

// CanPunch says whether file is one whose Allocate knows other modes than 0.
func CanPunch(file *vfs.FileDescription) bool {
	_, ok := file.Impl().(*regularFD)
	return ok
}

// Release implements vfs.FileDescriptionImpl.Release.
func (fd *regularFD) Release(context.Context) {}

// knownFlags are those of preadv2(2) that change nothing here.
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
	n, err := dst.CopyOutFrom(ctx, &fileReader{i: fd.inode(), off: uint64(offset)})
	fd.inode().accessed(fd.vfsfd.Mount())
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

// fileReader implements safemem.Reader.
type fileReader struct {
	i   *inode
	off uint64
}

// ReadToBlocks implements safemem.Reader.ReadToBlocks.
func (r *fileReader) ReadToBlocks(dsts safemem.BlockSeq) (done uint64, err error) {
	a := r.i.get()
	if r.off >= a.Size {
		return 0, io.EOF
	}
	var copyErr error
	err = r.i.fs.tree.Read(r.i.ino, &a, r.off, min(dsts.NumBytes(), a.Size-r.off), func(mem []byte, size int) (int, error) {
		var n uint64
		if to := dsts.TakeFirst(size); mem == nil {
			n, copyErr = safemem.ZeroSeq(to)
		} else {
			n, copyErr = safemem.CopySeq(to, hostMemory(mem))
		}
		dsts = dsts.DropFirst64(n)
		done += n
		if copyErr != nil && errors.As(copyErr, new(safecopy.BusError)) {
			return int(n), cowfs.ErrUnreadable
		}
		return int(n), copyErr
	})
	r.off += done
	if copyErr != nil {
		return done, copyErr // gVisor knows what it means for the guest
	}
	return done, errno(err)
}

// hostMemory is mapped file memory, which the host may fail to provide.
func hostMemory(mem []byte) safemem.BlockSeq {
	return safemem.BlockSeqOf(safemem.BlockFromUnsafePointer(unsafe.Pointer(unsafe.SliceData(mem)), len(mem)))
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

// pwrite returns the offset behind what it wrote.
func (fd *regularFD) pwrite(ctx context.Context, src usermem.IOSequence, offset int64, opts vfs.WriteOptions) (written, end int64, err error) {
	if offset < 0 {
		return 0, offset, linuxerr.EINVAL
	}
	if opts.Flags&^knownFlags != 0 {
		return 0, offset, linuxerr.EOPNOTSUPP
	}
	n := src.NumBytes()
	if n == 0 {
		return 0, offset, nil
	}
	i := fd.inode()
	i.mu.Lock()
	defer i.mu.Unlock()
	if fd.vfsfd.StatusFlags()&linux.O_APPEND != 0 {
		offset = int64(i.get().Size)
	}
	if n, err = vfs.CheckLimit(ctx, offset, n); err != nil {
		return 0, offset, err
	}
	written, err = i.write(ctx, src.TakeFirst64(n), uint64(offset), credentials(ctx, &fd.fileFD))
	return written, offset + written, err
}

// writePiece is how much is made ready at a time, so that others get their turn.
const writePiece = 4 << 20

// write writes src at off. i.mu must be locked.
func (i *inode) write(ctx context.Context, src usermem.IOSequence, off uint64, creds *auth.Credentials) (written int64, err error) {
	for src.NumBytes() > 0 {
		var n int64
		n, err = i.writePiece(ctx, src.TakeFirst64(writePiece), off)
		written += n
		off += uint64(n)
		src = src.DropFirst64(n)
		if err != nil || n == 0 {
			break
		}
	}
	if written == 0 && err != nil {
		return 0, err
	}
	i.dropPrivs(creds)
	now := i.fs.now()
	i.set(func(a *cowfs.Attr) {
		a.Size = max(a.Size, off)
		a.Mtime, a.Ctime = now, now
	})
	if written > 0 && linuxerr.Equals(linuxerr.ENOSPC, err) {
		err = nil // what fitted counts
	}
	return written, err
}

func (i *inode) writePiece(ctx context.Context, src usermem.IOSequence, off uint64) (int64, error) {
	if off+uint64(src.NumBytes()) <= i.get().Size {
		// What is overwritten is mostly ready.
		n, err := src.CopyInTo(ctx, &fileWriter{i: i, off: off})
		if n > 0 || !errors.Is(err, cowfs.ErrNotReady) {
			return n, notReadyIsFine(err)
		}
	}
	for {
		p, err := i.prepare(off, uint64(src.NumBytes()))
		if err != nil {
			return 0, err
		}
		if p.Ready == 0 {
			return 0, linuxerr.ENOSPC
		}
		n, err := src.TakeFirst64(int64(p.Ready)).CopyInTo(ctx, &fileWriter{i: i, off: off, fresh: p.Fresh})
		if n > 0 || !errors.Is(err, cowfs.ErrNotReady) {
			return n, notReadyIsFine(err)
		}
		// A pin came in between.
	}
}

// notReadyIsFine leaves the rest to another piece.
func notReadyIsFine(err error) error {
	if errors.Is(err, cowfs.ErrNotReady) {
		return nil
	}
	return err
}

// prepare makes blocks ready to be written, and takes away mappings of what was
// there before. i.mu must be locked.
func (i *inode) prepare(off, n uint64) (cowfs.Prepared, error) {
	mapped := i.mapped.Load()
	if mapped {
		i.fs.beginMove()
		defer i.fs.endMove()
	}
	i.attrMu.Lock()
	p, err := i.fs.tree.Prepare(i.ino, &i.attr, off, n)
	i.attrMu.Unlock()
	if p.Moved && mapped {
		i.invalidate(off, off+p.Ready, false)
	}
	return p, errno(err)
}

// fileWriter implements safemem.Writer.
type fileWriter struct {
	i     *inode
	off   uint64
	fresh bool // the pages are new
}

// smallWrite is up to how many bytes storing to pages that are there already is
// quicker than a system call.
const smallWrite = 32 << 10

// WriteFromBlocks implements safemem.Writer.WriteFromBlocks.
func (w *fileWriter) WriteFromBlocks(srcs safemem.BlockSeq) (done uint64, err error) {
	a := w.i.get()
	err = w.i.fs.tree.Write(w.i.ino, &a, w.off, srcs.NumBytes(), func(p cowfs.Place) (uint64, error) {
		if !w.fresh && p.N <= smallWrite {
			n, err := safemem.CopySeq(hostMemory(p.Mem), srcs)
			srcs = srcs.DropFirst64(n)
			done += n
			if err == nil || !errors.As(err, new(safecopy.BusError)) {
				return n, err
			}
			// The host has no space for a page that was never written. A system
			// call says why.
			m, err := hostfd.Pwritev2(int32(p.File.Fd()), srcs.TakeFirst64(p.N-n), p.Offset+int64(n), 0)
			srcs = srcs.DropFirst64(m)
			done += m
			return n + m, err
		}
		// A system call writes all pages at once; storing to new ones through a
		// mapping would fault in each.
		n, err := hostfd.Pwritev2(int32(p.File.Fd()), srcs.TakeFirst64(p.N), p.Offset, 0)
		srcs = srcs.DropFirst64(n)
		done += n
		return n, err
	})
	w.off += done
	if errors.Is(err, cowfs.ErrNotReady) {
		return done, err
	}
	return done, errno(err)
}

// truncate changes the size. i.mu must be locked; times are the caller's.
func (i *inode) truncate(size uint64) error {
	if size > math.MaxInt64 {
		return linuxerr.EINVAL
	}
	i.fs.beginMove()
	defer i.fs.endMove()
	i.attrMu.Lock()
	old := i.attr.Size
	err := i.fs.tree.Truncate(i.ino, &i.attr, size)
	i.attrMu.Unlock()
	if size < old && i.mapped.Load() {
		i.invalidate(size, old, err == nil) // else a block may have moved
	}
	return errno(err)
}

// Allocate implements vfs.FileDescriptionImpl.Allocate.
func (fd *regularFD) Allocate(ctx context.Context, mode, offset, length uint64) error {
	i := fd.inode()
	i.mu.Lock()
	defer i.mu.Unlock()
	end := offset + length
	const keep = linux.FALLOC_FL_KEEP_SIZE
	var err error
	switch mode {
	case 0, keep:
		i.attrMu.Lock()
		err = i.fs.tree.Reserve(i.ino, &i.attr, offset, length)
		i.attrMu.Unlock()
	case linux.FALLOC_FL_PUNCH_HOLE | keep, linux.FALLOC_FL_ZERO_RANGE, linux.FALLOC_FL_ZERO_RANGE | keep:
		err = i.punch(offset, length)
	default:
		return linuxerr.EOPNOTSUPP
	}
	if err != nil {
		return errno(err)
	}
	i.dropPrivs(credentials(ctx, &fd.fileFD))
	now := fd.dentry().fs.now()
	i.set(func(a *cowfs.Attr) {
		if mode&keep == 0 {
			a.Size = max(a.Size, end)
		}
		if mode != keep {
			a.Mtime = now
		}
		a.Ctime = now
	})
	return nil
}

func (i *inode) punch(off, n uint64) error {
	i.fs.beginMove()
	defer i.fs.endMove()
	i.attrMu.Lock()
	err := i.fs.tree.Punch(i.ino, &i.attr, off, n)
	i.attrMu.Unlock()
	if i.mapped.Load() {
		i.invalidate(off, off+n, false)
	}
	return err
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
		offset += int64(i.get().Size)
	case linux.SEEK_DATA, linux.SEEK_HOLE:
		a := i.get()
		if offset < 0 || uint64(offset) >= a.Size {
			return 0, linuxerr.ENXIO
		}
		found, err := i.fs.tree.Seek(i.ino, &a, uint64(offset), whence == linux.SEEK_DATA)
		if err != nil {
			return 0, errno(err)
		}
		if whence == linux.SEEK_DATA && found >= a.Size {
			return 0, linuxerr.ENXIO
		}
		offset = int64(found)
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
