package node

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/launch"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/service"
)

// Exec runs a command in a running sandbox.
func (m *Node) Exec(ctx context.Context, ref string, req api.ExecRequest, streams service.ExecIO) (_ *api.ExecResult, err error) {
	ctx, ended := m.observe(ctx, "exec")
	defer ended(&err)
	b, err := m.resolve(ctx, ref)
	if err != nil {
		return nil, err
	}
	command, err := b.command(api.StartRequest{
		Argv: req.Argv, Shell: req.Shell, Env: req.Env, Cwd: req.Cwd, User: req.User, TimeoutMS: req.TimeoutMS,
	})
	if err != nil {
		return nil, err
	}
	command.Key = req.Key
	if req.From != nil {
		command.From = *req.From
	} else if err := m.mayRun(b); err != nil {
		return nil, fmt.Errorf("exec: %w", err)
	}
	sentry, done, err := m.use(ctx, b, api.StateRunning)
	if err != nil {
		return nil, fmt.Errorf("exec: %w", err)
	}
	defer done()
	stepped := m.stepping(ctx, b)
	began := time.Now()
	run := sentry.Exec
	if req.From != nil {
		run = sentry.ResumeExec
	}
	exited, err := run(ctx, command, launch.ExecIO{Stdin: streams.Stdin, Stdout: streams.Stdout, Stderr: streams.Stderr})
	if err != nil {
		return nil, fmt.Errorf("exec: %w", m.explain(b, sentry, err))
	}
	m.firstUse(b, began)
	res := exited.Result()
	stepped(api.Step{Kind: api.StepExec, Command: commandText(req.Argv, req.Shell), ExitCode: res.ExitCode})
	m.tellOf(api.EventExecuted, b, api.Event{ExitCode: &res.ExitCode})
	return res, nil
}

// command checks a request for a process and completes it with what b has for
// all of them.
func (b *instance) command(req api.StartRequest) (*wire.Exec, error) {
	argv, err := argvOf(req.Argv, req.Shell)
	if err != nil {
		return nil, err
	}
	if err := validEnv(req.Env); err != nil {
		return nil, err
	}
	if req.Cwd != "" && !strings.HasPrefix(req.Cwd, "/") {
		return nil, api.Invalid("cwd", "%q is not an absolute path", req.Cwd)
	}
	for field, ms := range map[string]int64{"timeout_ms": req.TimeoutMS, "idle_timeout_ms": req.IdleTimeoutMS} {
		if ms < 0 || ms > maxTimeoutMS {
			return nil, api.Invalid(field, "%d is not a time from 0 to %d ms", ms, int64(maxTimeoutMS))
		}
	}
	v := b.view()
	return &wire.Exec{
		Argv: argv, Env: req.Env, Cwd: cmp.Or(req.Cwd, v.Cwd), User: cmp.Or(req.User, v.User),
		Stdin: req.Stdin, Terminal: req.Terminal, TimeoutMS: req.TimeoutMS, IdleTimeoutMS: req.IdleTimeoutMS, Keep: req.KeepKiB << 10,
	}, nil
}

// maxTimeoutMS is ten years, in which no clock overflows.
const maxTimeoutMS = 10 * 365 * 24 * 3600 * 1000

func argvOf(argv []string, shell string) ([]string, error) {
	switch {
	case len(argv) > 0 && shell != "":
		return nil, api.Invalid("argv", "a command has argv or shell, not both")
	case strings.ContainsRune(shell, 0):
		return nil, api.Invalid("shell", "the command contains a NUL byte")
	case shell != "":
		return []string{"/bin/sh", "-c", shell}, nil
	case len(argv) == 0 || argv[0] == "":
		return nil, api.Invalid("argv", "there is no command")
	case slices.ContainsFunc(argv, func(a string) bool { return strings.ContainsRune(a, 0) }):
		return nil, api.Invalid("argv", "an argument contains a NUL byte")
	}
	return argv, nil
}

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
