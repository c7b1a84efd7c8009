package peer

import (
	"encoding/binary"
	"net"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Idle and three times Probe is how long a peer that cannot be reached stays
// unnoticed on a connection that KeepAlive was called with.
const (
	Idle  = 30 * time.Second
	Probe = 10 * time.Second
)

// KeepAliveConfig is what KeepAlive sets.
var KeepAliveConfig = net.KeepAliveConfig{Enable: true, Idle: Idle, Interval: Probe, Count: 3}

// KeepAlive has the kernel ask the peer of a TCP connection from time to time
// whether it is there. Other connections end with their peer.
func KeepAlive(conn net.Conn) {
	if tcp, ok := under(conn).(*net.TCPConn); ok {
		_ = tcp.SetKeepAliveConfig(KeepAliveConfig) // on an error it has those of the system
	}
}

// Reset ends a connection so that the peer does not take what it got for all.
func Reset(conn net.Conn) {
	if tcp, ok := under(conn).(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
		tcp.Close() // before TLS says that this was the end
	}
	conn.Close()
}

// under returns the connection that TLS is spoken on, or conn.
func under(conn net.Conn) net.Conn {
	if outer, ok := conn.(interface{ NetConn() net.Conn }); ok {
		return outer.NetConn()
	}
	return conn
}

// Ended returns a channel that is closed when the peer of conn says that nothing
// more comes, or is gone, although unread data waits in it: reading would have to
// take that data first. The caller must not read meanwhile and must call stop,
// which waits; the connection is not closed before that. On a connection that has no descriptor of its own the channel is
// never closed.
func Ended(conn net.Conn) (ended <-chan struct{}, stop func()) { return watch(conn, unix.POLLRDHUP) }

// Gone is like Ended, but for a peer that takes nothing more either: it has closed
// the connection and not only its direction of it, or cannot be reached. Who has
// closed TCP is found out by what is sent to him, and by KeepAlive.
func Gone(conn net.Conn) (gone <-chan struct{}, stop func()) { return watch(conn, 0) }

func watch(conn net.Conn, events int16) (<-chan struct{}, func()) {
	sc, ok := under(conn).(syscall.Conn)
	if !ok {
		return nil, func() {}
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return nil, func() {}
	}
	// A duplicate may be waited for while others use, or close, the connection.
	fd := -1
	_ = raw.Control(func(own uintptr) {
		if dup, err := unix.FcntlInt(own, unix.F_DUPFD_CLOEXEC, 0); err == nil {
			fd = dup
		}
	})
	if fd < 0 {
		return nil, func() {}
	}
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		_ = unix.Close(fd)
		return nil, func() {}
	}
	ch := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		if poll(int32(fd), events, int32(wake)) {
			close(ch)
		}
	})
	return ch, func() {
		var one [8]byte
		binary.NativeEndian.PutUint64(one[:], 1)
		_, _ = unix.Write(wake, one[:])
		wg.Wait()
		_ = unix.Close(wake)
		_ = unix.Close(fd)
	}
}

// poll blocks until fd hangs up or one of events is there, or wake can be read.
func poll(fd int32, events int16, wake int32) bool {
	fds := []unix.PollFd{{Fd: fd, Events: events}, {Fd: wake, Events: unix.POLLIN}}
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

// WhenGone calls end when the peer of conn has been gone for as long as linger says:
// the other side of a relay may still need what came before. The caller must call
// stop, which waits, and end must not.
func WhenGone(conn net.Conn, linger time.Duration, end func()) (stop func()) {
	gone, unwatch := Gone(conn)
	over := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		select {
		case <-gone:
		case <-over:
			return
		}
		timer := time.NewTimer(linger)
		defer timer.Stop()
		select {
		case <-timer.C:
			end()
		case <-over:
		}
	})
	return func() {
		close(over)
		wg.Wait()
		unwatch()
	}
}
