package selffork

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// poller is an epoll instance: the Go runtime has one from its first timer or file
// on. A fork shares it with the parent, so that both would get the other's events.
type poller struct {
	fd      int
	targets []target
}

// target is a descriptor that a poller watches. The event is what epoll_ctl(2) takes.
type target struct {
	fd     int
	wakes  bool // it is an eventfd, which would be shared as well
	events uint32
	data   uint64
}

// findPollers reads what the kernel knows of all pollers (proc_pid_fdinfo(5)). proc is
// /proc/self.
func findPollers(proc *os.Root) ([]poller, error) {
	dir, err := proc.Open("fd")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("list descriptors: %w", err)
	}
	kinds := map[int]string{}
	for _, name := range names {
		fd, err := strconv.Atoi(name)
		if err != nil {
			return nil, fmt.Errorf("list descriptors: %w", err)
		}
		// What was closed since has no kind.
		if kinds[fd], err = proc.Readlink("fd/" + name); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("list descriptors: %w", err)
		}
	}
	var pollers []poller
	for fd, kind := range kinds {
		if kind != "anon_inode:[eventpoll]" {
			continue
		}
		info, err := proc.ReadFile("fdinfo/" + strconv.Itoa(fd))
		if err != nil {
			return nil, fmt.Errorf("read targets of poller: %w", err)
		}
		p := poller{fd: fd}
		for line := range strings.Lines(string(info)) {
			if !strings.HasPrefix(line, "tfd:") {
				continue
			}
			var t target
			if _, err := fmt.Sscanf(line, "tfd: %d events: %x data: %x", &t.fd, &t.events, &t.data); err != nil {
				return nil, fmt.Errorf("read targets of poller: %q: %w", line, err)
			}
			t.wakes = kinds[t.fd] == "anon_inode:[eventfd]"
			p.targets = append(p.targets, t)
		}
		pollers = append(pollers, p)
	}
	return pollers, nil
}

// renew replaces the poller, and the eventfds that wake it, by new ones with the same
// numbers. See split for what it may not do.
//
//go:nosplit
//go:norace
func (p *poller) renew() syscall.Errno {
	errno := renewEpoll(uintptr(p.fd))
	for i := 0; i < len(p.targets) && errno == 0; i++ {
		t := &p.targets[i]
		if t.wakes {
			// It begins with a wake: one may have been under way, and the runtime
			// sends no second before the first has come.
			if errno = renewEventfd(uintptr(t.fd), 1, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); errno != 0 {
				break
			}
		}
		event := unix.EpollEvent{Events: t.events, Fd: int32(uint32(t.data)), Pad: int32(uint32(t.data >> 32))}
		_, _, errno = syscall.RawSyscall6(unix.SYS_EPOLL_CTL, uintptr(p.fd), unix.EPOLL_CTL_ADD, uintptr(t.fd), uintptr(unsafe.Pointer(&event)), 0, 0)
		if errno == unix.EBADF || errno == unix.EPERM { // it was closed since, and its number is a file's that is never polled
			errno = 0
		}
	}
	return errno
}

// renewEpoll puts a new epoll instance in the place of a descriptor.
//
//go:nosplit
//go:norace
func renewEpoll(old uintptr) syscall.Errno {
	fd, _, errno := syscall.RawSyscall(unix.SYS_EPOLL_CREATE1, unix.EPOLL_CLOEXEC, 0, 0)
	if errno == 0 {
		errno = replace(old, fd)
	}
	return errno
}

// renewEventfd puts a new eventfd(2) in the place of a descriptor.
//
//go:nosplit
//go:norace
func renewEventfd(old, count, flags uintptr) syscall.Errno {
	fd, _, errno := syscall.RawSyscall(unix.SYS_EVENTFD2, count, flags, 0)
	if errno == 0 {
		errno = replace(old, fd)
	}
	return errno
}

//go:nosplit
//go:norace
func replace(old, by uintptr) syscall.Errno {
	_, _, errno := syscall.RawSyscall(unix.SYS_DUP3, by, old, unix.O_CLOEXEC)
	if errno == 0 {
		_, _, errno = syscall.RawSyscall(unix.SYS_CLOSE, by, 0, 0)
	}
	return errno
}
