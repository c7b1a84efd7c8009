package paired

import (
	"io"
	"unsafe"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/safemem"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/usermem"
	"gvisor.dev/gvisor/pkg/waiter"
)

// sequence is usermem.IOSequenceReadWriter, by its fields: the guest's memory that a call reads into or
// writes from. A test compares them.
type sequence struct {
	ctx context.Context
	s   usermem.IOSequence
}

func sequenceOf(rw *usermem.IOSequenceReadWriter) *sequence { return (*sequence)(unsafe.Pointer(rw)) }

// chunk is how much is moved at once that is not in a guest's memory.
const chunk = 64 << 10

// Read implements tcpip.Endpoint.
func (e *End) Read(w io.Writer, opts tcpip.ReadOptions) (tcpip.ReadResult, tcpip.Error) {
	p := e.pair.Load()
	if p == nil {
		switch phase, err := e.idle(); {
		case phase == asking:
			return tcpip.ReadResult{}, &tcpip.ErrWouldBlock{}
		case err != nil:
			return tcpip.ReadResult{}, err
		}
		return e.Endpoint.Read(w, opts)
	}
	if p.wasReset() {
		return tcpip.ReadResult{}, p.tellReset(&tcpip.ErrClosedForReceive{})
	}
	flags := unix.MSG_DONTWAIT
	if opts.Peek {
		flags |= unix.MSG_PEEK
	}
	n, ended, err := p.readTo(w, flags)
	switch {
	case n > 0:
		return tcpip.ReadResult{Count: int(n), Total: int(n)}, nil
	case err != nil:
		return tcpip.ReadResult{}, p.readError(err)
	case ended:
		return tcpip.ReadResult{}, p.atEnd()
	}
	return tcpip.ReadResult{}, &tcpip.ErrBadBuffer{} // there is no room
}

// atEnd returns what the end of the pair means.
func (p *pair) atEnd() tcpip.Error {
	switch {
	case p.shut.Load():
		return &tcpip.ErrClosedForReceive{}
	case !p.ended():
		return &tcpip.ErrWouldBlock{} // the gateway's word comes, and wakes the guest
	}
	return p.tellReset(&tcpip.ErrClosedForReceive{})
}

func (p *pair) readError(err error) tcpip.Error {
	switch err {
	case linuxerr.ErrWouldBlock:
		if p.shut.Load() {
			return &tcpip.ErrClosedForReceive{}
		}
		return &tcpip.ErrWouldBlock{}
	case unix.ECONNRESET:
		return p.reset()
	}
	return &tcpip.ErrBadBuffer{}
}

// reset is what the guest sees if the host says so: the gateway has gone with bytes of the guest that
// it has not read.
func (p *pair) reset() tcpip.Error {
	p.noted.Store(true)
	return &tcpip.ErrConnectionReset{}
}

// readTo receives into w. ended says that nothing more comes.
func (p *pair) readTo(w io.Writer, flags int) (n int64, ended bool, err error) {
	if rw, ok := w.(*usermem.IOSequenceReadWriter); ok {
		s := sequenceOf(rw)
		if s.s.NumBytes() == 0 {
			return 0, false, nil
		}
		n, err = s.s.CopyOutFrom(s.ctx, safemem.ReaderFunc(func(dsts safemem.BlockSeq) (uint64, error) {
			if dsts.IsEmpty() {
				return 0, nil
			}
			n, err := p.transfer(unix.SYS_RECVMSG, dsts, flags)
			ended = n == 0 && err == nil
			return n, err
		}))
		s.s = s.s.DropFirst64(n)
		return n, ended, err
	}
	// Only what w takes is taken.
	buf := make([]byte, chunk)
	if l, ok := w.(*tcpip.LimitedWriter); ok && l.N < chunk {
		buf = buf[:l.N]
	}
	if len(buf) == 0 {
		return 0, false, nil
	}
	got, err := p.transfer(unix.SYS_RECVMSG, blocksOf(buf), flags|unix.MSG_PEEK)
	if err != nil || got == 0 {
		return 0, err == nil, err
	}
	wrote, _ := w.Write(buf[:got]) // what it did not take stays
	if wrote > 0 && flags&unix.MSG_PEEK == 0 {
		_, err = p.transfer(unix.SYS_RECVMSG, blocksOf(buf[:wrote]), flags)
	}
	return int64(wrote), false, err
}

// Write implements tcpip.Endpoint.
func (e *End) Write(from tcpip.Payloader, opts tcpip.WriteOptions) (int64, tcpip.Error) {
	p := e.pair.Load()
	if p == nil {
		switch phase, err := e.idle(); {
		case phase == asking:
			return 0, &tcpip.ErrWouldBlock{}
		case err != nil:
			return 0, err
		}
		return e.Endpoint.Write(from, opts)
	}
	if p.wasReset() {
		return 0, p.tellReset(&tcpip.ErrClosedForSend{})
	}
	if from.Len() == 0 {
		return 0, nil
	}
	size := int64(from.Len())
	n, err := p.writeFrom(from)
	if err == linuxerr.ErrWouldBlock && n == 0 && p.poll(waiter.WritableEvents)&waiter.WritableEvents != 0 {
		n, err = p.writeFrom(from)
	}
	switch {
	case n > 0:
		if n < size && p.poll(waiter.WritableEvents)&waiter.WritableEvents != 0 {
			e.queue.Notify(waiter.WritableEvents) // who wrote waits for it
		}
		return n, nil
	case err == linuxerr.ErrWouldBlock:
		return 0, &tcpip.ErrWouldBlock{}
	case err == unix.EPIPE:
		return 0, p.tellReset(&tcpip.ErrClosedForSend{})
	case err == unix.ECONNRESET:
		return 0, p.reset()
	}
	return 0, &tcpip.ErrBadBuffer{}
}

// writeFrom sends what from has.
func (p *pair) writeFrom(from tcpip.Payloader) (n int64, err error) {
	const flags = unix.MSG_DONTWAIT | unix.MSG_NOSIGNAL
	if rw, ok := from.(*usermem.IOSequenceReadWriter); ok {
		s := sequenceOf(rw)
		n, err = s.s.CopyInTo(s.ctx, safemem.WriterFunc(func(srcs safemem.BlockSeq) (uint64, error) {
			if srcs.IsEmpty() {
				return 0, nil
			}
			return p.transfer(unix.SYS_SENDMSG, srcs, flags)
		}))
		s.s = s.s.DropFirst64(n)
		return n, err
	}
	buf := make([]byte, min(from.Len(), chunk))
	had, _ := io.ReadFull(from, buf) // what it does not give is not sent
	if had == 0 {
		return 0, linuxerr.EFAULT
	}
	sent, err := p.transfer(unix.SYS_SENDMSG, blocksOf(buf[:had]), flags)
	if back, ok := from.(io.Seeker); ok && int(sent) < had {
		_, _ = back.Seek(int64(sent)-int64(had), io.SeekCurrent) // it was read from there
	}
	return int64(sent), err
}

func blocksOf(b []byte) safemem.BlockSeq {
	return safemem.BlockSeqOf(safemem.BlockFromSafeSlice(b))
}

// transfer is recvmsg(2) or sendmsg(2) with blocks of memory.
func (p *pair) transfer(call uintptr, blocks safemem.BlockSeq, flags int) (uint64, error) {
	var msg unix.Msghdr
	var one [1]unix.Iovec
	iovs := one[:]
	if blocks.NumBlocks() == 1 {
		b := blocks.Head().ToSlice()
		one[0].Base, one[0].Len = &b[0], uint64(len(b))
	} else {
		iovs = safemem.IovecsFromBlockSeq(blocks)
		iovs = iovs[:min(len(iovs), maxIovecs)]
	}
	msg.Iov, msg.Iovlen = &iovs[0], uint64(len(iovs))
	for {
		n, _, errno := unix.Syscall(call, uintptr(p.fd), uintptr(unsafe.Pointer(&msg)), uintptr(flags))
		switch errno {
		case 0:
			return uint64(n), nil
		case unix.EINTR:
		case unix.EAGAIN:
			return 0, linuxerr.ErrWouldBlock
		default:
			return 0, errno
		}
	}
}

// maxIovecs is how many blocks Linux takes at once.
const maxIovecs = 1024
