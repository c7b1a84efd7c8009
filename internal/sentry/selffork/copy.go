package selffork

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Copy is a process that is what this one was at one moment, with a single thread: it works on the
// memory of that moment, while this process goes on. Its methods are called by one goroutine.
type Copy struct {
	pid   int
	ended int // readable when the copy has ended: pidfd_open(2)
	said  int // an eventfd
}

// settling is how long the runtime's threads get before the process is copied.
const settling = 100 * time.Microsecond

// Copy runs do in a copy of the process. All of the program stands still meanwhile, for about a
// millisecond, and as long as the host takes for the page tables of its memory. The copy has the
// descriptors of keep, of which do may use no other than these, and standard error; what is shared
// memory is still shared. Copy does not need what Close frees.
//
// No other thread than that of do exists in the copy, and what the others were doing is not done
// there: a lock that one of them held in a system call is never free. So what runs as do must be
// prepared for in the calling process, which bounds the time that it waits. Signals are blocked in
// the copy, garbage must not be collected in it, and goroutines run when do waits for something, each
// until it waits itself: nothing preempts them, and no timer wakes them.
//
// The copy exits with 0 if do returns no error.
func (f *Forker) Copy(keep []int, do func(say func()) error) (*Copy, error) {
	forking.Lock()
	defer forking.Unlock()
	said, err := unix.Eventfd(0, 0)
	if err != nil {
		return nil, fmt.Errorf("copy process: make eventfd: %w", err)
	}
	keep = append(slices.Clone(keep), 2, said)
	// With one processor no other goroutine runs, and none has taken what the runtime needs to run
	// another one, or to allocate memory.
	processors := runtime.GOMAXPROCS(1)
	runtime.LockOSThread()
	// That has woken the runtime's monitor, which takes a lock of the scheduler for a moment.
	pause := unix.Timespec{Nsec: settling.Nanoseconds()}
	syscall.RawSyscall(unix.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&pause)), 0, 0)
	mask, err := setMask(^uint64(0))
	var pid uintptr
	ended := int32(-1)
	if err == nil {
		var errno syscall.Errno
		flags := uintptr(unix.SIGCHLD | unix.CLONE_PIDFD)
		if pid, _, errno = syscall.RawSyscall6(unix.SYS_CLONE, flags, 0, uintptr(unsafe.Pointer(&ended)), 0, 0, 0); errno != 0 {
			err = fmt.Errorf("copy process: %w", errno)
		} else if pid == 0 {
			runtime.UnlockOSThread()
			f.live(keep, said, do)
		}
		_, _ = setMask(mask)
	}
	runtime.UnlockOSThread()
	runtime.GOMAXPROCS(processors)
	if err != nil {
		unix.Close(said)
		return nil, err
	}
	return &Copy{pid: int(pid), ended: int(ended), said: said}, nil
}

// live is the life of a copy.
func (f *Forker) live(keep []int, said int, do func(say func()) error) {
	err := f.separate(keep)
	if err == nil {
		err = do(func() { _, _ = unix.Write(said, []byte{1, 0, 0, 0, 0, 0, 0, 0}) })
	}
	status := 0
	if err != nil {
		status = 1
		fmt.Fprintln(os.Stderr, "copy:", err)
	}
	for {
		syscall.RawSyscall(unix.SYS_EXIT_GROUP, uintptr(status), 0, 0)
	}
}

// separate has the process end when its original does, closes all descriptors but those to keep, and
// replaces the runtime's poller: both processes would get each other's events. A goroutine that reads
// from another descriptor, or waits in another poller, gets an error: nobody would take its processor
// from it if it had to wait.
func (f *Forker) separate(keep []int) error {
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return fmt.Errorf("end with the original: %w", err)
	}
	for _, p := range f.pollers {
		i := slices.IndexFunc(p.targets, func(t target) bool { return t.wakes })
		if i < 0 {
			continue // it is not the runtime's
		}
		poller, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
		if err != nil {
			return fmt.Errorf("make poller: %w", err)
		}
		wake, err := unix.Eventfd(0, 0)
		if err != nil {
			return fmt.Errorf("make what wakes the poller: %w", err)
		}
		if errno := cmp.Or(replace(uintptr(p.fd), uintptr(poller)), replace(uintptr(p.targets[i].fd), uintptr(wake))); errno != 0 {
			return fmt.Errorf("replace poller: %w", errno)
		}
		keep = append(keep, p.fd, p.targets[i].fd)
	}
	slices.Sort(keep)
	from := uint(0)
	for _, fd := range append(keep, -1) { // -1 is the largest descriptor and one more
		if to := uint(uint32(fd)); to > from {
			if err := unix.CloseRange(from, to-1, 0); err != nil {
				return fmt.Errorf("close descriptors: %w", err)
			}
		}
		from = uint(fd) + 1
	}
	return nil
}

// Said waits until the copy has said something, at most for limit. It is an error if it ended
// without.
func (c *Copy) Said(limit time.Duration) error {
	fds := []unix.PollFd{{Fd: int32(c.said), Events: unix.POLLIN}, {Fd: int32(c.ended), Events: unix.POLLIN}}
	if err := await(fds, limit); err != nil {
		return err
	}
	if fds[0].Revents&unix.POLLIN == 0 {
		return errors.New("the copy of the process ended early")
	}
	return nil
}

// End waits until the copy has ended, at most for limit, after which it is killed. It must be called
// once. It is an error if the copy did not exit with 0.
func (c *Copy) End(limit time.Duration) error {
	defer unix.Close(c.said)
	defer unix.Close(c.ended)
	err := await([]unix.PollFd{{Fd: int32(c.ended), Events: unix.POLLIN}}, limit)
	if err != nil {
		_ = unix.Tgkill(c.pid, c.pid, unix.SIGKILL) // it may have ended just now
	}
	var status unix.WaitStatus
	for {
		_, werr := unix.Wait4(c.pid, &status, 0, nil)
		if werr == unix.EINTR {
			continue
		}
		if werr != nil {
			return errors.Join(err, fmt.Errorf("wait for the copy of the process: %w", werr))
		}
		break
	}
	if err == nil && status != 0 {
		err = fmt.Errorf("the copy of the process ended with status %#x", uint32(status))
	}
	return err
}

var errLate = errors.New("the copy of the process takes too long")

// await waits for one of fds.
func await(fds []unix.PollFd, limit time.Duration) error {
	deadline := time.Now().Add(limit)
	for {
		left := unix.NsecToTimespec(max(0, time.Until(deadline).Nanoseconds()))
		n, err := unix.Ppoll(fds, &left, nil)
		switch {
		case err == unix.EINTR:
		case err != nil:
			return fmt.Errorf("wait for the copy of the process: %w", err)
		case n == 0:
			return errLate
		default:
			return nil
		}
	}
}
