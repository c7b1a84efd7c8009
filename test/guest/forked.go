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
	f := &forked{}
	var err error
	if f.shared, err = newExchange(unix.MAP_SHARED); err != nil {
		return nil, err
	}
	if f.private, err = newExchange(unix.MAP_PRIVATE); err != nil {
		return nil, err
	}
	copy(f.private.text[:], "of the parent")
	return f, fork(serveForked, f.shared, f.private)
}

func newExchange(flags int) (*exchange, error) {
	m, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, flags|unix.MAP_ANON)
	if err != nil {
		return nil, err
	}
	return (*exchange)(unsafe.Pointer(&m[0])), nil
}

// fork makes a process that does nothing but serve, which never returns. It must not check
// for room on the stack: the runtime may have asked by that to be called.
func fork(serve func(shared, private *exchange), shared, private *exchange) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	syscall.ForkLock.Lock()
	defer syscall.ForkLock.Unlock()
	all, old := ^uint64(0), uint64(0)
	syscall.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(&all)), uintptr(unsafe.Pointer(&old)), 8, 0, 0)
	pid, _, errno := syscall.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	if errno == 0 && pid == 0 {
		serve(shared, private)
	}
	syscall.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(&old)), 0, 8, 0, 0)
	if errno != 0 {
		return errno
	}
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
func (x *exchange) call(op uint32) error {
	x.op = op
	x.request++
	want := x.request
	wake(&x.request)
	return await(&x.reply, want)
}

func (f *forked) set(v string) error {
	clear(f.shared.text[:])
	copy(f.shared.text[:], v)
	return f.shared.call(opSet)
}

func (f *forked) get() (string, error) {
	clear(f.shared.text[:])
	if err := f.shared.call(opGet); err != nil {
		return "", err
	}
	if s := cstring(f.private.text[:]); s != "of the parent" {
		return "", fmt.Errorf("the parent's own page became %q", s)
	}
	return cstring(f.shared.text[:]), nil
}
