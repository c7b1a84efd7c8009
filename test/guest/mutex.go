package main

import (
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	futexLockPI   = 6
	futexUnlockPI = 7
)

// inherit has threads take priority-inheriting mutexes in turn while signals interrupt their waits. It fails if a
// thread waits for ever.
func inherit([]string) (int, error) {
	const mutexes, threadsEach, handovers = 4, 3, 2000
	handled := make(chan os.Signal, 1)
	signal.Notify(handled, unix.SIGUSR1)
	var workers sync.WaitGroup
	tids := make(chan int, mutexes*threadsEach)
	errs := make(chan error, mutexes*threadsEach)
	for range mutexes {
		mutex := new(uint32)
		for range threadsEach {
			workers.Go(func() {
				runtime.LockOSThread()
				tids <- unix.Gettid()
				for range handovers {
					if err := lockPI(mutex); err != nil {
						errs <- fmt.Errorf("lock: %w", err)
						return
					}
					runtime.Gosched() // the others come to wait
					if err := unlockPI(mutex); err != nil {
						errs <- fmt.Errorf("unlock: %w", err)
						return
					}
				}
			})
		}
	}
	done := make(chan struct{})
	go func() { workers.Wait(); close(done) }()
	var all []int
	for range mutexes * threadsEach {
		all = append(all, <-tids)
	}
	limit := time.After(patience)
	for {
		for _, tid := range all {
			_ = unix.Tgkill(os.Getpid(), tid, unix.SIGUSR1) // it may have ended
		}
		select {
		case err := <-errs:
			return 1, err
		case <-limit:
			return 1, fmt.Errorf("threads wait for their mutexes after %v", patience)
		case <-done:
			return 0, nil
		case <-time.After(time.Millisecond):
		}
	}
}

func lockPI(mutex *uint32) error {
	tid := uint32(unix.Gettid())
	if atomic.CompareAndSwapUint32(mutex, 0, tid) {
		return nil
	}
	for {
		_, err := rawCall(unix.SYS_FUTEX, uintptr(unsafe.Pointer(mutex)), futexLockPI, 0, 0)
		if err == nil || err != unix.EINTR && err != unix.EAGAIN {
			return err
		}
	}
}

func unlockPI(mutex *uint32) error {
	if atomic.CompareAndSwapUint32(mutex, uint32(unix.Gettid()), 0) {
		return nil
	}
	_, err := rawCall(unix.SYS_FUTEX, uintptr(unsafe.Pointer(mutex)), futexUnlockPI)
	return err
}
