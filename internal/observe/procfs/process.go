package procfs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// userHZ is the unit of times in proc_pid_stat(5), the same on every
// architecture that Linux offers to user space.
const userHZ = 100

// point is where the kernel's processes are mounted.
const point = procfs.DefaultMountPoint

// process has fields of proc_pid_stat(5).
type process struct {
	pid, parent int
	start       uint64
	// reaped is the time of children that ended and were waited for.
	reaped time.Duration
}

// read returns a process, or an error that is os.ErrNotExist if there is none.
func read(fs procfs.FS, pid int) (process, error) {
	p, err := fs.Proc(pid)
	if err != nil {
		return process{}, fmt.Errorf("read process %d: %w", pid, err)
	}
	return readStat(p)
}

func readStat(p procfs.Proc) (process, error) {
	st, err := p.Stat()
	if errors.Is(err, unix.ESRCH) { // it ended while it was read
		err = os.ErrNotExist
	}
	if err != nil {
		return process{}, fmt.Errorf("read process %d: %w", p.PID, err)
	}
	return process{pid: p.PID, parent: st.PPID, start: st.Starttime, reaped: time.Duration(st.CUTime+st.CSTime) * time.Second / userHZ}, nil
}

// StartTime returns when a process started, in the kernel's clock ticks since boot. With
// the process id it names a process for ever.
func StartTime(pid int) (uint64, error) {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return 0, err
	}
	p, err := read(fs, pid)
	return p.start, err
}

// PIDs returns the ids of all processes.
func PIDs() ([]int, error) {
	procs, err := procfs.AllProcs()
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	pids := make([]int, len(procs))
	for i, p := range procs {
		pids[i] = p.PID
	}
	return pids, nil
}

// Children returns the ids of the living children of a process. A child that one of its
// threads begins meanwhile may be missing.
func Children(pid int) ([]int, error) {
	tasks := filepath.Join(point, strconv.Itoa(pid), "task")
	threads, err := os.ReadDir(tasks)
	if err != nil {
		return nil, fmt.Errorf("list threads of process %d: %w", pid, err)
	}
	var children []int
	for _, t := range threads {
		text, err := os.ReadFile(filepath.Join(tasks, t.Name(), "children"))
		if err != nil {
			continue // the thread has ended
		}
		for f := range strings.FieldsSeq(string(text)) {
			child, err := strconv.Atoi(f)
			if err != nil {
				return nil, fmt.Errorf("list children of process %d: %w", pid, err)
			}
			children = append(children, child)
		}
	}
	return children, nil
}

// Descriptor returns the path by which the file behind a descriptor of a process is
// reached.
func Descriptor(pid, fd int) string {
	return filepath.Join(point, strconv.Itoa(pid), "fd", strconv.Itoa(fd))
}

// OwnDescriptors returns the open descriptors of this process, with the one by which they
// are read, which is closed by then.
func OwnDescriptors() ([]int, error) {
	entries, err := os.ReadDir(filepath.Join(point, "self", "fd"))
	if err != nil {
		return nil, fmt.Errorf("list descriptors: %w", err)
	}
	fds := make([]int, len(entries))
	for i, e := range entries {
		if fds[i], err = strconv.Atoi(e.Name()); err != nil {
			return nil, fmt.Errorf("list descriptors: %w", err)
		}
	}
	return fds, nil
}

// TreeCPU returns the processor time that roots and all their descendants have
// used. When a process ends, its time goes over to its parent, so that the
// difference of two calls is what the trees used in between, except for orphans.
func TreeCPU(roots ...int) (time.Duration, error) {
	all, err := processes()
	if err != nil {
		return 0, err
	}
	var sum time.Duration
	for _, p := range within(all, roots) {
		sum += p.reaped + processTime(p.pid)
	}
	return sum, nil
}

// processCPU returns the processor time that a process has used, and those of its
// children that have ended and were waited for. It is an error if there is no such
// process.
func processCPU(pid int) (time.Duration, error) {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return 0, err
	}
	p, err := read(fs, pid)
	return p.reaped + processTime(pid), err
}

// FamilyCPU returns the processor time of a process and its children, living or waited
// for. A sentry is such a family: its children run the code of its guest.
func FamilyCPU(pid int) (time.Duration, error) {
	sum, err := processCPU(pid)
	if err != nil {
		return 0, err
	}
	children, err := Children(pid)
	if err != nil {
		return 0, err
	}
	for _, child := range children {
		used, _ := processCPU(child) // 0 if it has ended
		sum += used
	}
	return sum, nil
}

// processTime returns the time of a living process, all its threads included,
// and zero for one that has just ended. The process clock has nanoseconds; the
// times in proc_pid_stat are rounded down to hundredths of a second, which is as
// much as a small sandbox uses in all.
func processTime(pid int) time.Duration {
	const sched = 2 // CPUCLOCK_SCHED, see clock_getcpuclockid(3)
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|sched), &ts); err != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}

// Find returns the processes that have an argument with text in it.
func Find(text string) ([]int, error) {
	procs, err := procfs.AllProcs()
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var found []int
	for _, p := range procs {
		args, err := p.CmdLine()
		if err == nil && slices.ContainsFunc(args, func(a string) bool { return strings.Contains(a, text) }) {
			found = append(found, p.PID)
		}
	}
	return found, nil
}

// within returns the processes of all that are in the trees of roots.
func within(all []process, roots []int) []process {
	children := map[int][]process{}
	var found []process
	for _, p := range all {
		children[p.parent] = append(children[p.parent], p)
		if slices.Contains(roots, p.pid) {
			found = append(found, p)
		}
	}
	seen := map[int]bool{}
	for _, p := range found {
		seen[p.pid] = true
	}
	for i := 0; i < len(found); i++ {
		for _, c := range children[found[i].pid] {
			if !seen[c.pid] {
				seen[c.pid] = true
				found = append(found, c)
			}
		}
	}
	return found
}

func processes() ([]process, error) {
	procs, err := procfs.AllProcs()
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var all []process
	for _, x := range procs {
		p, err := readStat(x)
		if errors.Is(err, os.ErrNotExist) {
			continue // it has ended
		}
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

// Visible reports whether the process pid exists and its directory can be read.
func Visible(pid int) bool {
	_, err := os.Stat(filepath.Join(point, strconv.Itoa(pid), "stat"))
	return err == nil
}
