package cgroup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// killBatch bounds the file descriptors that Kill holds at a time.
const killBatch = 64

// Delete polls: only v2 can tell when a group has become empty.
const (
	deletePollMin = 500 * time.Microsecond
	deletePollMax = 20 * time.Millisecond
)

// Group is one group of processes. It is safe for concurrent use.
type Group struct {
	h  *Hierarchy
	id string
}

// ID returns the name that the group was made with.
func (g *Group) ID() string { return g.id }

// Start starts cmd in the group: already its first instruction runs there. It
// does not wait for the kernel as Add does. On v2 it sets cmd.SysProcAttr.
func (g *Group) Start(cmd *exec.Cmd) error {
	if g.h.kind == KindV2 {
		return g.startV2(cmd)
	}
	return g.startV1(cmd)
}

func (g *Group) startV2(cmd *exec.Cmd) error {
	dir, err := os.Open(g.dirs()[0])
	if err != nil {
		return fmt.Errorf("open control group: %w", err)
	}
	defer dir.Close()
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.UseCgroupFD = true
	cmd.SysProcAttr.CgroupFD = int(dir.Fd())
	return cmd.Start()
}

// startV1 starts cmd from a thread that visits the group, because a child is
// born into the group of the thread that forks it. A thread may move itself
// without the lock that makes Add slow. The Go runtime never makes threads from
// a locked one, so no other thread is carried along.
func (g *Group) startV1(cmd *exec.Cmd) error {
	runtime.LockOSThread()
	own := g.h.ownDirs()
	err := moveThread(g.dirs())
	if err == nil {
		err = cmd.Start()
	}
	if backErr := moveThread(own); backErr != nil {
		// The thread stays locked, so the runtime ends it with its goroutine.
		if err == nil {
			err = cmd.Process.Kill()
			cmd.Wait() // its result is that of the kill
		}
		return errors.Join(err, fmt.Errorf("leave control group: %w", backErr))
	}
	runtime.UnlockOSThread()
	return err
}

func moveThread(dirs []string) error {
	for _, dir := range dirs {
		if err := writeFile(dir, "tasks", "0"); err != nil { // 0 is the writing thread
			return fmt.Errorf("enter control group: %w", err)
		}
	}
	return nil
}

// Add moves a running process with all its threads into the group. Children
// that it has already stay where they are. Add may block for 15 ms, see the
// package's comment.
func (g *Group) Add(pid int) error {
	for _, dir := range g.dirs() {
		if err := writeFile(dir, "cgroup.procs", strconv.Itoa(pid)); err != nil {
			return fmt.Errorf("add process %d to control group: %w", pid, err)
		}
	}
	return nil
}

// Procs returns the process ids in the group, sorted. This process is never
// among them, although one of its threads may be passing through in Start.
func (g *Group) Procs() ([]int, error) {
	var out []int
	for _, dir := range g.dirs() {
		b, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENODEV) {
			continue // half made or half deleted: the other hierarchies count
		}
		if err != nil {
			return nil, fmt.Errorf("list processes of control group: %w", err)
		}
		for _, f := range strings.Fields(string(b)) {
			pid, err := strconv.Atoi(f)
			if err != nil {
				return nil, fmt.Errorf("list processes of control group: %w", err)
			}
			// 0 is a process that our pid namespace does not see; kill(0) would
			// hit ourselves.
			if pid > 0 && pid != os.Getpid() {
				out = append(out, pid)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// Stats reads what the group uses.
func (g *Group) Stats() (Stats, error) {
	var s Stats
	var err error
	if g.h.kind == KindV2 {
		s, err = g.statsV2()
	} else {
		s, err = g.statsV1()
	}
	if err != nil {
		return Stats{}, fmt.Errorf("read control group: %w", err)
	}
	return s, nil
}

// Kill sends SIGKILL to every process of the group, also to those that are born
// meanwhile. It does not wait for them to be gone, Delete does. Nothing can be
// started in the group afterwards.
func (g *Group) Kill() error {
	// No task may be born from here on, so that each round of the loop finds
	// fewer processes. Where this fails the loop just has more rounds.
	_ = writeFile(g.dir(pids), "pids.max", "0")
	if g.h.kind == KindV2 {
		err := writeFile(g.dir(memory), "cgroup.kill", "1")
		if err == nil || errors.Is(err, unix.ENODEV) {
			return nil
		}
		// cgroup.kill came with Linux 5.14.
		if !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("kill control group: %w", err)
		}
	}
	killed := map[int]bool{}
	for {
		procs, err := g.Procs()
		if err != nil {
			return fmt.Errorf("kill control group: %w", err)
		}
		procs = slices.DeleteFunc(procs, func(pid int) bool { return killed[pid] })
		if len(procs) == 0 {
			return nil
		}
		for batch := range slices.Chunk(procs, killBatch) {
			if err := g.killBatch(batch, killed); err != nil {
				return fmt.Errorf("kill control group: %w", err)
			}
		}
	}
}

// killBatch kills those of pids that are in the group still. A pid may be reused
// by a stranger after it was read, so the pidfds are opened first and the pids
// read again: one that is in the group now is what its pidfd refers to, or the
// pidfd's process is dead and the signal goes nowhere.
func (g *Group) killBatch(batch []int, killed map[int]bool) error {
	fds := map[int]int{}
	defer func() {
		for _, fd := range fds {
			unix.Close(fd)
		}
	}()
	for _, pid := range batch {
		fd, err := unix.PidfdOpen(pid, 0)
		if err == unix.ESRCH {
			continue
		}
		if err != nil {
			return os.NewSyscallError("pidfd_open", err)
		}
		fds[pid] = fd
	}
	procs, err := g.Procs()
	if err != nil {
		return err
	}
	for pid, fd := range fds {
		if !slices.Contains(procs, pid) {
			continue
		}
		err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
		if err == unix.ESRCH {
			continue // dead; a new process of this pid is for the next round
		}
		if err != nil {
			return os.NewSyscallError("pidfd_send_signal", err)
		}
		killed[pid] = true
	}
	return nil
}

// Delete removes the group. It blocks while processes are in it, until ctx is
// done. A group that is gone already is no error.
func (g *Group) Delete(ctx context.Context) error {
	for wait := deletePollMin; ; wait = min(2*wait, deletePollMax) {
		err := removeAll(g.dirs())
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("delete control group: %w", err)
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			n, _ := g.Procs()
			return fmt.Errorf("delete control group %s with %d processes: %w", g.id, len(n), ctx.Err())
		}
	}
}

func (g *Group) dirs() []string {
	dirs := g.h.parentDirs()
	for i := range dirs {
		dirs[i] = filepath.Join(dirs[i], g.id)
	}
	return dirs
}

func (g *Group) dir(c controller) string {
	return filepath.Join(g.h.own[c], g.h.parent, g.id)
}

// readInt reads a control file that holds one number.
func (g *Group) readInt(c controller, name string) (int64, error) {
	b, err := os.ReadFile(filepath.Join(g.dir(c), name))
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(string(bytes.TrimSpace(b)), 10, 64)
}

// readKey reads the number behind key in a control file of "key number" lines.
func (g *Group) readKey(c controller, name, key string) (int64, error) {
	file := filepath.Join(g.dir(c), name)
	b, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, key+" "); ok {
			return strconv.ParseInt(strings.TrimSpace(v), 10, 64)
		}
	}
	return 0, fmt.Errorf("%s has no %s", file, key)
}
