package main

import (
	"fmt"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// forked is a process made by fork(2) without exec(2). It shares an anonymous
// mapping with this one, in which both wait for each other, and has the value in
// a page that both had at the time of the fork and that is private since then.
type forked struct {
	shared  *exchange
	private *exchange
	pid     int
}

// exchange is one page of memory.
type exchange struct {
	request uint32 // counts up with each request; the process waits for it
	reply   uint32 // follows
	op      uint32
	text    [4000]byte
}

const (
	opSet = 1
	opGet = 2
)

func newForked() (item, error) {
	pages := [2]*exchange{}
	for i, flags := range []int{unix.MAP_SHARED, unix.MAP_PRIVATE} {
		m, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, flags|unix.MAP_ANON)
		if err != nil {
			return nil, err
		}
		pages[i] = (*exchange)(unsafe.Pointer(&m[0]))
	}
	f := &forked{shared: pages[0], private: pages[1]}
	copy(f.private.text[:], "of the parent")
	return f, f.fork()
}

func (f *forked) fork() error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	syscall.ForkLock.Lock()
	defer syscall.ForkLock.Unlock()
	all, old := ^uint64(0), uint64(0)
	syscall.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(&all)), uintptr(unsafe.Pointer(&old)), 8, 0, 0)
	pid, _, errno := syscall.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	if errno == 0 && pid == 0 {
		serveForked(f.shared, f.private) // does not return
	}
	syscall.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(&old)), 0, 8, 0, 0)
	if errno != 0 {
		return errno
	}
	f.pid = int(pid)
	return nil
}

// serveForked is all that the new process does. It has one thread and half a
// runtime, so it must not call anything that grows the stack or allocates.
//
//go:nosplit
//go:norace
func serveForked(shared, private *exchange) {
	seen := uint32(0)
	for {
		for shared.request == seen {
			syscall.RawSyscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(&shared.request)), futexWait, uintptr(seen), 0, 0, 0)
		}
		seen = shared.request
		from, to := &private.text, &shared.text
		if shared.op == opSet {
			from, to = to, from
		}
		*to = *from
		shared.reply = seen
		syscall.RawSyscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(&shared.reply)), futexWake, 1, 0, 0, 0)
	}
}

// The operations of futex(2) between processes.
const (
	futexWait = 0
	futexWake = 1
)

// call makes one request and waits for its end.
func (f *forked) call(op uint32) error {
	f.shared.op = op
	f.shared.request++
	want := f.shared.request
	wake(&f.shared.request)
	return await(&f.shared.reply, want)
}

func (f *forked) set(v string) error {
	clear(f.shared.text[:])
	copy(f.shared.text[:], v)
	return f.call(opSet)
}

func (f *forked) get() (string, error) {
	clear(f.shared.text[:])
	if err := f.call(opGet); err != nil {
		return "", err
	}
	if s := cstring(f.private.text[:]); s != "of the parent" {
		return "", fmt.Errorf("the parent's own page became %q", s)
	}
	return cstring(f.shared.text[:]), nil
}
