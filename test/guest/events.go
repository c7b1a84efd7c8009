package main

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/signal"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// eventfd is a counter that an epoll instance reports.
type eventfd struct {
	numbered
	event, epoll int
}

// cookie is what the epoll instance says about the counter.
const cookie = 77

func newEventfd() (item, error) {
	event, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, err
	}
	return &eventfd{event: event, epoll: epoll}, unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, event, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: cookie})
}

// take waits for the counter's event and reads it.
func (e *eventfd) take(patienceMS int) (uint64, error) {
	events := make([]unix.EpollEvent, 4)
	n, err := unix.EpollWait(e.epoll, events, patienceMS)
	if err == unix.EINTR {
		return e.take(patienceMS)
	}
	if err != nil || n == 0 {
		return 0, err
	}
	if n != 1 || events[0].Fd != cookie {
		return 0, fmt.Errorf("epoll reports %d events, the first of %d", n, events[0].Fd)
	}
	var b [8]byte
	_, err = unix.Read(e.event, b[:])
	return binary.LittleEndian.Uint64(b[:]), err
}

func (e *eventfd) put(n uint64) error {
	_, err := unix.Write(e.event, binary.LittleEndian.AppendUint64(nil, n))
	return err
}

func (e *eventfd) set(v string) error {
	e.want = v
	if _, err := e.take(0); err != nil {
		return err
	}
	return e.put(uint64(number(v)))
}

func (e *eventfd) get() (string, error) {
	n, err := e.take(int(patience.Milliseconds()))
	if err != nil {
		return "", err
	}
	if err := e.put(n); err != nil {
		return "", err
	}
	return e.check(uint32(n))
}

// timerfd is a timer that expires all the time.
type timerfd struct {
	heap
	fd int
}

func newTimerfd() (item, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return nil, err
	}
	every := unix.NsecToTimespec(int64(50 * time.Millisecond))
	return &timerfd{fd: fd}, unix.TimerfdSettime(fd, 0, &unix.ItimerSpec{Interval: every, Value: every}, nil)
}

func (t *timerfd) get() (string, error) {
	for range 2 { // one may have expired before
		if err := awaitReadable(t.fd); err != nil {
			return "", fmt.Errorf("timer stands still: %w", err)
		}
		if _, err := unix.Read(t.fd, make([]byte, 8)); err != nil {
			return "", err
		}
	}
	return t.heap.get()
}

// itimer is a POSIX timer that will not expire for a long time.
type itimer struct {
	numbered
	id int32
}

func newItimer() (item, error) {
	t := &itimer{}
	_, _, errno := unix.Syscall(unix.SYS_TIMER_CREATE, unix.CLOCK_MONOTONIC, 0, uintptr(unsafe.Pointer(&t.id)))
	if errno != 0 {
		return nil, errno
	}
	return t, nil
}

// hours of the timer, plus the value in seconds.
const hours = 1000 * 3600

func (t *itimer) set(v string) error {
	t.want = v
	spec := unix.ItimerSpec{Value: unix.Timespec{Sec: hours + int64(number(v)%hours)}}
	_, _, errno := unix.Syscall6(unix.SYS_TIMER_SETTIME, uintptr(t.id), 0, uintptr(unsafe.Pointer(&spec)), 0, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

func (t *itimer) get() (string, error) {
	var left unix.ItimerSpec
	_, _, errno := unix.Syscall(unix.SYS_TIMER_GETTIME, uintptr(t.id), uintptr(unsafe.Pointer(&left)), 0)
	if errno != 0 {
		return "", errno
	}
	want := hours + int64(number(t.want)%hours)
	const slack = 600 // seconds that the test itself may take
	if left.Value.Sec > want || left.Value.Sec < want-slack {
		return "", fmt.Errorf("timer has %d s left, not about %d", left.Value.Sec, want)
	}
	return t.want, nil
}

// signalCount is a handler that counts.
type signalCount struct {
	heap
	came chan os.Signal
}

func newSignal() (item, error) {
	s := &signalCount{came: make(chan os.Signal, 1)}
	signal.Notify(s.came, unix.SIGUSR1)
	return s, nil
}

func (s *signalCount) get() (string, error) {
	if err := unix.Kill(os.Getpid(), unix.SIGUSR1); err != nil {
		return "", err
	}
	select {
	case <-s.came:
	case <-time.After(patience):
		return "", fmt.Errorf("no signal within %v", patience)
	}
	return s.heap.get()
}

// fdLimit is a resource limit.
type fdLimit struct{ numbered }

func newFDLimit() (item, error) { return &fdLimit{}, nil }

func (l *fdLimit) limit() uint64 { return 1000 + uint64(number(l.want)%1000) }

func (l *fdLimit) set(v string) error {
	l.want = v
	var now unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &now); err != nil {
		return err
	}
	now.Cur = l.limit()
	return unix.Setrlimit(unix.RLIMIT_NOFILE, &now)
}

func (l *fdLimit) get() (string, error) {
	var now unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &now); err != nil {
		return "", err
	}
	if now.Cur != l.limit() {
		return "", fmt.Errorf("limit is %d, not %d", now.Cur, l.limit())
	}
	return l.want, nil
}
