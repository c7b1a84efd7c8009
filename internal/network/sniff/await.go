package sniff

import (
	"context"
	"errors"
	"io"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Socket is the end of a stream that does not block.
type Socket interface {
	syscall.Conn
	SetReadDeadline(time.Time) error
}

// Timeouts say how long a client may take.
type Timeouts struct {
	// First is the time to the first byte; 0 is as long as it likes, for protocols in which
	// the server speaks first.
	First time.Duration
	// Rest is the time from the first byte until it has said its name.
	Rest time.Duration
}

// Await waits for the first bytes of a client and leaves them in the socket. io.EOF says that
// the client has sent nothing and has ended. Await gives up when ctx ends.
func Await(ctx context.Context, s Socket, limits Timeouts) (Found, error) {
	raw, err := s.SyscallConn()
	if err != nil {
		return Found{}, err
	}
	d := deadline{socket: s, ctx: ctx}
	defer d.clear()
	if err := d.set(limits.First); err != nil {
		return Found{}, err
	}
	stop := context.AfterFunc(ctx, d.expire)
	defer stop()
	var found Found
	began := false
	err = readAll(raw, func(b []byte, ended bool) (done bool, err error) {
		found, err = Parse(b)
		switch {
		case !errors.Is(err, ErrMore):
			return true, err
		case ended && len(b) == 0:
			return true, io.EOF
		case ended:
			return true, ErrMalformed
		}
		if len(b) > 0 && !began {
			began = true
			err = d.set(limits.Rest)
			return err != nil, err
		}
		return false, nil
	})
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return found, err
}

// deadline is that of a socket while Await has it. The end of ctx is not undone by another one.
type deadline struct {
	socket Socket
	ctx    context.Context
	mu     sync.Mutex
	over   bool // Await has returned; guarded by mu
}

// set gives the client a time; 0 is as long as it likes.
func (d *deadline) set(limit time.Duration) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ctx.Err() != nil {
		return d.socket.SetReadDeadline(time.Unix(1, 0))
	}
	if limit == 0 {
		return d.socket.SetReadDeadline(time.Time{})
	}
	return d.socket.SetReadDeadline(time.Now().Add(limit))
}

// expire ends the waiting.
func (d *deadline) expire() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.over {
		_ = d.socket.SetReadDeadline(time.Unix(1, 0)) // it is closed
	}
}

func (d *deadline) clear() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.over = true
	_ = d.socket.SetReadDeadline(time.Time{}) // it is closed
}

// readAll shows f all bytes in the socket each time that there are more, until it is done.
func readAll(raw syscall.RawConn, f func(b []byte, ended bool) (done bool, err error)) error {
	var buf []byte
	seen := 0
	var rerr error
	err := raw.Read(func(fd uintptr) bool {
		for {
			if buf == nil {
				buf = make([]byte, 2<<10)
			}
			n, _, err := unix.Recvfrom(int(fd), buf, unix.MSG_PEEK|unix.MSG_DONTWAIT)
			switch {
			case errors.Is(err, unix.EINTR):
				continue
			case errors.Is(err, unix.EAGAIN):
				buf = nil // a client that says nothing costs nothing
				return false
			case err != nil:
				rerr = err
				return true
			case n == len(buf) && n < MaxBytes:
				buf = make([]byte, min(4*n, MaxBytes))
				continue
			}
			ended := n == seen && hungUp(int(fd))
			if n == seen && !ended {
				return false
			}
			seen = n
			done, err := f(buf[:n], ended)
			rerr = err
			if done || err != nil {
				return true
			}
		}
	})
	return errors.Join(rerr, err)
}

// hungUp reports whether the peer sends nothing any more.
func hungUp(fd int) bool {
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n > 0 && fds[0].Revents&(unix.POLLRDHUP|unix.POLLHUP|unix.POLLERR) != 0
}
