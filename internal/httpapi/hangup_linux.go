package httpapi

import (
	"encoding/binary"
	"net"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// watchHangup returns a channel that is closed when the peer of conn ends the
// connection, although unread data waits in it: reading would have to take that
// data first. The caller must not read meanwhile and must call stop, which
// waits. On a connection that has no descriptor of its own the channel is never
// closed.
func watchHangup(conn net.Conn) (gone <-chan struct{}, stop func()) {
	sc, ok := conn.(syscall.Conn)
	if !ok {
		return nil, func() {}
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return nil, func() {}
	}
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		return nil, func() {}
	}
	ch := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		// Control keeps the descriptor from being closed and used again.
		_ = raw.Control(func(fd uintptr) {
			if pollHangup(int32(fd), int32(wake)) {
				close(ch)
			}
		})
	})
	return ch, func() {
		var one [8]byte
		binary.NativeEndian.PutUint64(one[:], 1)
		_, _ = unix.Write(wake, one[:])
		wg.Wait()
		_ = unix.Close(wake)
	}
}

// pollHangup blocks until the peer of fd hangs up, or wake can be read.
func pollHangup(fd, wake int32) bool {
	fds := []unix.PollFd{{Fd: fd, Events: unix.POLLRDHUP}, {Fd: wake, Events: unix.POLLIN}}
	for {
		if _, err := unix.Poll(fds, -1); err != nil && err != unix.EINTR {
			return false
		}
		if fds[0].Revents != 0 {
			return true
		}
		if fds[1].Revents != 0 {
			return false
		}
	}
}
