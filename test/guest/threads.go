package main

import (
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// patience bounds every wait for something that should happen at once.
const patience = 25 * time.Second

func wake(addr *uint32) {
	syscall.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(addr)), futexWake, 1<<30, 0, 0, 0)
}

// await waits until *addr is want.
func await(addr *uint32, want uint32) error {
	until := time.Now().Add(patience)
	for {
		now := atomic.LoadUint32(addr)
		if now == want {
			return nil
		}
		if time.Now().After(until) {
			return fmt.Errorf("no answer within %v", patience)
		}
		limit := syscall.NsecToTimespec(int64(100 * time.Millisecond))
		syscall.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(addr)), futexWait, uintptr(now), uintptr(unsafe.Pointer(&limit)), 0, 0)
	}
}

// threads are threads that each wait in the kernel, not in the runtime, and
// know a share of the value.
type threads struct{ list [4]*thread }

type thread struct {
	tid            int
	request, reply uint32
	in, out        string
	isSet          bool
}

func newThreads() (item, error) {
	t := &threads{}
	for i := range t.list {
		started := make(chan *thread)
		go runThread(started)
		t.list[i] = <-started
	}
	return t, nil
}

func runThread(started chan<- *thread) {
	runtime.LockOSThread()
	t := &thread{tid: unix.Gettid()}
	started <- t
	known := ""
	for n := uint32(1); ; n++ {
		for atomic.LoadUint32(&t.request) != n {
			// Not through await: the thread shall sleep without a limit.
			syscall.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(&t.request)), futexWait, uintptr(n-1), 0, 0, 0)
		}
		if t.isSet {
			known = t.in
		}
		t.out = fmt.Sprintf("%d %s", unix.Gettid(), known)
		atomic.StoreUint32(&t.reply, n)
		wake(&t.reply)
	}
}

func (t *thread) call() error {
	n := atomic.AddUint32(&t.request, 1)
	wake(&t.request)
	return await(&t.reply, n)
}

func (t *threads) set(v string) error {
	for i, x := range t.list {
		x.in, x.isSet = fmt.Sprint(v, i), true
		if err := x.call(); err != nil {
			return err
		}
		x.isSet = false
	}
	return nil
}

func (t *threads) get() (string, error) {
	value := ""
	for i, x := range t.list {
		if err := x.call(); err != nil {
			return "", fmt.Errorf("thread %d: %w", i, err)
		}
		var tid int
		var v string
		if _, err := fmt.Sscan(x.out, &tid, &v); err != nil || tid != x.tid {
			return "", fmt.Errorf("thread %d was %d, answers %q (%v)", i, x.tid, x.out, err)
		}
		v = v[:len(v)-1]
		if i > 0 && v != value {
			return "", fmt.Errorf("thread %d knows %q, not %q", i, v, value)
		}
		value = v
	}
	return value, nil
}

// pending is a signal with a number that waits, blocked, for one thread.
type pending struct {
	numbered
	call chan func() error
	done chan error
}

// pendingSignal is a real-time signal, which carries a value.
const pendingSignal = 40

func newPending() (item, error) {
	p := &pending{call: make(chan func() error), done: make(chan error)}
	go func() {
		runtime.LockOSThread()
		mask := unix.Sigset_t{}
		mask.Val[0] = 1 << (pendingSignal - 1)
		p.done <- unix.PthreadSigmask(unix.SIG_BLOCK, &mask, nil)
		for fn := range p.call {
			p.done <- fn()
		}
	}()
	return p, <-p.done
}

// siginfo is siginfo_t of a queued signal, see sigaction(2).
type siginfo struct {
	signo, errno, code, _ int32
	pid, uid              int32
	value                 uint64
	_                     [96]byte
}

func (p *pending) queue(n uint32) error {
	const siQueue = -1
	info := siginfo{signo: pendingSignal, code: siQueue, pid: int32(os.Getpid()), value: uint64(n)}
	_, _, errno := syscall.RawSyscall6(unix.SYS_RT_TGSIGQUEUEINFO, uintptr(os.Getpid()), uintptr(unix.Gettid()), pendingSignal, uintptr(unsafe.Pointer(&info)), 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

func (p *pending) take() (uint32, error) {
	set, now := uint64(1)<<(pendingSignal-1), unix.Timespec{}
	var info siginfo
	_, _, errno := syscall.Syscall6(unix.SYS_RT_SIGTIMEDWAIT, uintptr(unsafe.Pointer(&set)), uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&now)), 8, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return uint32(info.value), nil
}

func (p *pending) set(v string) error {
	p.want = v
	p.call <- func() error {
		for {
			if _, err := p.take(); err == unix.EAGAIN {
				return p.queue(number(v))
			} else if err != nil {
				return err
			}
		}
	}
	return <-p.done
}

func (p *pending) get() (string, error) {
	var n uint32
	p.call <- func() (err error) {
		if n, err = p.take(); err != nil {
			return fmt.Errorf("no signal is pending: %w", err)
		}
		return p.queue(n)
	}
	if err := <-p.done; err != nil {
		return "", err
	}
	return p.check(n)
}
