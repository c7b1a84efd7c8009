package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// systemKinds are System V's objects, namespaces, mounts, and threads that wait.
func systemKinds() map[string]kind {
	all := map[string]kind{
		"sysv-shm":  sysvMemory,
		"sysv-sem":  sysvSemaphore,
		"sysv-huge": made(func() error { return second(rawCall(unix.SYS_SHMGET, unix.IPC_PRIVATE, 1<<46, unix.IPC_CREAT|0o600)) }),
		"sysv-msg":  sysvMessages,
		"seccomp":   seccomp(0),
		"traced":    traced,
		"stopped":   stoppedChild,
		"robust": made(func() error {
			return second(rawCall(unix.SYS_SET_ROBUST_LIST, uintptr(unsafe.Pointer(&robust)), 24))
		}),
		"rseq": made(func() error {
			return second(rawCall(unix.SYS_RSEQ, uintptr(unsafe.Pointer(new([64]byte))), 32, 0, 0x53053053))
		}),
		"subreaper":     made(func() error { return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }),
		"pdeathsig":     made(func() error { return unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGCONT), 0, 0, 0) }),
		"chroot":        made(func() error { return unix.Chroot("/") }),
		"locked-memory": made(func() error { return unix.Mlockall(unix.MCL_CURRENT) }),
		"membarrier":    made(func() error { return second(rawCall(unix.SYS_MEMBARRIER, 1<<4, 0)) }),
		"pivot-root":    insideOf("pivot-root", unix.CLONE_NEWNS),
		"net-loopback":  insideOf("net-loopback", unix.CLONE_NEWNET),
		"links":         interfaces,
		"net-links":     insideOf("net-links", unix.CLONE_NEWNET),
		"net-pair":      insideOf("net-pair", unix.CLONE_NEWNET),
		"unshare-all":   unshared(unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWPID),
	}
	for name, flag := range map[string]uintptr{
		"user": unix.CLONE_NEWUSER, "mnt": unix.CLONE_NEWNS, "net": unix.CLONE_NEWNET, "ipc": unix.CLONE_NEWIPC,
		"uts": unix.CLONE_NEWUTS, "pid": unix.CLONE_NEWPID, "cgroup": unix.CLONE_NEWCGROUP, "time": unix.CLONE_NEWTIME,
	} {
		all["unshare-"+name] = unshared(flag)
	}
	for _, fs := range []string{"tmpfs", "proc", "sysfs", "devpts", "devtmpfs", "mqueue", "overlay", "cgroup", "cgroup2", "fuse", "9p", "erofs", "bind", "ramfs", "dev", "ramet", "securityfs", "debugfs", "bpf"} {
		all["mount-"+fs] = mounted(fs)
	}
	for name, wait := range blockingCalls() {
		all["wait-"+name] = waiting(wait)
	}
	return all
}

var robust [3]uint64 // a list of futexes, which is empty

func sysvMemory() (func() error, error) {
	id, err := rawCall(unix.SYS_SHMGET, unix.IPC_PRIVATE, 4096, unix.IPC_CREAT|0o600)
	if err != nil {
		return nil, err
	}
	page, err := unix.SysvShmAttach(id, 0, 0)
	if err != nil {
		return nil, err
	}
	if _, err := unix.SysvShmCtl(id, unix.IPC_RMID, nil); err != nil {
		return nil, err
	}
	m := mapped{page}
	return func() error {
		text := nextRound()
		_ = m.set(text) // it cannot fail
		if got, _ := m.get(); got != text {
			return fmt.Errorf("it has %q", got)
		}
		return nil
	}, nil
}

func sysvSemaphore() (func() error, error) {
	id, err := rawCall(unix.SYS_SEMGET, unix.IPC_PRIVATE, 1, unix.IPC_CREAT|0o600)
	if err != nil {
		return nil, err
	}
	op := func(by int16) error {
		b := struct {
			n     uint16
			by    int16
			flags int16
		}{0, by, unix.IPC_NOWAIT}
		return second(rawCall(unix.SYS_SEMOP, uintptr(id), uintptr(unsafe.Pointer(&b)), 1))
	}
	if err := op(1); err != nil {
		return nil, err
	}
	return func() error { return errors.Join(op(-1), op(1)) }, nil
}

func sysvMessages() (func() error, error) {
	id, err := rawCall(unix.SYS_MSGGET, unix.IPC_PRIVATE, unix.IPC_CREAT|0o600)
	if err != nil {
		return nil, err
	}
	message := struct {
		kind int64
		text [8]byte
	}{1, [8]byte([]byte("message!"))}
	send := func() error {
		return second(rawCall(unix.SYS_MSGSND, uintptr(id), uintptr(unsafe.Pointer(&message)), 8, unix.IPC_NOWAIT))
	}
	if err := send(); err != nil {
		return nil, err
	}
	return func() error {
		got := message
		clear(got.text[:])
		if _, err := rawCall(unix.SYS_MSGRCV, uintptr(id), uintptr(unsafe.Pointer(&got)), 8, 0, unix.IPC_NOWAIT); err != nil {
			return err
		}
		if got != message {
			return fmt.Errorf("it has %q", got.text)
		}
		return send()
	}, nil
}

// traced is a child that its tracer has stopped. The tracer is a thread, which has to
// stay.
func traced() (func() error, error) {
	pids, failed := make(chan int), make(chan error)
	go func() {
		runtime.LockOSThread()
		c := exec.Command("/proc/self/exe", "sleep", "24h")
		c.SysProcAttr = &syscall.SysProcAttr{Ptrace: true}
		if err := c.Start(); err != nil {
			failed <- err
			return
		}
		if _, err := unix.Wait4(c.Process.Pid, nil, 0, nil); err != nil {
			failed <- err
			return
		}
		pids <- c.Process.Pid
		select {}
	}()
	select {
	case err := <-failed:
		return nil, err
	case pid := <-pids:
		return func() error { return lives(pid) }, nil
	}
}

func stoppedChild() (func() error, error) {
	pid, err := sleeper()
	if err != nil {
		return nil, err
	}
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		return nil, err
	}
	return func() error { return lives(pid) }, nil
}

// unshared is a child in new namespaces.
func unshared(flags uintptr) kind {
	return func() (func() error, error) {
		c := exec.Command("/proc/self/exe", "sleep", "24h")
		c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags}
		if err := c.Start(); err != nil {
			return nil, err
		}
		return func() error { return lives(c.Process.Pid) }, nil
	}
}

// mounted is a file system, with a descriptor of its root.
func mounted(fs string) kind {
	return func() (func() error, error) {
		dir := filepath.Join(kindsDir(), "at-"+fs)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
		source, flags, data := "none", uintptr(0), ""
		switch fs {
		case "bind":
			source, fs, flags = "/etc", "", unix.MS_BIND
		case "overlay":
			upper, err := os.MkdirTemp("/dev/shm", "")
			if err != nil {
				return nil, err
			}
			for _, d := range []string{"upper", "work"} {
				if err := os.Mkdir(filepath.Join(upper, d), 0o755); err != nil {
					return nil, err
				}
			}
			data = fmt.Sprintf("lowerdir=/etc,upperdir=%s/upper,workdir=%[1]s/work", upper)
		}
		if err := unix.Mount(source, dir, fs, flags, data); err != nil {
			return nil, err
		}
		return open(dir, unix.O_RDONLY|unix.O_DIRECTORY, func(fd int) error {
			if _, err := unix.Seek(fd, 0, unix.SEEK_SET); err != nil {
				return err
			}
			return second(unix.ReadDirent(fd, make([]byte, 4096)))
		})()
	}
}

// blockingCalls are system calls that do not come back before something happens, which
// nothing does here.
func blockingCalls() map[string]func() error {
	quiet := func() int {
		var p [2]int
		if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
			panic(err)
		}
		return p[0]
	}
	return map[string]func() error{
		"read":  func() error { return second(unix.Read(quiet(), make([]byte, 1))) },
		"poll":  func() error { return second(unix.Poll([]unix.PollFd{{Fd: int32(quiet()), Events: unix.POLLIN}}, -1)) },
		"pause": unix.Pause,
		"sleep": func() error { return unix.Nanosleep(&unix.Timespec{Sec: 1 << 30}, nil) },
		"clock": func() error {
			return unix.ClockNanosleep(unix.CLOCK_REALTIME, unix.TIMER_ABSTIME, &unix.Timespec{Sec: 1 << 33}, nil)
		},
		"select": func() error { return second(unix.Select(0, nil, nil, nil, nil)) },
		"epoll": func() error {
			fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
			if err != nil {
				return err
			}
			return second(unix.EpollWait(fd, make([]unix.EpollEvent, 1), -1))
		},
		"futex": func() error {
			return second(rawCall(unix.SYS_FUTEX, uintptr(unsafe.Pointer(new(uint32))), 0, 0, 0))
		},
		"sigwait": func() error {
			set := uint64(1) << (unix.SIGUSR2 - 1)
			return second(rawCall(unix.SYS_RT_SIGTIMEDWAIT, uintptr(unsafe.Pointer(&set)), 0, 0, 8))
		},
		"child": func() error {
			pid, err := sleeper()
			if err != nil {
				return err
			}
			return second(unix.Wait4(pid, nil, 0, nil))
		},
		"semaphore": func() error {
			id, err := rawCall(unix.SYS_SEMGET, unix.IPC_PRIVATE, 1, unix.IPC_CREAT|0o600)
			if err != nil {
				return err
			}
			b := struct{ n, by, flags int16 }{0, -1, 0}
			return second(rawCall(unix.SYS_SEMOP, uintptr(id), uintptr(unsafe.Pointer(&b)), 1))
		},
		"message": func() error {
			id, err := rawCall(unix.SYS_MSGGET, unix.IPC_PRIVATE, unix.IPC_CREAT|0o600)
			if err != nil {
				return err
			}
			return second(rawCall(unix.SYS_MSGRCV, uintptr(id), uintptr(unsafe.Pointer(new([2]uint64))), 8, 0, 0))
		},
		"message-send": func() error {
			id, err := rawCall(unix.SYS_MSGGET, unix.IPC_PRIVATE, unix.IPC_CREAT|0o600)
			if err != nil {
				return err
			}
			m := [1024]uint64{1}
			for { // until the queue is full
				if _, err := rawCall(unix.SYS_MSGSND, uintptr(id), uintptr(unsafe.Pointer(&m)), 8*1023, 0); err != nil {
					return err
				}
			}
		},
		"accept": func() error {
			l, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return err
			}
			if err := unix.Listen(l, 1); err != nil {
				return err
			}
			return second(rawCall(unix.SYS_ACCEPT, uintptr(l), 0, 0))
		},
		"flock": func() error {
			path := filepath.Join(kindsDir(), "contended")
			for range 2 {
				fd, err := unix.Open(path, unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC, 0o600)
				if err != nil {
					return err
				}
				if err := unix.Flock(fd, unix.LOCK_EX); err != nil {
					return err
				}
			}
			return nil
		},
		"fifo": func() error {
			path := filepath.Join(kindsDir(), "nobody")
			if err := unix.Mkfifo(path, 0o600); err != nil && err != unix.EEXIST {
				return err
			}
			return second(unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0))
		},
		"fifo-write": func() error {
			path := filepath.Join(kindsDir(), "no-reader")
			if err := unix.Mkfifo(path, 0o600); err != nil && err != unix.EEXIST {
				return err
			}
			return second(unix.Open(path, unix.O_WRONLY|unix.O_CLOEXEC, 0))
		},
	}
}

// waiting is a thread that waits in a system call. It still does in each check: a fork or a snapshot ends no call.
func waiting(wait func() error) kind {
	return func() (func() error, error) {
		ended := make(chan error, 1)
		go func() {
			runtime.LockOSThread()
			// The runtime interrupts threads that have run for long, also on their way into a call.
			urgent := unix.Sigset_t{Val: [16]uint64{1 << (unix.SIGURG - 1)}}
			if err := unix.PthreadSigmask(unix.SIG_BLOCK, &urgent, nil); err != nil {
				ended <- err
				return
			}
			ended <- wait()
		}()
		return func() error {
			select {
			case err := <-ended:
				return fmt.Errorf("the call came back: %w", err)
			case <-time.After(20 * time.Millisecond):
				return nil
			}
		}, nil
	}
}
