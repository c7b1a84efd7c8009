package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// files are closed files: new ones, one of the image that was changed, and one
// of the image that was deleted.
type files struct{}

const (
	imageChanged = "/srv/changed"
	imageDeleted = "/srv/deleted"
	imageKept    = "/srv/kept"
)

func newFiles() (item, error) {
	if err := os.MkdirAll(filepath.Join(holdDir, "files", "sub"), 0o755); err != nil {
		return nil, err
	}
	return files{}, os.Remove(imageDeleted)
}

func (files) names() []string {
	names := []string{imageChanged}
	for i := range 5 {
		names = append(names, fmt.Sprintf("%s/files/%d", holdDir, i), fmt.Sprintf("%s/files/sub/%d", holdDir, i))
	}
	return names
}

func (f files) set(v string) error {
	for _, n := range f.names() {
		if err := os.WriteFile(n, []byte(v), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func (f files) get() (string, error) {
	if _, err := os.Stat(imageDeleted); !errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("the deleted file is back: %v", err)
	}
	if b, err := os.ReadFile(imageKept); err != nil || string(b) != "kept\n" {
		return "", fmt.Errorf("file of the image is %q (%v)", b, err)
	}
	value := ""
	for i, n := range f.names() {
		b, err := os.ReadFile(n)
		if err != nil {
			return "", err
		}
		if i > 0 && string(b) != value {
			return "", fmt.Errorf("%s is %q, not %q", n, b, value)
		}
		value = string(b)
	}
	return value, nil
}

// deleted is an open file without a name.
type deleted struct{ file *os.File }

func newDeleted() (item, error) {
	f, err := newFile(filepath.Join(holdDir, "deleted"))
	if err != nil {
		return nil, err
	}
	return deleted{f}, os.Remove(f.Name())
}

func (d deleted) set(v string) error {
	_, err := d.file.WriteAt(append([]byte(v), 0), 0)
	return err
}

func (d deleted) get() (string, error) {
	if _, err := os.Stat(d.file.Name()); !errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("the name is back: %v", err)
	}
	b := make([]byte, 4096)
	_, err := d.file.ReadAt(b, 0)
	return cstring(b), err
}

// offset is the position in an open file, with the value behind it.
type offset struct {
	file *os.File
	at   int64
}

func newOffset() (item, error) {
	f, err := newFile(filepath.Join(holdDir, "offset"))
	return &offset{file: f}, err
}

func (o *offset) set(v string) error {
	if err := o.file.Truncate(0); err != nil {
		return err
	}
	if _, err := o.file.WriteAt([]byte(v+v), 0); err != nil {
		return err
	}
	o.at = int64(len(v))
	_, err := o.file.Seek(o.at, io.SeekStart)
	return err
}

func (o *offset) get() (string, error) {
	b, err := io.ReadAll(o.file)
	if err != nil {
		return "", err
	}
	_, err = o.file.Seek(o.at, io.SeekStart)
	return string(b), err
}

// lock is a lock on a file: another description of it must not get one.
type lock struct {
	heap
	file *os.File
}

func newLock() (item, error) {
	f, err := newFile(filepath.Join(holdDir, "lock"))
	if err != nil {
		return nil, err
	}
	return &lock{file: f}, unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
}

func (l *lock) get() (string, error) {
	f, err := os.Open(l.file.Name())
	if err != nil {
		return "", err
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); !errors.Is(err, unix.EWOULDBLOCK) {
		return "", fmt.Errorf("the lock is free: %v", err)
	}
	return l.heap.get()
}

// cwd is the working directory.
type cwd struct{}

func newCwd() (item, error) { return cwd{}, nil }

func (cwd) set(v string) error {
	dir := filepath.Join(holdDir, "cwd", v)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.Chdir(dir)
}

func (cwd) get() (string, error) {
	// Not os.Getwd, which believes $PWD.
	b := make([]byte, 4096)
	n, err := unix.Getcwd(b)
	if err != nil {
		return "", err
	}
	return filepath.Base(cstring(b[:n])), nil
}

// mount is a file system that the guest mounted, and a second place where it is
// mounted too.
type mount struct{ first, second string }

func newMount() (item, error) {
	m := mount{filepath.Join(holdDir, "mount"), filepath.Join(holdDir, "bind")}
	for _, dir := range []string{m.first, m.second} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
	}
	if err := unix.Mount("hold", m.first, "tmpfs", 0, ""); err != nil {
		return nil, err
	}
	return m, unix.Mount(m.first, m.second, "", unix.MS_BIND, "")
}

func (m mount) set(v string) error {
	return os.WriteFile(filepath.Join(m.first, "value"), []byte(v), 0o644)
}

func (m mount) get() (string, error) {
	b, err := os.ReadFile(filepath.Join(m.second, "value"))
	return string(b), err
}

// proc is an open file of /proc and one of /sys, and a directory of it.
type proc struct {
	heap
	status, dir, sys *os.File
}

func newProc() (item, error) {
	p := &proc{}
	for name, f := range map[string]**os.File{
		"/proc/self/status": &p.status, "/proc/self/fd": &p.dir, "/sys/devices/system/cpu/possible": &p.sys,
	} {
		var err error
		if *f, err = os.Open(name); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func (p *proc) get() (string, error) {
	b := make([]byte, 4096)
	n, err := p.status.ReadAt(b, 0)
	if err != nil && err != io.EOF || !strings.Contains(string(b[:n]), fmt.Sprintf("\nPid:\t%d\n", os.Getpid())) {
		return "", fmt.Errorf("/proc/self/status says %q (%v)", b[:n], err)
	}
	if n, err = p.sys.ReadAt(b, 0); n == 0 {
		return "", fmt.Errorf("/sys says nothing: %v", err)
	}
	if _, err := p.dir.Seek(0, io.SeekStart); err != nil {
		return "", err
	}
	open, err := p.dir.Readdirnames(-1)
	if err != nil || !slices.Contains(open, fmt.Sprint(p.dir.Fd())) {
		return "", fmt.Errorf("/proc/self/fd has %v (%v)", open, err)
	}
	if b, err := os.ReadFile("/proc/self/comm"); err != nil || len(b) == 0 {
		return "", fmt.Errorf("/proc is not mounted: %q %v", b, err)
	}
	return p.heap.get()
}

// inotify is a watched directory.
type inotify struct {
	heap
	fd  int
	dir string
}

func newInotify() (item, error) {
	w := &inotify{dir: filepath.Join(holdDir, "inotify")}
	if err := os.MkdirAll(w.dir, 0o755); err != nil {
		return nil, err
	}
	var err error
	if w.fd, err = unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC); err != nil {
		return nil, err
	}
	_, err = unix.InotifyAddWatch(w.fd, w.dir, unix.IN_CREATE)
	return w, err
}

func (w *inotify) get() (string, error) {
	name := filepath.Join(w.dir, "new")
	if err := os.WriteFile(name, nil, 0o644); err != nil {
		return "", err
	}
	if err := os.Remove(name); err != nil {
		return "", err
	}
	if err := awaitReadable(w.fd); err != nil {
		return "", fmt.Errorf("no event: %w", err)
	}
	if _, err := unix.Read(w.fd, make([]byte, 4096)); err != nil {
		return "", err
	}
	return w.heap.get()
}

// awaitReadable waits until fd can be read.
func awaitReadable(fd int) error {
	until := time.Now().Add(patience)
	for time.Now().Before(until) {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 100)
		if err != nil && err != unix.EINTR {
			return err
		}
		if n > 0 {
			return nil
		}
	}
	return fmt.Errorf("not readable within %v", patience)
}
