package relay

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// ErrServerReset says that the server has reset the flow.
var ErrServerReset = errors.New("the server reset the connection")

// drainTime bounds how long a server may take for the last bytes of a guest that is gone.
const drainTime = 30 * time.Second

// Socket is an end of a stream that does not block. *net.TCPConn and *os.File are such ends.
type Socket interface {
	syscall.Conn
	SetReadDeadline(time.Time) error
	SetWriteDeadline(time.Time) error
	Close() error
}

// Limiter delays a flow: WaitN returns when n more bytes may pass. Most is how many it is asked for at
// once, which is at most MaxWait: flows that share a limiter take turns.
type Limiter interface {
	Most() int
	WaitN(ctx context.Context, n int) error
}

// MaxWait is the most that a Limiter is asked for at once.
const MaxWait = pipeSize

// end is a Socket with its descriptor at hand.
type end struct {
	Socket
	raw syscall.RawConn
}

func newEnd(s Socket) (end, error) {
	raw, err := s.SyscallConn()
	return end{s, raw}, err
}

// control calls f with the descriptor, or does nothing if the end is closed.
func (e end) control(f func(fd int)) { _ = e.raw.Control(func(fd uintptr) { f(int(fd)) }) }

// stop makes pending and future operations of the end fail.
func (e end) stop() {
	past := time.Unix(1, 0)
	_ = e.SetReadDeadline(past) // an error says that it is closed
	_ = e.SetWriteDeadline(past)
}

// Options are what a relay asks and tells its owner. All may be nil.
type Options struct {
	// Up and Down delay what the guest sends and receives.
	Up, Down Limiter
	// Before is called before a byte of the guest is read. If it fails, none is passed on. Bytes
	// of the server pass meanwhile; ctx ends with the flow. Before may change the deadline for
	// reading of the guest's end.
	Before func(ctx context.Context) error
	// ServerEnded is called when the server has ended its stream, before the guest's end shows
	// it; GuestEnded likewise.
	ServerEnded, GuestEnded func()
	// GuestHungUp is called when the guest's end is closed, and not only shut down: a reset, or
	// the death of who had it, may be the reason. It returns when Abort was called if that is so.
	// ServerHungUp is the same for a server's end that is a socket pair.
	GuestHungUp, ServerHungUp func(ctx context.Context)
	// Attached is called with the relay before it carries anything.
	Attached func(*Relay)
}

// Relay carries one flow.
type Relay struct {
	guest, server end
	opts          Options

	ctx    context.Context // ends with the flow: for the limiters and Before
	cancel context.CancelFunc

	up, down atomic.Int64
	upDone   atomic.Bool // the guest's end was passed on

	mu    sync.Mutex
	cause error // why it was aborted; guarded by mu
}

// New returns the relay of a flow, of whose ends it takes ownership.
func New(guest, server Socket, opts Options) (*Relay, error) {
	r := &Relay{opts: opts}
	var gerr, serr error
	r.guest, gerr = newEnd(guest)
	r.server, serr = newEnd(server)
	if err := errors.Join(gerr, serr); err != nil {
		guest.Close()
		server.Close()
		return nil, fmt.Errorf("open flow: %w", err)
	}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	return r, nil
}

// Bytes returns how many bytes the guest has sent and received.
func (r *Relay) Bytes() (up, down int64) { return r.up.Load(), r.down.Load() }

// Run carries bytes until both directions have ended. It returns nil, ErrServerReset, the error of
// Before or the cause of Abort. Both ends stay open until Close, so that the guest's side is told of
// a reset before it sees the end.
func (r *Relay) Run() error {
	if r.opts.Attached != nil {
		r.opts.Attached(r)
	}
	var wg sync.WaitGroup
	var downErr error
	wg.Go(func() { downErr = r.runDown() })
	upErr := r.runUp()
	wg.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cause != nil {
		return r.cause
	}
	return errors.Join(upErr, downErr)
}

// runUp is the direction from the guest to the server.
func (r *Relay) runUp() error {
	if r.opts.Before != nil {
		if err := r.opts.Before(r.ctx); err != nil {
			if r.ctx.Err() != nil {
				return nil // the flow has ended, and Before with it
			}
			r.Abort(err)
			return err
		}
		if r.ctx.Err() != nil {
			r.guest.stop() // once more: Before has had the deadline
		}
	}
	side, err := r.pass(r.guest, r.server, r.opts.Up, &r.up)
	if err == nil || side == reading {
		r.askHungUp(r.guest, r.opts.GuestHungUp)
	}
	switch {
	case r.ctx.Err() != nil:
		return nil // aborted: an end would be taken for that of the stream
	case err == nil || side == reading:
		// The guest's end, or the guest is gone: all that it sent has passed.
		r.upDone.Store(true)
		told(r.opts.GuestEnded)
		r.server.control(func(fd int) { _ = unix.Shutdown(fd, unix.SHUT_WR) })
		return nil
	case isReset(err):
		// The other direction reads what the server sent before.
		return ErrServerReset
	}
	r.stop()
	return nil
}

// askHungUp calls f if the peer has closed an end, a socket pair.
func (r *Relay) askHungUp(e end, f func(ctx context.Context)) {
	if f == nil {
		return
	}
	hungUp := false
	e.control(func(fd int) {
		fds := []unix.PollFd{{Fd: int32(fd)}}
		n, err := unix.Poll(fds, 0)
		hungUp = err == nil && n > 0 && fds[0].Revents&(unix.POLLHUP|unix.POLLERR) != 0
	})
	if hungUp {
		f(r.ctx)
	}
}

func (r *Relay) aborted() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.cause != nil
}

func told(f func()) {
	if f != nil {
		f()
	}
}

// runDown is the direction from the server to the guest.
func (r *Relay) runDown() error {
	side, err := r.pass(r.server, r.guest, r.opts.Down, &r.down)
	if err == nil {
		r.askHungUp(r.server, r.opts.ServerHungUp)
	}
	switch {
	case r.aborted():
		return nil
	case err == nil && !r.wasReset():
		told(r.opts.ServerEnded)
		r.guest.control(func(fd int) { _ = unix.Shutdown(fd, unix.SHUT_WR) })
		return nil
	case err == nil, side == reading && isReset(err):
		r.cancel()
		r.guest.stop()
		return ErrServerReset
	}
	// The guest is gone, or the relay is stopped: nobody waits for more.
	r.server.control(func(fd int) { _ = unix.Shutdown(fd, unix.SHUT_RD) })
	return nil
}

// wasReset reports, at the end of what the server sent, whether that was a reset that the
// other direction was told of: Linux tells it once. A connection that the server has closed is
// not closed here before this side's end was passed on.
func (r *Relay) wasReset() bool {
	reset := false
	r.server.control(func(fd int) {
		const tcpClose = 7 // TCP_CLOSE of linux/tcp_states.h
		info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
		reset = err == nil && info.State == tcpClose && !r.upDone.Load()
	})
	return reset
}

func isReset(err error) bool {
	for _, e := range []error{unix.ECONNRESET, unix.EPIPE, unix.ETIMEDOUT, unix.EHOSTUNREACH, unix.ENETUNREACH, unix.ECONNREFUSED} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// GuestGone says that the guest has closed its end. The rest of what it sent is passed on, as
// long as the server takes it in time.
func (r *Relay) GuestGone() {
	_ = r.server.SetReadDeadline(time.Unix(1, 0)) // an error says that it is closed
	_ = r.server.SetWriteDeadline(time.Now().Add(drainTime))
}

// Abort ends the flow; Run returns cause. A TCP server is sent a reset by Close.
func (r *Relay) Abort(cause error) {
	r.mu.Lock()
	if r.cause == nil {
		r.cause = cause
	}
	r.mu.Unlock()
	r.server.control(func(fd int) {
		_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	})
	r.stop()
}

func (r *Relay) stop() {
	r.cancel()
	r.guest.stop()
	r.server.stop()
}

// Close closes both ends. Run has returned, or was never called.
func (r *Relay) Close() {
	r.cancel()
	r.guest.Close()
	r.server.Close()
}

// side says which end an error is of.
type side int

const (
	reading side = iota
	writing
)

// pass moves bytes until the end of from, and counts them.
func (r *Relay) pass(from, to end, limit Limiter, count *atomic.Int64) (side, error) {
	for {
		if err := awaitWritable(to); err != nil {
			return writing, err
		}
		p, n, err := fill(from)
		if err != nil || n == 0 {
			return reading, err
		}
		if side, err := r.empty(p, to, n, limit, count); err != nil {
			p.close()
			return side, err
		}
		p.giveBack()
	}
}

// awaitWritable waits until to takes bytes.
func awaitWritable(to end) error {
	return to.raw.Write(func(fd uintptr) bool {
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
		n, err := unix.Poll(fds, 0)
		return n != 0 || err != nil
	})
}

// fill waits for bytes of from and returns a pipe with n of them, or no pipe at the end.
func fill(from end) (p *pipe, n int, err error) {
	var perr error
	err = from.raw.Read(func(fd uintptr) bool {
		if p, perr = borrowPipe(); perr != nil {
			return true
		}
		var m int64
		for {
			m, perr = unix.Splice(int(fd), nil, p.w, nil, pipeSize, unix.SPLICE_F_NONBLOCK|unix.SPLICE_F_MOVE)
			if perr != unix.EINTR {
				break
			}
		}
		n = int(m)
		if n <= 0 || perr != nil {
			n = 0
			p.giveBack()
			p = nil
		}
		return perr != unix.EAGAIN
	})
	if err == nil {
		err = perr
	}
	if err != nil && p != nil {
		p.close()
		p = nil
	}
	return p, n, err
}

// empty moves the n bytes of p to an end, as fast as limit lets it.
func (r *Relay) empty(p *pipe, to end, n int, limit Limiter, count *atomic.Int64) (side, error) {
	for limit != nil && n > 0 {
		turn := min(n, limit.Most())
		if err := limit.WaitN(r.ctx, turn); err != nil {
			return writing, os.ErrDeadlineExceeded
		}
		if side, err := move(p, to, turn, count); err != nil {
			return side, err
		}
		n -= turn
	}
	return move(p, to, n, count)
}

// move moves n of the bytes of p to an end.
func move(p *pipe, to end, n int, count *atomic.Int64) (side, error) {
	for n > 0 {
		var m int64
		var werr error
		err := to.raw.Write(func(fd uintptr) bool {
			for {
				m, werr = unix.Splice(p.r, nil, int(fd), nil, n, unix.SPLICE_F_NONBLOCK|unix.SPLICE_F_MOVE)
				if werr != unix.EINTR {
					return werr != unix.EAGAIN
				}
			}
		})
		if err == nil {
			err = werr
		}
		if err != nil {
			return writing, err
		}
		count.Add(m)
		n -= int(m)
	}
	return writing, nil
}
