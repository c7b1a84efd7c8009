package node

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/launch"
	"ramet.dev/ramet/internal/engine/wire"
)

// Stats returns what a sandbox uses.
func (m *Node) Stats(ctx context.Context, ref string) (*api.Stats, error) {
	b, err := m.resolve(ctx, ref)
	if err != nil {
		return nil, err
	}
	if st := m.statsAtRest(b); st != nil {
		return st, nil
	}
	return m.stats(ctx, b)
}

// statsAtRest returns what a sandbox uses to which no process on the host belongs,
// or nil of all others.
func (m *Node) statsAtRest(b *instance) *api.Stats {
	b.mu.Lock()
	rec := b.rec
	b.mu.Unlock()
	st := &api.Stats{State: rec.Sandbox.State, Disk: api.Disk{UsedMiB: rec.DiskMiB, LimitMiB: rec.Sandbox.Limits.DiskMiB}}
	switch st.State {
	case api.StateHibernated:
		if s := m.hibernated(b); s != nil {
			st.Disk.PrivateMiB = float64(s.view().SizeBytes) / (1 << 20)
		}
		return st
	case api.StateCreating:
		return st
	}
	return nil
}

func (m *Node) stats(ctx context.Context, b *instance) (*api.Stats, error) {
	sentry, err := b.running(api.StateRunning, api.StatePaused)
	if err != nil {
		return nil, err
	}
	var info wire.Info
	if _, err := sentry.Call(ctx, &wire.Call{Op: wire.OpInfo}, &info); err != nil {
		return nil, fmt.Errorf("read statistics: %w", m.explain(b, sentry, err))
	}
	st := &api.Stats{State: b.view().State, CPUSeconds: info.CPUSeconds, Processes: info.Processes}
	if g, ok := sentry.GroupStats(); ok {
		st.CPUSeconds = g.CPU.Seconds() // with the processes that guest code runs in
	}
	private, err := privateBytes(sentry)
	if err != nil {
		return nil, fmt.Errorf("read memory use: %w", err)
	}
	const mib = 1 << 20
	st.Memory = api.Memory{
		PrivateMiB: float64(private) / mib,
		SharedMiB:  float64(info.SharedBytes) / mib,
	}
	st.Disk = api.Disk{
		UsedMiB:    float64(info.DiskBytes) / mib,
		LimitMiB:   b.view().Limits.DiskMiB,
		PrivateMiB: float64(launch.Allocated(sentry.Files())) / mib,
	}
	return st, nil
}

// privateBytes returns the memory that a sandbox alone has: its own pages, and what the
// processes on the host need besides.
func privateBytes(s *launch.Sentry) (int64, error) {
	anon, err := anonymous(s.PID())
	return launch.Allocated(s.Memory()) + anon, err
}

// anonymous returns the bytes of anonymous memory of a sentry and the processes
// it traces, which are its children. Its memory file is counted elsewhere.
func anonymous(pid int) (int64, error) {
	total, err := privateOf(pid)
	if err != nil {
		return 0, err
	}
	tasks, err := os.ReadDir(filepath.Join("/proc", strconv.Itoa(pid), "task"))
	if err != nil {
		return 0, err
	}
	for _, t := range tasks {
		children, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "task", t.Name(), "children"))
		if err != nil {
			continue // the thread has ended
		}
		for _, c := range strings.Fields(string(children)) {
			child, err := strconv.Atoi(c)
			if err != nil {
				return 0, err
			}
			if n, err := anonymousOf(child); err == nil { // else it has ended
				total += n
			}
		}
	}
	return total, nil
}

// privateOf adds up what proc_pid_smaps(5) says of mappings that can be written to and
// have no file: the pages that only this process has. What it has in common with other
// sentries, which are forks of one process as it is, does not count, and neither does
// the program's text, which they share for as long as there is more than one of them.
func privateOf(pid int) (total int64, err error) {
	f, err := os.Open(filepath.Join("/proc", strconv.Itoa(pid), "smaps"))
	if err != nil {
		return 0, err
	}
	defer f.Close()
	counts := false
	for lines := bufio.NewScanner(f); ; {
		if !lines.Scan() {
			return total, lines.Err()
		}
		fields := strings.Fields(lines.Text())
		switch {
		case len(fields) >= 5 && strings.Contains(fields[0], "-"): // addresses, mode, offset, device, inode
			counts = strings.HasPrefix(fields[1], "rw") && fields[4] == "0"
		case counts && len(fields) == 3 && (fields[0] == "Private_Dirty:" || fields[0] == "Private_Clean:"):
			kib, err := strconv.ParseInt(fields[1], 10, 64)
			if err != nil {
				return 0, err
			}
			total += kib << 10
		}
	}
}

// anonymousOf reads Pss_Anon of proc_pid_smaps_rollup(5).
func anonymousOf(pid int) (int64, error) {
	f, err := os.Open(filepath.Join("/proc", strconv.Itoa(pid), "smaps_rollup"))
	if err != nil {
		return 0, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if rest, ok := strings.CutPrefix(lines.Text(), "Pss_Anon:"); ok {
			kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			return kib << 10, err
		}
	}
	return 0, lines.Err()
}
