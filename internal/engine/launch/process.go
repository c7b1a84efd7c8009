package launch

import (
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/cgroup"
	"ramet.dev/ramet/internal/engine/memwatch"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/observe/procfs"
)

// endTimeout is how long a process may take to end after it closed its
// sockets: the kernel ends all of its pid namespace first.
const endTimeout = 10 * time.Second

// process is the process of a sentry, with its control group and the files that are named
// after its key.
type process struct {
	key    string
	dir    string
	logger *slog.Logger // of this process
	pid    int
	handle *os.Process   // nil if it was not started. It cannot be mistaken for another process of that pid
	group  *cgroup.Group // nil without control groups

	watch memwatch.Watch

	done chan struct{} // closed when the process has ended
	end  error         // why; valid when done is closed
}

// Key returns the name that Adopt finds the sentry by.
func (p *process) Key() string { return p.key }

// PID returns the process id on the host.
func (p *process) PID() int { return p.pid }

// Done is closed when the process has ended.
func (p *process) Done() <-chan struct{} { return p.done }

// End returns why the process ended, once Done is closed.
func (p *process) End() error { return p.end }

func (p *process) socketPath() string { return filepath.Join(p.dir, p.key+".sock") }
func (p *process) logPath() string    { return filepath.Join(p.dir, p.key+".log") }

// equip adds to given what the process writes its log to and enters its control group by, and makes both.
func (p *process) equip(groups *cgroup.Hierarchy, limits cgroup.Limits, given *donation) error {
	log, err := os.OpenFile(p.logPath(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("open sentry log: %w", err)
	}
	given.add(log)
	if groups == nil {
		return nil
	}
	if p.group, err = groups.New(p.key, limits); err != nil {
		return fmt.Errorf("make control group: %w", err)
	}
	entrances, err := p.group.Entrances()
	given.files = append(given.files, entrances...)
	return err
}

// reap waits for the process, which is a child of this one, and records why it ended.
func (p *process) reap() {
	awaitExit(p.pid)
	state, err := p.handle.Wait() // returns at once: the process has ended
	if err == nil && !state.Success() {
		err = &exec.ExitError{ProcessState: state}
	}
	p.end = p.explain(err)
	close(p.done)
}

// awaitStranger closes done when the process, which is not a child of this one, has ended.
func (p *process) awaitStranger(pid int, startTime uint64) error {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if IsShort(err) {
		return fmt.Errorf("open process: %w", err)
	}
	if err != nil {
		return api.Errorf(api.CodeSandboxDied, "sentry ended while no daemon ran")
	}
	process, err := os.FindProcess(pid)
	if err != nil {
		unix.Close(fd)
		return fmt.Errorf("open process: %w", err)
	}
	// Checked after the descriptors are open: from here on the process cannot
	// be mistaken for another process.
	if st, err := procfs.StartTime(pid); err != nil || st != startTime {
		unix.Close(fd)
		_ = process.Release() // cannot fail
		if IsShort(err) {
			return err
		}
		return api.Errorf(api.CodeSandboxDied, "sentry ended while no daemon ran")
	}
	p.handle = process
	go func() {
		defer process.Release()
		awaitPidfd(fd)
		p.end = p.explain(nil)
		close(p.done)
	}()
	return nil
}

// awaitExit returns when the process pid has ended. It costs a goroutine, not a
// thread as waiting for a child does. If the host has no process descriptors it
// returns at once.
func awaitExit(pid int) {
	if fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK); err == nil {
		awaitPidfd(fd)
	}
}

// awaitPidfd returns when the process behind fd has ended, and closes fd.
func awaitPidfd(fd int) {
	f := os.NewFile(uintptr(fd), "pidfd") // non-blocking, so the runtime's poller has it
	defer f.Close()
	c, err := f.SyscallConn()
	if err != nil {
		return
	}
	// A process descriptor is readable when the process has ended.
	_ = c.Read(func(fd uintptr) bool {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		return n > 0 || err != nil && err != unix.EINTR
	})
}

// dial opens a connection to the sentry.
func (p *process) dial() (*wire.Conn, error) {
	c, err := wire.Dial(p.socketPath())
	if err != nil {
		select {
		case <-p.done:
			return nil, p.end
		default:
		}
		if IsShort(err) {
			return nil, api.Errorf(api.CodeLimit, "reach sentry: %w", err)
		}
		return nil, api.Errorf(api.CodeSandboxDied, "reach sentry: %w", err)
	}
	return c, nil
}

// SetLimits applies limits to the sentry's control group. It is an error of
// CodeIsolation if there are limits and no group.
func (p *process) SetLimits(l cgroup.Limits) error {
	if l == (cgroup.Limits{}) {
		return nil
	}
	if p.group == nil {
		return api.Errorf(api.CodeIsolation, "limits need a control group, and none can be made by this user: see ramet doctor")
	}
	return p.group.SetLimits(l)
}

// CPU returns the processor time of the sentry and of the processes that the code of its
// guest runs in. Quotas, statistics and metrics all read it here.
func (p *process) CPU() (time.Duration, error) {
	if p.group != nil {
		if st, err := p.group.Stats(); err == nil {
			return st.CPU, nil
		}
	}
	return procfs.FamilyCPU(p.PID())
}

// endUnknown ends the process if it exists all the same: the zygote may have ended before
// it reported the process.
func (p *process) endUnknown() {
	for _, pid := range p.processes() {
		if p.killProcess(pid) == nil {
			_, _ = unix.Wait4(pid, nil, 0, nil) // it is a child of this process, although the zygote made it
		}
	}
}

// processes returns the processes whose standard output is the sentry's log:
// itself.
func (p *process) processes() []int {
	all, err := procfs.PIDs()
	if err != nil {
		return nil
	}
	var pids []int
	for _, pid := range all {
		if p.isProcess(pid) {
			pids = append(pids, pid)
		}
	}
	return pids
}

func (p *process) isProcess(pid int) bool {
	log, err := os.Stat(p.logPath())
	if err != nil {
		return false
	}
	out, err := os.Stat(procfs.Descriptor(pid, 1))
	return err == nil && os.SameFile(log, out)
}

// killProcess kills pid if it is the sentry still, and waits for its end.
func (p *process) killProcess(pid int) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err == unix.ESRCH {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open process: %w", err)
	}
	defer unix.Close(fd)
	if !p.isProcess(pid) { // checked again: from here on the number cannot be that of another process
		return nil
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && err != unix.ESRCH {
		return fmt.Errorf("kill process: %w", err)
	}
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(endTimeout.Milliseconds()))
		switch {
		case err == unix.EINTR:
		case err != nil:
			return fmt.Errorf("wait for process: %w", err)
		case n == 0:
			return fmt.Errorf("process %d did not end within %v", pid, endTimeout)
		default:
			return nil
		}
	}
}
