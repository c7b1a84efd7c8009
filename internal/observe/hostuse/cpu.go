package hostuse

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// userHZ is the unit of times in proc_pid_stat(5), the same on every
// architecture that Linux offers to user space.
const userHZ = 100

// process is what TreeCPU needs of proc_pid_stat(5).
type process struct {
	pid, parent int
	// reaped is the time of children that ended and were waited for.
	reaped time.Duration
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

// ProcessCPU returns the processor time that a process has used, and those of its
// children that have ended and were waited for. It is an error if there is no such
// process.
func ProcessCPU(pid int) (time.Duration, error) {
	line, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0, fmt.Errorf("read process %d: %w", pid, err)
	}
	p, err := parseStat(pid, string(line))
	return p.reaped + processTime(pid), err
}

// processTime returns the time of a living process, all its threads included,
// and zero for one that has just ended. The process clock has nanoseconds; the
// times in proc_pid_stat are cut down to hundredths of a second, which is as
// long as a small sandbox works in all.
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
	all, err := processes()
	if err != nil {
		return nil, err
	}
	var found []int
	for _, p := range all {
		args, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(p.pid), "cmdline"))
		if err == nil && bytes.Contains(args, []byte(text)) {
			found = append(found, p.pid)
		}
	}
	return found, nil
}

// within returns those of all that are in the trees of roots.
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
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var all []process
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue // not a process
		}
		line, err := os.ReadFile(filepath.Join("/proc", name, "stat"))
		if err != nil {
			continue // it has ended
		}
		p, err := parseStat(pid, string(line))
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

// parseStat reads one line of proc_pid_stat(5).
func parseStat(pid int, line string) (process, error) {
	// The second field is the command in parentheses and may hold anything.
	end := strings.LastIndexByte(line, ')')
	fields := strings.Fields(line[end+1:])
	const parent, cutime, cstime = 4 - 3, 16 - 3, 17 - 3 // numbered as in the manual, less the first two
	if end < 0 || len(fields) <= cstime {
		return process{}, fmt.Errorf("read process %d: %q is not a line of statistics", pid, line)
	}
	p := process{pid: pid}
	var err error
	if p.parent, err = strconv.Atoi(fields[parent]); err != nil {
		return process{}, fmt.Errorf("read process %d: parent: %w", pid, err)
	}
	for _, i := range []int{cutime, cstime} {
		ticks, err := strconv.ParseInt(fields[i], 10, 64)
		if err != nil {
			return process{}, fmt.Errorf("read process %d: time of children: %w", pid, err)
		}
		p.reaped += time.Duration(ticks) * time.Second / userHZ
	}
	return p, nil
}

// Visible reports whether the process pid exists and may be looked at.
func Visible(pid int) bool {
	_, err := os.Stat(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	return err == nil
}

// Busy returns the processor time that the whole machine has used since it
// started, with that which other virtual machines took from it.
func Busy() (time.Duration, error) {
	doc, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, fmt.Errorf("read processor time of the machine: %w", err)
	}
	return parseBusy(string(doc))
}

// parseBusy reads the first line of proc_stat(5).
func parseBusy(doc string) (time.Duration, error) {
	line, _, _ := strings.Cut(doc, "\n")
	fields := strings.Fields(line)
	// user, nice and system; idle and iowait are left out; irq, softirq, steal.
	used := []int{1, 2, 3, 6, 7, 8}
	if len(fields) <= used[len(used)-1] || fields[0] != "cpu" {
		return 0, fmt.Errorf("read processor time of the machine: %q is not its line", line)
	}
	var sum time.Duration
	for _, i := range used {
		ticks, err := strconv.ParseInt(fields[i], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("read processor time of the machine: %w", err)
		}
		sum += time.Duration(ticks) * time.Second / userHZ
	}
	return sum, nil
}
