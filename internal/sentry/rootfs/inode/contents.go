package inode

import (
	"errors"
	"io"
	"math"
	"sync"
	"sync/atomic"
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

// contents are the bytes of an inode, and where they are mapped: mapping.go.
type contents struct {
	attributes

	// mapsMu protects mappings, and writable: the number of pages of mappings that are
	// shared and writable.
	mapsMu   sync.Mutex
	mappings memmap.MappingSet
	writable atomic.Int64
	mapped   atomic.Bool // mappings was ever used
	saved    string      // mappings in a saved state, and while it is made: see savemaps.go
	// translated says that pages may be mapped: Translate was called since invalidateAll.
	// It is not saved, as invalidateAll comes before a save.
	translated atomic.Bool
}

// Read reads to dst at off.
func (c *contents) Read(ctx context.Context, dst usermem.IOSequence, off uint64) (int64, error) {
	return dst.CopyOutFrom(ctx, &fileReader{c: c, off: off})
}

// fileReader implements safemem.Reader.
type fileReader struct {
	c   *contents
	off uint64
}

// ReadToBlocks implements safemem.Reader.ReadToBlocks.
func (r *fileReader) ReadToBlocks(dsts safemem.BlockSeq) (done uint64, err error) {
	a := r.c.Attr()
	if r.off >= a.Size {
		return 0, io.EOF
	}
	var copyErr error
	err = r.c.table.tree.Read(r.c.ino, &a, r.off, min(dsts.NumBytes(), a.Size-r.off), func(mem []byte, size int) (int, error) {
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
	return done, Errno(err)
}

// hostMemory makes blocks of mapped file memory, which the host may fail to provide.
func hostMemory(mem []byte) safemem.BlockSeq {
	return safemem.BlockSeqOf(safemem.BlockFromUnsafePointer(unsafe.Pointer(unsafe.SliceData(mem)), len(mem)))
}

// Write writes src at offset, or at the end if it is to be appended, for a caller with creds.
// It returns the offset behind what it wrote.
func (c *contents) Write(ctx context.Context, src usermem.IOSequence, offset int64, appended bool, creds *auth.Credentials) (written, end int64, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if appended {
		offset = int64(c.Attr().Size)
	}
	n, err := vfs.CheckLimit(ctx, offset, src.NumBytes())
	if err != nil {
		return 0, offset, err
	}
	written, err = c.write(ctx, src.TakeFirst64(n), uint64(offset), creds)
	return written, offset + written, err
}

// writePiece is the number of bytes that are made ready at a time, so that other users of the
// tree get their turn.
const writePiece = 4 << 20

// write writes src at off. c.mu must be locked.
func (c *contents) write(ctx context.Context, src usermem.IOSequence, off uint64, creds *auth.Credentials) (written int64, err error) {
	for src.NumBytes() > 0 {
		var n int64
		n, err = c.writePiece(ctx, src.TakeFirst64(writePiece), off)
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
	c.dropPrivs(creds)
	now := c.table.Now()
	c.Set(func(a *cowfs.Attr) {
		a.Size = max(a.Size, off)
		a.Mtime, a.Ctime = now, now
	})
	if written > 0 && linuxerr.Equals(linuxerr.ENOSPC, err) {
		err = nil // the part that fitted counts
	}
	return written, err
}

// writePiece writes the beginning of src at off, and returns how many bytes it wrote. c.mu must
// be locked.
func (c *contents) writePiece(ctx context.Context, src usermem.IOSequence, off uint64) (int64, error) {
	if off+uint64(src.NumBytes()) <= c.Attr().Size {
		// Pages that are overwritten are mostly ready.
		n, err := src.CopyInTo(ctx, &fileWriter{c: c, off: off})
		if n > 0 || !errors.Is(err, cowfs.ErrNotReady) {
			return n, notReadyIsFine(err)
		}
	}
	for {
		p, err := c.prepare(off, uint64(src.NumBytes()))
		if err != nil {
			return 0, err
		}
		if p.Ready == 0 {
			return 0, linuxerr.ENOSPC
		}
		n, err := src.TakeFirst64(int64(p.Ready)).CopyInTo(ctx, &fileWriter{c: c, off: off, fresh: p.Fresh})
		if n > 0 || !errors.Is(err, cowfs.ErrNotReady) {
			return n, notReadyIsFine(err)
		}
		// The tree was pinned in between.
	}
}

// notReadyIsFine leaves the rest of a write to the next piece.
func notReadyIsFine(err error) error {
	if errors.Is(err, cowfs.ErrNotReady) {
		return nil
	}
	return err
}

// prepare makes blocks ready to be written, and unmaps the pages that they had before. c.mu
// must be locked.
func (c *contents) prepare(off, n uint64) (cowfs.Prepared, error) {
	mapped := c.mapped.Load()
	if mapped {
		c.table.hosts.beginMove()
		defer c.table.hosts.endMove()
	}
	c.attrMu.Lock()
	p, err := c.table.tree.Prepare(c.ino, &c.attr, off, n)
	c.attrMu.Unlock()
	if p.Moved && mapped {
		c.invalidate(off, off+p.Ready, false)
	}
	return p, Errno(err)
}

// fileWriter implements safemem.Writer.
type fileWriter struct {
	c     *contents
	off   uint64
	fresh bool // the pages are new
}

// smallWrite is the number of bytes up to which a store to existing pages is quicker than a
// system call.
const smallWrite = 32 << 10

// WriteFromBlocks implements safemem.Writer.WriteFromBlocks.
func (w *fileWriter) WriteFromBlocks(srcs safemem.BlockSeq) (done uint64, err error) {
	a := w.c.Attr()
	err = w.c.table.tree.Write(w.c.ino, &a, w.off, srcs.NumBytes(), func(p cowfs.Place) (uint64, error) {
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
		// A system call writes all pages at once; stores to new pages through a mapping
		// would fault once for each.
		n, err := hostfd.Pwritev2(int32(p.File.Fd()), srcs.TakeFirst64(p.N), p.Offset, 0)
		srcs = srcs.DropFirst64(n)
		done += n
		return n, err
	})
	w.off += done
	if errors.Is(err, cowfs.ErrNotReady) {
		return done, err
	}
	return done, Errno(err)
}

// Empty does what O_TRUNC asks for, for a caller with creds.
func (c *contents) Empty(creds *auth.Credentials) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.truncate(0); err != nil {
		return err
	}
	c.dropPrivs(creds)
	c.Touch(true)
	return nil
}

// truncate changes the size, and leaves times to the caller. c.mu must be locked.
func (c *contents) truncate(size uint64) error {
	if size > math.MaxInt64 {
		return linuxerr.EINVAL
	}
	c.table.hosts.beginMove()
	defer c.table.hosts.endMove()
	c.attrMu.Lock()
	old := c.attr.Size
	err := c.table.tree.Truncate(c.ino, &c.attr, size)
	c.attrMu.Unlock()
	if size < old && c.mapped.Load() {
		c.invalidate(size, old, err == nil) // else a block may have moved
	}
	return Errno(err)
}

// Allocate does the work of fallocate(2) for a caller with creds.
func (c *contents) Allocate(mode, offset, length uint64, creds *auth.Credentials) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	end := offset + length
	const keep = linux.FALLOC_FL_KEEP_SIZE
	var err error
	switch mode {
	case 0, keep:
		c.attrMu.Lock()
		err = c.table.tree.Reserve(c.ino, &c.attr, offset, length)
		c.attrMu.Unlock()
	case linux.FALLOC_FL_PUNCH_HOLE | keep, linux.FALLOC_FL_ZERO_RANGE, linux.FALLOC_FL_ZERO_RANGE | keep:
		err = c.punch(offset, length)
	default:
		return linuxerr.EOPNOTSUPP
	}
	if err != nil {
		return Errno(err)
	}
	c.dropPrivs(creds)
	now := c.table.Now()
	c.Set(func(a *cowfs.Attr) {
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

// punch makes a range read as zeros. c.mu must be locked.
func (c *contents) punch(off, n uint64) error {
	c.table.hosts.beginMove()
	defer c.table.hosts.endMove()
	c.attrMu.Lock()
	err := c.table.tree.Punch(c.ino, &c.attr, off, n)
	c.attrMu.Unlock()
	if c.mapped.Load() {
		c.invalidate(off, off+n, false)
	}
	return err
}

// SeekData returns where the first data at or behind off is, or, if hole is set, the first
// hole.
func (c *contents) SeekData(off int64, hole bool) (int64, error) {
	a := c.Attr()
	if off < 0 || uint64(off) >= a.Size {
		return 0, linuxerr.ENXIO
	}
	found, err := c.table.tree.Seek(c.ino, &a, uint64(off), !hole)
	if err != nil {
		return 0, Errno(err)
	}
	if !hole && found >= a.Size {
		return 0, linuxerr.ENXIO
	}
	return int64(found), nil
}
