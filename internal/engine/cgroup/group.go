package cgroup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
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

// Entrances returns the files by which a process with a single thread enters the group:
// it writes "0" to each. On v1 that does not wait for the kernel, see the package's
// comment; on v2 the first of many processes may wait. The caller closes the files, also
// those that come with an error.
func (g *Group) Entrances() ([]*os.File, error) {
	name := "tasks" // a thread may move itself without the lock that moving a process takes
	if g.h.kind == KindV2 {
		name = "cgroup.procs"
	}
	var files []*os.File
	for _, dir := range g.dirs() {
		f, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY, 0)
		if err != nil {
			return files, fmt.Errorf("open control group: %w", err)
		}
		files = append(files, f)
	}
	return files, nil
}

// Procs returns the process ids in the group, sorted. This process is never
// among them.
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
			// 0 is a process that is not in the pid namespace of this process. kill(0)
			// would signal this process's own group.
			if pid > 0 && pid != os.Getpid() {
				out = append(out, pid)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// Stats reads the resources that the group uses.
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

// Kill sends SIGKILL to every process of the group, also to those that start
// meanwhile. It does not wait for them to be gone, Delete does. Nothing can be
// started in the group afterwards.
func (g *Group) Kill() error {
	// No task may start from here on, so that each round of the loop finds
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

// killBatch kills the processes of pids that are in the group still. A pid may be reused
// by an unrelated process after it was read, so the pidfds are opened first and the pids
// read again: a pid that is in the group now is the process of its pidfd, or that process
// is dead and the signal goes nowhere.
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

// readInt reads a control file that holds a number.
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
