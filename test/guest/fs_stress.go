package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// stressLog is where the program in the background writes why it ended.
const stressLog = "/dev/shm/stress.log"

// fsStress does operations of the fuzzer in several threads that share one
// directory, until it is killed. Its arguments are the directory, how many
// threads, a seed and the features not to use. What comes of an operation is not
// looked at: others work on the same files. "start" before them does it in the
// background and prints the process id.
func fsStress(args []string) (int, error) {
	if args[0] == "start" {
		c := exec.Command("/proc/self/exe", append([]string{"fs", "stress"}, args[1:]...)...)
		c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		log, err := os.Create(stressLog)
		if err != nil {
			return 1, err
		}
		c.Stderr = log
		if err := c.Start(); err != nil {
			return 1, err
		}
		_, err = fmt.Print(c.Process.Pid)
		return 0, err
	}
	dir, threads, seed, without := args[0], mustInt(args[1], 10), mustInt(args[2], 10), args[3]
	unix.Umask(0)
	if err := fsMakeTree(dir, newFuzzer(without).tree()); err != nil {
		return 1, err
	}
	if err := os.Chdir(dir); err != nil {
		return 1, err
	}
	broken := make(chan error)
	for i := range threads {
		go func() {
			z := newFuzzer(without)
			z.rng = rand.New(rand.NewPCG(uint64(seed), uint64(i)))
			debug.SetPanicOnFault(true)
			for {
				if err := z.careless(); err != nil {
					broken <- err
				}
			}
		}()
	}
	return 1, <-broken
}

// careless does one operation and forgets what came of it. A fault is nothing
// special, as another thread may truncate a file that is mapped.
func (z *fuzzer) careless() (err error) {
	op := z.next()
	if op.At > 1<<20 {
		op.At %= 1 << 20
	}
	defer func() {
		p := recover()
		if _, isFault := p.(interface{ Addr() uintptr }); p != nil && !isFault {
			err = fmt.Errorf("%+v: %v", op, p)
		}
	}()
	step := fuzzStep{op, ""}
	if op.User {
		step.Result = z.asUser(op)
	} else {
		step.Result = z.do(op)
	}
	z.learn(step)
	if len(z.known) > 200 {
		clear(z.known) // most of it is not true any more
	}
	return nil
}

// fsEnd kills the process of "stress start" and waits until it is gone. It must
// not have ended itself.
func fsEnd(args []string) (int, error) {
	pid := mustInt(args[0], 10)
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		log, _ := os.ReadFile(stressLog) // as far as there is something to tell
		return 1, fmt.Errorf("process %d: %w: %s", pid, err, log)
	}
	for until := time.Now().Add(fsPatience); time.Now().Before(until); time.Sleep(time.Millisecond) {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if errors.Is(err, os.ErrNotExist) || strings.Contains(string(b), ") Z ") {
			return 0, nil
		}
	}
	return 1, fmt.Errorf("process %d does not end", pid)
}

// fsckFile is what was found of one inode.
type fsckFile struct {
	name  string
	nlink uint64
	names uint64
}

// fsck checks that a directory that nobody works on makes sense: what it says
// about itself must not contradict what is in it. Its arguments are the directory
// and the features whose lack is forgiven.
func fsFsck(args []string) (int, error) {
	z := newFuzzer(args[1])
	files := map[uint64]*fsckFile{}
	var top unix.Stat_t
	if err := unix.Lstat(args[0], &top); err != nil {
		return 1, err
	}
	count, err := z.fsck(args[0], top, files)
	if err != nil {
		return 1, err
	}
	for ino, f := range files {
		if f.names != f.nlink && z.has("link") {
			return 1, fmt.Errorf("%s, inode %d, has %d names and nlink %d", f.name, ino, f.names, f.nlink)
		}
	}
	fmt.Print(count)
	return 0, nil
}

// fsck checks a directory and all below it, and returns how many files it has.
func (z *fuzzer) fsck(dir string, self unix.Stat_t, files map[uint64]*fsckFile) (int, error) {
	fd, err := unix.Open(dir, rdonly|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", dir, err)
	}
	defer unix.Close(fd)
	var parent unix.Stat_t
	if err := unix.Fstatat(fd, "..", &parent, 0); err != nil {
		return 0, err
	}
	var above unix.Stat_t
	if err := unix.Lstat(path.Dir(dir), &above); err != nil || above.Ino != parent.Ino {
		return 0, fmt.Errorf("%s: the parent is inode %d, not %d (%w)", dir, parent.Ino, above.Ino, err)
	}
	t := &fsT{}
	seen, count, subdirs := map[string]bool{}, 0, uint64(0)
	for _, e := range t.entries(fd, 1024) {
		if seen[e.name] {
			return 0, fmt.Errorf("%s: %s is listed twice", dir, e.name)
		}
		seen[e.name] = true
		if e.name == "." || e.name == ".." {
			continue
		}
		count++
		name := path.Join(dir, e.name)
		var st unix.Stat_t
		if err := unix.Lstat(name, &st); err != nil {
			return 0, fmt.Errorf("%s is listed and not there: %w", name, err)
		}
		if z.has("dirent") && st.Ino != e.ino {
			return 0, fmt.Errorf("%s is listed with inode %d and has %d", name, e.ino, st.Ino)
		}
		if st.Mode&unix.S_IFMT != uint32(e.kind)<<12 {
			return 0, fmt.Errorf("%s is listed with type %d and has mode %o", name, e.kind, st.Mode)
		}
		if st.Mode&unix.S_IFMT == unix.S_IFDIR {
			subdirs++
			below, err := z.fsck(name, st, files)
			if err != nil {
				return 0, err
			}
			count += below
			continue
		}
		if st.Mode&unix.S_IFMT == unix.S_IFREG {
			if err := fsckContents(name, st.Size); err != nil {
				return 0, err
			}
		}
		if files[st.Ino] == nil {
			files[st.Ino] = &fsckFile{name: name, nlink: uint64(st.Nlink)}
		}
		files[st.Ino].names++
	}
	if z.has("dirnlink") && uint64(self.Nlink) != subdirs+2 {
		return 0, fmt.Errorf("%s has %d subdirectories and nlink %d", dir, subdirs, self.Nlink)
	}
	return count, nil
}

// fsckContents checks that a file can be read to the end that stat(2) says.
func fsckContents(name string, size int64) error {
	b, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	if int64(len(b)) != size {
		return fmt.Errorf("%s has %d bytes to read and the size %d", name, len(b), size)
	}
	return nil
}

// fsFree prints how many KiB are free in a directory.
func fsFree(args []string) (int, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(args[0], &s); err != nil {
		return 1, err
	}
	_, err := fmt.Print(int64(s.Bavail) * s.Bsize >> 10)
	return 0, err
}
