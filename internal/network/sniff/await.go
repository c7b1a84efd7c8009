package sniff

import (
	"errors"
	"io"
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
// the client has sent nothing and has ended.
func Await(s Socket, limits Timeouts) (Found, error) {
	raw, err := s.SyscallConn()
	if err != nil {
		return Found{}, err
	}
	if limits.First > 0 {
		if err := s.SetReadDeadline(time.Now().Add(limits.First)); err != nil {
			return Found{}, err
		}
	}
	defer s.SetReadDeadline(time.Time{}) // an error says that it is closed
	var found Found
	err = errors.Join(readAll(raw, func(b []byte, ended bool) (done bool, err error) {
		found, err = Parse(b)
		switch {
		case !errors.Is(err, ErrMore):
			return true, err
		case ended && len(b) == 0:
			return true, io.EOF
		case ended:
			return true, ErrMalformed
		}
		if len(b) > 0 && limits.Rest > 0 {
			err = s.SetReadDeadline(time.Now().Add(limits.Rest))
			limits.Rest = 0
			return err != nil, err
		}
		return false, nil
	}))
	return found, err
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
