package main

import (
	"fmt"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// crowd is many objects of a kind: so many that a freeze has a copy of the sentry save them.
type crowd struct {
	pairs  [][2]int // each with a message under way
	files  []*os.File
	shared [][]byte
}

const crowdOf = 200

func newCrowd() (item, error) {
	c := &crowd{}
	for range crowdOf {
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			return nil, err
		}
		fd, err := unix.MemfdCreate("crowd", unix.MFD_CLOEXEC)
		if err != nil {
			return nil, err
		}
		shared, err := unix.Mmap(-1, 0, 2*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANONYMOUS)
		if err != nil {
			return nil, err
		}
		c.pairs = append(c.pairs, pair)
		c.files = append(c.files, os.NewFile(uintptr(fd), "crowd"))
		c.shared = append(c.shared, shared)
	}
	return c, nil
}

// valueOf is what the member i has if the crowd has v.
func valueOf(v string, i int) string { return fmt.Sprintf("%s of %d", v, i) }

func (c *crowd) set(v string) error {
	for i := range crowdOf {
		text := []byte(valueOf(v, i))
		if _, err := unix.Read(c.pairs[i][1], make([]byte, 100)); err != nil && err != unix.EAGAIN {
			return err
		}
		if _, err := unix.Write(c.pairs[i][0], text); err != nil {
			return err
		}
		if err := c.files[i].Truncate(0); err != nil {
			return err
		}
		if _, err := c.files[i].WriteAt(text, 0); err != nil {
			return err
		}
		copy(c.shared[i][page:], append(text, 0))
	}
	return nil
}

// get returns the value of all members, which must be the same.
func (c *crowd) get() (string, error) {
	var v string
	if _, err := fmt.Sscanf(cstring(c.shared[0][page:]), "%s of", &v); err != nil {
		return "", err
	}
	for i := range crowdOf {
		want := valueOf(v, i)
		message, file := make([]byte, 100), make([]byte, 100)
		n, _, err := unix.Recvfrom(c.pairs[i][1], message, unix.MSG_PEEK)
		if err != nil {
			return "", err
		}
		m, err := unix.Pread(int(c.files[i].Fd()), file, 0)
		if err != nil {
			return "", err
		}
		if got := [...]string{string(message[:n]), string(file[:m]), cstring(c.shared[i][page:])}; got != [...]string{want, want, want} {
			return "", fmt.Errorf("member %d has %q, not %q", i, got, want)
		}
	}
	return v, nil
}

// twins are two counters, in memory that is shared and in memory that is not, to which a thread adds
// all the time: they are equal but for the moment in between.
type twins struct {
	mu      sync.Mutex
	shared  []byte
	private []byte
	value   string
}

func newTwins() (item, error) {
	t := &twins{}
	var err error
	if t.shared, err = unix.Mmap(-1, 0, page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANONYMOUS); err != nil {
		return nil, err
	}
	if t.private, err = unix.Mmap(-1, 0, page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS); err != nil {
		return nil, err
	}
	go func() {
		pause := syscall.NsecToTimespec(20_000)
		for {
			t.mu.Lock()
			for i := range page {
				t.private[i]++
				t.shared[i]++
			}
			t.mu.Unlock()
			_ = syscall.Nanosleep(&pause, nil)
		}
	}()
	return t, nil
}

func (t *twins) set(v string) error {
	t.value = v
	return nil
}

func (t *twins) get() (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range page {
		if t.private[i] != t.shared[i] {
			return "", fmt.Errorf("byte %d is %d where memory is private and %d where it is shared", i, t.private[i], t.shared[i])
		}
	}
	return t.value, nil
}
