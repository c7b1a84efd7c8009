package selffork

import (
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
// until it waits itself: nothing preempts them, and no timer wakes them. A goroutine that reads from
// another descriptor than those of keep, or waits in another poller than the runtime's, gets an error:
// nobody would take its processor from it if it had to wait.
//
// The copy ends with its original. It exits with 0 if do returns no error.
func (f *Forker) Copy(keep []int, do func(say func()) error) (*Copy, error) {
	forking.Lock()
	defer forking.Unlock()
	said, err := unix.Eventfd(0, 0)
	if err != nil {
		return nil, fmt.Errorf("copy process: make eventfd: %w", err)
	}
	c := f.cloning(append(slices.Clone(keep), 2, said))
	// With one processor no other goroutine runs, and none has taken what the runtime needs to run
	// another one, or to allocate memory.
	processors := runtime.GOMAXPROCS(1)
	runtime.LockOSThread()
	pid, errno := c.run()
	runtime.UnlockOSThread()
	if pid == 0 && errno == 0 {
		live(said, do)
	}
	runtime.GOMAXPROCS(processors)
	if errno != 0 {
		unix.Close(said)
		return nil, fmt.Errorf("copy process: %w", errno)
	}
	return &Copy{pid: int(pid), ended: int(c.ended), said: said}, nil
}

// live is the life of a copy.
func live(said int, do func(say func()) error) {
	err := do(func() { _, _ = unix.Write(said, []byte{1, 0, 0, 0, 0, 0, 0, 0}) })
	status := 0
	if err != nil {
		status = 1
		fmt.Fprintln(os.Stderr, "copy:", err)
	}
	for {
		syscall.RawSyscall(unix.SYS_EXIT_GROUP, uintptr(status), 0, 0)
	}
}

// cloning is one copy. Its methods run in one piece: the runtime may have marked the goroutine to give up its
// processor, and the copy would go on with another one, that takes what has come for the original from a
// descriptor that both have. See split for what no method may do.
type cloning struct {
	keep    []int // descriptors in order, and -1
	pollers []wakened
	settle  unix.Timespec
	ended   int32 // see Copy
}

// wakened is a poller of the runtime.
type wakened struct{ poller, wake uintptr }

func (f *Forker) cloning(keep []int) *cloning {
	c := &cloning{settle: unix.NsecToTimespec(settling.Nanoseconds()), ended: -1}
	for _, p := range f.pollers {
		if i := slices.IndexFunc(p.targets, func(t target) bool { return t.wakes }); i >= 0 { // else it is not the runtime's
			c.pollers = append(c.pollers, wakened{uintptr(p.fd), uintptr(p.targets[i].fd)})
			keep = append(keep, p.fd, p.targets[i].fd)
		}
	}
	slices.Sort(keep)
	c.keep = append(keep, -1)
	return c
}

// run returns the process id of the copy, 0 in it.
//
//go:nosplit
//go:norace
func (c *cloning) run() (pid uintptr, errno syscall.Errno) {
	mask, errno := swapMask(^uint64(0))
	if errno != 0 {
		return 0, errno
	}
	// Locking the thread has woken the runtime's monitor, which takes a lock of the scheduler for a moment.
	syscall.RawSyscall(unix.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&c.settle)), 0, 0)
	if pid, _, errno = syscall.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD|unix.CLONE_PIDFD), 0, uintptr(unsafe.Pointer(&c.ended)), 0, 0, 0); errno == 0 && pid == 0 {
		c.separate()
		return 0, 0
	}
	_, _ = swapMask(mask)
	return pid, errno
}

// separate has the copy end when its original does, closes all descriptors but those to keep, and
// replaces the runtime's poller: both processes would get each other's events.
//
//go:nosplit
//go:norace
func (c *cloning) separate() {
	if _, _, errno := syscall.RawSyscall6(unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0, 0); errno != 0 {
		die("copy: end with the original", errno)
	}
	for i := range c.pollers {
		p := &c.pollers[i]
		errno := renewEpoll(p.poller)
		if errno == 0 {
			errno = renewEventfd(p.wake, 0, 0)
		}
		if errno != 0 {
			die("copy: replace poller", errno)
		}
	}
	from := uintptr(0)
	for _, fd := range c.keep {
		if to := uintptr(uint32(fd)); to > from { // -1 is the largest descriptor and one more
			if _, _, errno := syscall.RawSyscall(unix.SYS_CLOSE_RANGE, from, to-1, 0); errno != 0 {
				die("copy: close descriptors", errno)
			}
		}
		from = uintptr(uint32(fd)) + 1
	}
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
