package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// eventKinds are descriptors that something is awaited with, or that have no path.
func eventKinds() map[string]kind {
	timer := func(clock int) kind {
		return opened(func() (int, error) {
			fd, err := unix.TimerfdCreate(clock, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
			if err != nil {
				return 0, err
			}
			every := unix.NsecToTimespec(int64(20 * time.Millisecond))
			return fd, unix.TimerfdSettime(fd, 0, &unix.ItimerSpec{Interval: every, Value: every}, nil)
		}, func(fd int) error {
			if err := awaitReadable(fd); err != nil {
				return err
			}
			_, err := unix.Read(fd, make([]byte, 8))
			return err
		})
	}
	memfd := func(flags int, seals int) kind {
		return opened(func() (int, error) {
			fd, err := unix.MemfdCreate("kind", flags|unix.MFD_CLOEXEC)
			if err != nil {
				return 0, err
			}
			if _, err := unix.Write(fd, []byte("sealed")); err != nil {
				return 0, err
			}
			if seals != 0 {
				_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals)
			}
			return fd, err
		}, func(fd int) error {
			if seals == 0 {
				return rewrite(fd)
			}
			if got, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0); got != seals || err != nil {
				return fmt.Errorf("its seals are %#x, %v", got, err)
			}
			if _, err := unix.Pwrite(fd, []byte("x"), 0); err != unix.EPERM {
				return fmt.Errorf("a write to it: %v", err)
			}
			return wantAt(fd, "sealed")
		})
	}
	attr := make([]byte, 256)
	zeroes := uintptr(unsafe.Pointer(&attr[0]))
	return map[string]kind{
		"eventfd":         countingEvents(0),
		"eventfd-sem":     countingEvents(unix.EFD_SEMAPHORE),
		"epoll-nested":    nestedEpoll,
		"epoll-oneshot":   watching(unix.EPOLLIN | unix.EPOLLONESHOT),
		"epoll-edge":      watching(unix.EPOLLIN | unix.EPOLLET),
		"timer-monotonic": timer(unix.CLOCK_MONOTONIC),
		"timer-realtime":  timer(unix.CLOCK_REALTIME),
		"timer-boottime":  timer(unix.CLOCK_BOOTTIME),
		"timer-alarm":     timer(unix.CLOCK_REALTIME_ALARM),
		"signalfd":        signals,
		"inotify":         notified,
		"memfd":           memfd(0, 0),
		"memfd-sealed":    memfd(unix.MFD_ALLOW_SEALING, unix.F_SEAL_WRITE|unix.F_SEAL_GROW|unix.F_SEAL_SHRINK),
		"memfd-huge":      memfd(unix.MFD_HUGETLB, 0),
		"memfd-secret":    call(nil, unix.SYS_MEMFD_SECRET, 0),
		"pidfd-self":      pidfd(func() (int, error) { return os.Getpid(), nil }),
		"pidfd-child":     pidfd(sleeper),
		"pidfd-zombie":    pidfd(zombie),
		"pidfd-init":      pidfd(func() (int, error) { return 1, nil }),

		"userfaultfd":       call(nil, unix.SYS_USERFAULTFD, unix.O_CLOEXEC),
		"io-uring":          call(nil, unix.SYS_IO_URING_SETUP, 8, zeroes),
		"fanotify":          call(nil, unix.SYS_FANOTIFY_INIT, unix.FAN_CLOEXEC, unix.O_RDONLY),
		"perf":              call(nil, unix.SYS_PERF_EVENT_OPEN, zeroes, 0, ^uintptr(0), ^uintptr(0)),
		"bpf-map":           call(nil, unix.SYS_BPF, unix.BPF_MAP_CREATE, zeroes, 72),
		"bpf-program":       bpfProgram,
		"mqueue":            messageQueue,
		"fsopen":            call(nil, unix.SYS_FSOPEN, cpath("tmpfs"), unix.FSOPEN_CLOEXEC),
		"fsmount":           mountObject,
		"fspick":            call(nil, unix.SYS_FSPICK, ^uintptr(99), cpath("/tmp"), unix.FSPICK_CLOEXEC),
		"open-tree":         call(nil, unix.SYS_OPEN_TREE, ^uintptr(99), cpath("/tmp"), unix.OPEN_TREE_CLOEXEC),
		"open-tree-clone":   call(nil, unix.SYS_OPEN_TREE, ^uintptr(99), cpath("/tmp"), unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC),
		"open-tree-all":     call(nil, unix.SYS_OPEN_TREE, ^uintptr(99), cpath("/"), unix.OPEN_TREE_CLONE|unix.AT_RECURSIVE),
		"landlock":          call(nil, unix.SYS_LANDLOCK_CREATE_RULESET, zeroes, 8, 0),
		"landlock-version":  call(nil, unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, 1),
		"seccomp-listener":  seccomp(unix.SECCOMP_FILTER_FLAG_NEW_LISTENER),
		"name-to-handle":    call(nil, unix.SYS_NAME_TO_HANDLE_AT, ^uintptr(99), cpath("/tmp"), zeroes, zeroes+128, 0),
		"quotactl-fd":       call(nil, unix.SYS_QUOTACTL_FD, 0, 0, 0, 0),
		"mount-setattr":     call(nil, unix.SYS_MOUNT_SETATTR, ^uintptr(99), cpath("/tmp"), 0, zeroes, 32),
		"process-madvise":   call(nil, unix.SYS_PROCESS_MADVISE, 0, zeroes, 0, 0, 0),
		"cachestat":         call(nil, unix.SYS_CACHESTAT, 0, zeroes, zeroes, 0),
		"keyctl-session":    made(func() error { return second(unix.KeyctlGetKeyringID(unix.KEY_SPEC_SESSION_KEYRING, true)) }),
		"keyctl-join":       made(func() error { return second(unix.KeyctlJoinSessionKeyring("")) }),
		"key":               made(func() error { return second(unix.AddKey("user", "kind", []byte("x"), unix.KEY_SPEC_SESSION_KEYRING)) }),
		"aio":               asyncIO,
		"sched-attr":        made(func() error { return unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr}, 0) }),
		"posix-timer-event": itimerKind,
	}
}

func second[T any](_ T, err error) error { return err }

// cpath is a path for a plain system call.
func cpath(s string) uintptr {
	b, err := unix.BytePtrFromString(s)
	if err != nil {
		panic(err) // a constant
	}
	paths = append(paths, b)
	return uintptr(unsafe.Pointer(b))
}

var paths []*byte // that no collection takes what only the kernel refers to

// made is the kind of what has no descriptor.
func made(make func() error) kind {
	return func() (func() error, error) {
		if err := make(); err != nil {
			return nil, err
		}
		return func() error { return nil }, nil
	}
}

func countingEvents(flags int) kind {
	return opened(func() (int, error) { return unix.Eventfd(0, unix.EFD_CLOEXEC|flags) }, func(fd int) error {
		if _, err := unix.Write(fd, binary.LittleEndian.AppendUint64(nil, 1)); err != nil {
			return err
		}
		return wantNext(fd, string(binary.LittleEndian.AppendUint64(nil, 1)))
	})
}

// nestedEpoll is an epoll instance that watches another one, which watches a pipe.
func nestedEpoll() (func() error, error) {
	outer, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, err
	}
	inner, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, err
	}
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return nil, err
	}
	if err := unix.EpollCtl(outer, unix.EPOLL_CTL_ADD, inner, &unix.EpollEvent{Events: unix.EPOLLIN}); err != nil {
		return nil, err
	}
	if err := unix.EpollCtl(inner, unix.EPOLL_CTL_ADD, p[0], &unix.EpollEvent{Events: unix.EPOLLIN}); err != nil {
		return nil, err
	}
	return func() error {
		if _, err := unix.Write(p[1], []byte("x")); err != nil {
			return err
		}
		if n, err := unix.EpollWait(outer, make([]unix.EpollEvent, 1), int(patience.Milliseconds())); n != 1 {
			return fmt.Errorf("the outer instance reports %d events, %v", n, err)
		}
		return wantNext(p[0], "x")
	}, nil
}

// watching is an epoll instance with a pipe, which is armed again in each check.
func watching(events uint32) kind {
	return func() (func() error, error) {
		epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
		if err != nil {
			return nil, err
		}
		var p [2]int
		if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
			return nil, err
		}
		if err := unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, p[0], &unix.EpollEvent{Events: events}); err != nil {
			return nil, err
		}
		return func() error {
			if err := unix.EpollCtl(epoll, unix.EPOLL_CTL_MOD, p[0], &unix.EpollEvent{Events: events}); err != nil {
				return err
			}
			if _, err := unix.Write(p[1], []byte("x")); err != nil {
				return err
			}
			for _, want := range []int{1, 0} { // reported once
				wait := want * int(patience.Milliseconds())
				if n, err := unix.EpollWait(epoll, make([]unix.EpollEvent, 1), wait); n != want {
					return fmt.Errorf("it reports %d events, not %d: %v", n, want, err)
				}
			}
			return wantNext(p[0], "x")
		}, nil
	}
}

// signals is a signalfd of a thread of its own, as the signal is blocked in that only. The
// thread makes the descriptor too: gVisor's tells signals of the thread that made it,
// whoever reads.
func signals() (func() error, error) {
	var set unix.Sigset_t
	set.Val[0] = 1 << (unix.SIGUSR2 - 1)
	asked, said := make(chan bool), make(chan error)
	go func() {
		runtime.LockOSThread()
		fd, err := unix.Signalfd(-1, &set, unix.SFD_CLOEXEC)
		if err == nil {
			err = unix.PthreadSigmask(unix.SIG_BLOCK, &set, nil)
		}
		said <- err
		for range asked {
			said <- signalItself(fd)
		}
	}()
	if err := <-said; err != nil {
		return nil, err
	}
	return func() error {
		asked <- true
		return <-said
	}, nil
}

// signalItself sends the thread SIGUSR2 and reads it from its signalfd.
func signalItself(fd int) error {
	if err := unix.Tgkill(os.Getpid(), unix.Gettid(), unix.SIGUSR2); err != nil {
		return err
	}
	var info unix.SignalfdSiginfo
	b := (*[unsafe.Sizeof(info)]byte)(unsafe.Pointer(&info))
	if _, err := unix.Read(fd, b[:]); err != nil {
		return err
	}
	if info.Signo != uint32(unix.SIGUSR2) {
		return fmt.Errorf("it has signal %d", info.Signo)
	}
	return nil
}

// notified is an inotify instance with an event that nobody has read.
func notified() (func() error, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(kindsDir(), "watched")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	if _, err := unix.InotifyAddWatch(fd, dir, unix.IN_CREATE); err != nil {
		return nil, err
	}
	touch := func() error { return os.WriteFile(filepath.Join(dir, nextRound()), nil, 0o600) }
	if err := touch(); err != nil {
		return nil, err
	}
	return func() error {
		if err := awaitReadable(fd); err != nil {
			return err
		}
		if n, err := unix.Read(fd, make([]byte, 4096)); n < unix.SizeofInotifyEvent {
			return fmt.Errorf("it reads %d bytes, %v", n, err)
		}
		return touch()
	}, nil
}

func sleeper() (int, error) {
	c, err := helper("sleep", "24h")
	if err != nil {
		return 0, err
	}
	return c.Process.Pid, nil
}

// zombie is a process that has ended and is not waited for.
func zombie() (int, error) {
	c, err := helper("true")
	if err != nil {
		return 0, err
	}
	var info unix.Siginfo
	return c.Process.Pid, unix.Waitid(unix.P_PID, c.Process.Pid, &info, unix.WEXITED|unix.WNOWAIT, nil)
}

func pidfd(of func() (int, error)) kind {
	return opened(func() (int, error) {
		pid, err := of()
		if err != nil {
			return 0, err
		}
		return unix.PidfdOpen(pid, 0)
	}, func(fd int) error {
		err := unix.PidfdSendSignal(fd, 0, nil, 0)
		if err == unix.EPERM { // it is another user's
			return nil
		}
		return err
	})
}

// bpfProgram is one for the devices of a control group: all are allowed.
func bpfProgram() (func() error, error) {
	program := []uint64{0x00000001000000b7, 0x0000000000000095} // r0 = 1; exit
	license := []byte("GPL\x00")
	attr := struct {
		kind, count    uint32
		insns, license uint64
		rest           [96]byte
	}{kind: unix.BPF_PROG_TYPE_CGROUP_DEVICE, count: 2, insns: uint64(uintptr(unsafe.Pointer(&program[0]))), license: uint64(uintptr(unsafe.Pointer(&license[0])))}
	kind := call(nil, unix.SYS_BPF, unix.BPF_PROG_LOAD, uintptr(unsafe.Pointer(&attr)), 72)
	defer runtime.KeepAlive(program)
	defer runtime.KeepAlive(license)
	return kind()
}

// messageQueue is a POSIX one.
func messageQueue() (func() error, error) {
	attr := struct{ flags, most, size, now, room1, room2, room3, room4 int64 }{most: 4, size: 64}
	name := fmt.Sprintf("kind%d", os.Getuid())
	return opened(func() (int, error) {
		return rawCall(unix.SYS_MQ_OPEN, cpath(name), unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC, 0o600, uintptr(unsafe.Pointer(&attr)))
	}, func(fd int) error {
		_, err := unix.Seek(fd, 0, unix.SEEK_SET)
		if err != nil {
			return err
		}
		n, err := unix.Read(fd, make([]byte, 128))
		if err == nil && n == 0 {
			err = errors.New("it says nothing")
		}
		return err
	})()
}

// mountObject is a file system that is mounted nowhere.
func mountObject() (func() error, error) {
	fd, err := rawCall(unix.SYS_FSOPEN, cpath("tmpfs"), unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil, err
	}
	if _, err := rawCall(unix.SYS_FSCONFIG, uintptr(fd), unix.FSCONFIG_CMD_CREATE, 0, 0, 0); err != nil {
		return nil, err
	}
	return call(nil, unix.SYS_FSMOUNT, uintptr(fd), unix.FSMOUNT_CLOEXEC, 0)()
}

// seccomp is a filter of one thread, which allows all.
func seccomp(flags uintptr) kind {
	return func() (func() error, error) {
		all := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: 0x7fff0000}
		program := unix.SockFprog{Len: 1, Filter: &all}
		runtime.LockOSThread()
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return nil, err
		}
		if _, err := rawCall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&program))); err != nil {
			return nil, err
		}
		return func() error { return nil }, nil
	}
}

// asyncIO is a context of io_setup with an operation that was submitted.
func asyncIO() (func() error, error) {
	var ctx uint64
	if _, err := rawCall(unix.SYS_IO_SETUP, 8, uintptr(unsafe.Pointer(&ctx))); err != nil {
		return nil, err
	}
	f, err := newFile(filepath.Join(kindsDir(), "aio"))
	if err != nil {
		return nil, err
	}
	text := []byte("written asynchronously")
	block := struct {
		data, key uint64
		op        uint16
		prio      int16
		fd        uint32
		buf, n    uint64
		off       int64
		rest      [2]uint64
	}{op: 1, fd: uint32(f.Fd()), buf: uint64(uintptr(unsafe.Pointer(&text[0]))), n: uint64(len(text))}
	submit := func() error {
		list := [1]uintptr{uintptr(unsafe.Pointer(&block))}
		_, err := rawCall(unix.SYS_IO_SUBMIT, uintptr(ctx), 1, uintptr(unsafe.Pointer(&list)))
		return err
	}
	if err := submit(); err != nil {
		return nil, err
	}
	return func() error {
		var event [4]uint64
		wait := unix.Timespec{Sec: int64(patience / time.Second)}
		if n, err := rawCall(unix.SYS_IO_GETEVENTS, uintptr(ctx), 1, 1, uintptr(unsafe.Pointer(&event)), uintptr(unsafe.Pointer(&wait))); n != 1 {
			return fmt.Errorf("%d operations have ended, %v", n, err)
		}
		runtime.KeepAlive(f)
		return errors.Join(wantAt(int(f.Fd()), string(text)), submit())
	}, nil
}

func itimerKind() (func() error, error) {
	it, err := newItimer()
	if err != nil {
		return nil, err
	}
	if err := it.set("x"); err != nil {
		return nil, err
	}
	return func() error { return second(it.get()) }, nil
}
