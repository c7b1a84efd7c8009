package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// fileKinds are descriptors of what has, or had, a path.
func fileKinds() map[string]kind {
	dir := kindsDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	all := map[string]kind{
		"file":           open(at("regular"), unix.O_RDWR|unix.O_CREAT, rewrite),
		"file-append":    open(at("append"), unix.O_RDWR|unix.O_CREAT|unix.O_APPEND, nil),
		"file-direct":    open(at("direct"), unix.O_RDWR|unix.O_CREAT|unix.O_DIRECT, rewrite),
		"file-path":      open("/etc/passwd", unix.O_PATH, reopen),
		"file-tmpfile":   open("/tmp", unix.O_RDWR|unix.O_TMPFILE, rewrite),
		"shm-tmpfile":    open("/dev/shm", unix.O_RDWR|unix.O_TMPFILE, rewrite),
		"shm-file":       open(fmt.Sprintf("/dev/shm/kind-%d", os.Getuid()), unix.O_RDWR|unix.O_CREAT, rewrite),
		"deleted":        removed(at("deleted"), unix.O_RDWR|unix.O_CREAT, rewrite),
		"deleted-shm":    removed(fmt.Sprintf("/dev/shm/deleted-%d", os.Getuid()), unix.O_RDWR|unix.O_CREAT, rewrite),
		"directory":      open("/etc", unix.O_RDONLY|unix.O_DIRECTORY, listed),
		"directory-half": open("/etc", unix.O_RDONLY|unix.O_DIRECTORY, listedTwice),
		"deleted-dir":    deletedDir(at("gone-dir")),
		"fifo":           fifoKind(at("fifo"), false),
		"deleted-fifo":   fifoKind(at("gone-fifo"), true),
		"executed":       executed(at("program")),
		"text-mapped":    mappedKind(at("mapped-file")),
		"lock-flock":     locked(at("flock"), func(fd int) error { return unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) }),
		"lock-posix": locked(at("posix"), func(fd int) error {
			return unix.FcntlFlock(uintptr(fd), unix.F_SETLK, &unix.Flock_t{Type: unix.F_WRLCK})
		}),
		"lock-ofd": locked(at("ofd"), func(fd int) error {
			return unix.FcntlFlock(uintptr(fd), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK})
		}),
		"lease": locked(at("lease"), func(fd int) error {
			_, err := unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_WRLCK)
			return err
		}),
		"dnotify": locked(at("dnotify"), func(fd int) error {
			_, err := unix.FcntlInt(uintptr(fd), unix.F_NOTIFY, dnCreate)
			return err
		}),
		"owner": locked(at("owner"), func(fd int) error {
			_, err := unix.FcntlInt(uintptr(fd), unix.F_SETOWN, os.Getpid())
			return err
		}),
		"xattr": locked(at("xattr"), func(fd int) error { return unix.Fsetxattr(fd, "user.kind", []byte("x"), 0) }),

		"pty":        ptyKind,
		"dev-null":   open("/dev/null", unix.O_RDWR, readNothing),
		"dev-zero":   open("/dev/zero", unix.O_RDWR, readSome),
		"dev-full":   open("/dev/full", unix.O_RDWR, readSome),
		"dev-random": open("/dev/random", unix.O_RDWR, readSome),
		"dev-urand":  open("/dev/urandom", unix.O_RDWR, readSome),
		"dev-tty":    open("/dev/tty", unix.O_RDWR, nil),
		"dev-ptmx":   open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY, nil),
		"proc-dead":  deadProc,
		"proc-mem":   open("/proc/self/mem", unix.O_RDWR, nil),
		"proc-sys":   open("/proc/sys/kernel/hostname", unix.O_RDONLY, readSome),
	}
	for _, name := range []string{"console", "fuse", "net/tun", "kmsg", "kvm", "mem", "port", "loop-control", "rtc", "userfaultfd", "ttyS0", "tty0", "vhost-net", "uinput", "snapshot"} {
		all["dev-"+strings.ReplaceAll(name, "/", "-")] = open("/dev/"+name, unix.O_RDWR, nil)
	}
	for _, name := range []string{"cgroup", "ipc", "mnt", "net", "pid", "pid_for_children", "time", "user", "uts"} {
		all["ns-"+name] = open("/proc/self/ns/"+name, unix.O_RDONLY, nil)
	}
	for _, root := range []string{"/proc/self", "/proc/1", "/proc/sys", "/proc/net", "/proc", "/sys", "/dev"} {
		all["all"+strings.ReplaceAll(root, "/", "-")] = everything(root)
	}
	return all
}

const dnCreate = 4 // DN_CREATE of fcntl(2)

// reopen opens what an O_PATH descriptor refers to.
func reopen(fd int) error {
	again, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", fd), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open again: %w", err)
	}
	defer unix.Close(again)
	return readSome(again)
}

func readSome(fd int) error {
	n, err := unix.Read(fd, make([]byte, 8))
	if err == nil && n == 0 {
		_, err = unix.Seek(fd, 0, unix.SEEK_SET)
	}
	return err
}

func readNothing(fd int) error {
	if n, err := unix.Read(fd, make([]byte, 8)); n != 0 || err != nil {
		return fmt.Errorf("it reads %d bytes, %v", n, err)
	}
	return nil
}

// listed reads the directory from its start.
func listed(fd int) error {
	if _, err := unix.Seek(fd, 0, unix.SEEK_SET); err != nil {
		return err
	}
	n, err := unix.ReadDirent(fd, make([]byte, 4096))
	if err == nil && n == 0 {
		err = fmt.Errorf("the directory is empty")
	}
	return err
}

// listedTwice leaves the directory in the middle of a listing.
func listedTwice(fd int) error {
	if err := listed(fd); err != nil {
		return err
	}
	if _, err := unix.Seek(fd, 0, unix.SEEK_SET); err != nil {
		return err
	}
	_, err := unix.ReadDirent(fd, make([]byte, 64))
	return err
}

// removed is open of a path that is removed then.
func removed(path string, flags int, use func(fd int) error) kind {
	return opened(func() (int, error) {
		fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0o600)
		if err != nil {
			return 0, err
		}
		return fd, unix.Unlink(path)
	}, use)
}

func deletedDir(path string) kind {
	return opened(func() (int, error) {
		if err := unix.Mkdir(path, 0o755); err != nil {
			return 0, err
		}
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return 0, err
		}
		return fd, unix.Rmdir(path)
	}, nil)
}

func fifoKind(path string, remove bool) kind {
	return oneWay(func() (a, b int, err error) {
		if err := unix.Mkfifo(path, 0o600); err != nil {
			return 0, 0, err
		}
		if b, err = unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0); err != nil {
			return 0, 0, err
		}
		if remove {
			err = unix.Unlink(path)
		}
		return b, b, err
	})
}

// executed runs a program whose file is removed then, and keeps that open.
func executed(path string) kind {
	return func() (func() error, error) {
		program, err := os.ReadFile("/proc/self/exe")
		if err != nil {
			return nil, err
		}
		if err := os.WriteFile(path, program, 0o755); err != nil {
			return nil, err
		}
		c, err := helperOf(path, "sleep", "24h")
		if err != nil {
			return nil, err
		}
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, err
		}
		if err := unix.Unlink(path); err != nil {
			return nil, err
		}
		return func() error {
			if err := wantAt(fd, string(program[:64])); err != nil {
				return err
			}
			return lives(c.Process.Pid)
		}, nil
	}
}

// mappedKind maps a file that is removed then, and closes its descriptor.
func mappedKind(path string) kind {
	return func() (func() error, error) {
		f, err := newFile(path)
		if err != nil {
			return nil, err
		}
		if err := f.Truncate(4096); err != nil {
			return nil, err
		}
		m, err := mapFile(int(f.Fd()), unix.MAP_SHARED)
		if err != nil {
			return nil, err
		}
		f.Close()
		if err := unix.Unlink(path); err != nil {
			return nil, err
		}
		return func() error {
			text := nextRound()
			_ = m.set(text) // it cannot fail
			if got, _ := m.get(); got != text {
				return fmt.Errorf("the mapping has %q, not %q", got, text)
			}
			return nil
		}, nil
	}
}

// locked is a file that something was done to which the kernel keeps.
func locked(path string, do func(fd int) error) kind {
	return opened(func() (int, error) {
		fd, err := unix.Open(path, unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC, 0o600)
		if err != nil {
			return 0, err
		}
		return fd, do(fd)
	}, rewrite)
}

func ptyKind() (func() error, error) {
	master, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0); err != nil {
		return nil, err
	}
	n, err := unix.IoctlGetInt(master, unix.TIOCGPTN)
	if err != nil {
		return nil, err
	}
	slave, err := unix.Open(fmt.Sprintf("/dev/pts/%d", n), unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	raw, err := unix.IoctlGetTermios(slave, unix.TCGETS)
	if err != nil {
		return nil, err
	}
	raw.Lflag &^= unix.ICANON | unix.ECHO
	raw.Oflag &^= unix.OPOST
	if err := unix.IoctlSetTermios(slave, unix.TCSETS, raw); err != nil {
		return nil, err
	}
	return func() error {
		if err := pass(master, slave); err != nil {
			return fmt.Errorf("to the slave: %w", err)
		}
		return pass(slave, master)
	}, nil
}

// deadProc keeps descriptors of /proc of a process that has ended and was waited for.
func deadProc() (func() error, error) {
	c, err := helper("sleep", "24h")
	if err != nil {
		return nil, err
	}
	var fds []int
	for _, name := range []string{"", "/status", "/maps", "/stat", "/fd", "/task", "/ns/net", "/mem", "/cmdline", "/environ", "/mountinfo", "/root", "/cwd", "/exe"} {
		fd, err := unix.Open(fmt.Sprintf("/proc/%d%s", c.Process.Pid, name), unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
		if err != nil {
			continue // not for this user
		}
		fds = append(fds, fd)
	}
	if err := c.Process.Kill(); err != nil {
		return nil, err
	}
	_ = c.Wait() // killed
	return func() error {
		for _, fd := range fds {
			if _, err := rawCall(unix.SYS_FSTAT, uintptr(fd), uintptr(unsafe.Pointer(new(unix.Stat_t)))); err != nil && err != unix.ESRCH && err != unix.ENOENT {
				return err
			}
		}
		return nil
	}, nil
}

// everything keeps everything below a directory open that can be opened for reading.
func everything(root string) kind {
	return func() (func() error, error) {
		var fds []int
		var walk func(dir string, depth int)
		walk = func(dir string, depth int) {
			entries, err := os.ReadDir(dir)
			if err != nil {
				return
			}
			for _, e := range entries {
				path := filepath.Join(dir, e.Name())
				if e.Name() == "task" || root == "/proc" && e.IsDir() {
					continue
				}
				if fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOCTTY, 0); err == nil {
					fds = append(fds, fd)
				}
				if e.IsDir() && depth < 8 {
					walk(path, depth+1)
				}
			}
		}
		walk(root, 0)
		if len(fds) == 0 {
			return nil, unix.ENOENT
		}
		return func() error {
			for _, fd := range fds {
				var st unix.Stat_t
				if err := unix.Fstat(fd, &st); err != nil {
					return fmt.Errorf("fstat: %w", err)
				}
				if st.Mode&unix.S_IFMT == unix.S_IFREG {
					_, _ = unix.Pread(fd, make([]byte, 4096), 0) // some say an error, none may hang
				}
			}
			return nil
		}, nil
	}
}
