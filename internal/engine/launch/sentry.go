package launch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/cgroup"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/observe/procfs"
	"ramet.dev/ramet/internal/observe/tracing"
)

// endPatience is how long a process may take to end after it closed its
// sockets: the kernel ends all of its pid namespace first.
const endPatience = 10 * time.Second

// Sentry is one sentry process. It is safe for concurrent use.
type Sentry struct {
	key      string
	dir      string
	journal  *slog.Logger // of this process
	pid      int
	process  *os.Process // nil if it was not started. It cannot be mistaken for another one of that pid
	memory   *os.File    // read-only
	files    *os.File    // read-only
	lifeline *wire.Conn
	group    *cgroup.Group // nil without control groups
	hello    wire.Hello

	done chan struct{} // closed when the process has ended
	end  error         // why; valid when done is closed

	closeOnce sync.Once
}

// Key returns the name that Adopt finds the sentry by.
func (s *Sentry) Key() string { return s.key }

// PID returns the process id on the host.
func (s *Sentry) PID() int { return s.pid }

// Memory returns the sandbox's memory file, read-only. It belongs to the Sentry
// but for duplicates.
func (s *Sentry) Memory() *os.File { return s.memory }

// Files returns the file with the pages of the sandbox's files, read-only. It
// belongs to the Sentry but for duplicates.
func (s *Sentry) Files() *os.File { return s.files }

// FilesName is the name of Files among generations, as Key is that of Memory.
func (s *Sentry) FilesName() string { return s.key + "/files" }

// Isolation returns the layers that confine the sentry.
func (s *Sentry) Isolation() api.Isolation { return s.hello.Isolation }

// Done is closed when the process has ended.
func (s *Sentry) Done() <-chan struct{} { return s.done }

// End returns why the process ended, once Done is closed.
func (s *Sentry) End() error { return s.end }

// awaitHello waits until the sentry is ready or dead.
func (s *Sentry) awaitHello(ctx context.Context, cfg Config) error {
	stop := context.AfterFunc(ctx, func() { s.lifeline.SetDeadline(time.Unix(1, 0)) })
	p, err := s.lifeline.Receive()
	if !stop() {
		return fmt.Errorf("start sentry: %w", context.Cause(ctx))
	}
	if err != nil {
		if errors.Is(err, io.EOF) {
			<-s.done
			err = s.end
		}
		return fmt.Errorf("start sentry: %w", err)
	}
	defer p.Close()
	err = p.Decode(&s.hello)
	s.lifeline.Rest()
	if err != nil {
		return fmt.Errorf("start sentry: %w", err)
	}
	if s.hello.BuildID != cfg.BuildID {
		return api.Errorf(api.CodeConflict, "the program was replaced while the daemon runs: restart the daemon")
	}
	if s.group != nil {
		s.hello.Isolation.Cgroup = api.LayerOn
		s.hello.Isolation.CgroupKind = string(cfg.Cgroups.Kind())
	}
	return nil
}

// reap waits for the process, which is our child, and says why it ended.
func (s *Sentry) reap() {
	awaitExit(s.pid)
	state, err := s.process.Wait() // collects what is there: without a thread to wait in
	if err == nil && !state.Success() {
		err = &exec.ExitError{ProcessState: state}
	}
	s.end = s.explain(err)
	close(s.done)
}

// explain turns a process's end into an error that tells the reason.
func (s *Sentry) explain(err error) error {
	if s.group != nil {
		if st, serr := s.group.Stats(); serr == nil && st.OOMKills > 0 {
			return api.Errorf(api.CodeNoMemory, "the sandbox ran out of its memory limit")
		}
	}
	log, _ := readEnd(s.log(), 1<<20) // there may be none
	tellCrash(s.journal, s.key, log)
	reason := "ended"
	if err != nil {
		reason = err.Error()
	}
	line := reasonIn(string(log))
	if word, ok := strings.CutPrefix(line, lastWord); ok {
		return api.Errorf(api.CodeSandboxDied, "%s", word)
	}
	if line != "" {
		reason += ": " + line
	}
	return api.Errorf(api.CodeSandboxDied, "sentry %s", reason)
}

// readEnd returns up to most bytes from the end of a file: a guest can make its
// sentry's log long.
func readEnd(path string, most int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.NewSectionReader(f, max(0, st.Size()-most), most))
}

// lastWord begins the line with which a sentry says why it ends itself.
const lastWord = "sentry: "

// reasonIn returns the line of a sentry's log that says why it ended: the Go
// runtime's or the sentry's own last word, or just the last line.
func reasonIn(log string) string {
	const most = 500 // bytes, enough for any such line
	reason := ""
	for line := range strings.Lines(log) {
		line = strings.TrimSpace(line)
		switch {
		case isCrash(line), strings.HasPrefix(line, lastWord):
			return line[:min(len(line), most)]
		case line != "":
			reason = line
		}
	}
	return reason[:min(len(reason), most)]
}

// tellCrash puts the stacks of a process that crashed, if it did, into the daemon's log:
// its own goes with it.
func tellCrash(journal *slog.Logger, name string, log []byte) {
	if trace := crashIn(string(log)); trace != "" {
		journal.Error("sentry crashed", "sentry", name, "trace", trace)
	}
}

// crashIn returns what a sentry's log says from the line on in which the Go runtime says
// that it ends the program, empty if it did not. What follows is the stacks, first that of
// the goroutine that did it.
func crashIn(log string) string {
	const most = 16 << 10 // bytes
	at := 0
	for line := range strings.Lines(log) {
		if isCrash(line) {
			return log[at:min(len(log), at+most)]
		}
		at += len(line)
	}
	return ""
}

func isCrash(line string) bool {
	return strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ")
}

// Call makes one call and decodes its reply into out, which may be nil. It
// returns the descriptors that came with the reply to an Adopt; no other reply
// has any. Cancelling ctx closes the connection.
func (s *Sentry) Call(ctx context.Context, call *wire.Call, out any, fds ...*os.File) ([]*os.File, error) {
	c, span, done, err := s.openTraced(ctx, call, fds...)
	if err != nil {
		return nil, err
	}
	defer done()
	p, err := c.Receive()
	if err != nil {
		return nil, s.callError(ctx, call, err)
	}
	defer p.Close()
	if out == nil {
		out = &struct{}{}
	}
	if err := p.Decode(out); err != nil {
		return nil, err
	}
	trace(span, call, out)
	if call.Op != wire.OpAdopt {
		return nil, nil // what comes unasked is closed
	}
	files := p.Files
	p.Files = nil
	return files, nil
}

// open begins a call on a connection of its own, which cancelling ctx closes. done
// ends it.
func (s *Sentry) open(ctx context.Context, call *wire.Call, fds ...*os.File) (c *wire.Conn, done func(), err error) {
	c, _, done, err = s.openTraced(ctx, call, fds...)
	return c, done, err
}

// openTraced is open. It returns the context of the call's span as well.
func (s *Sentry) openTraced(ctx context.Context, call *wire.Call, fds ...*os.File) (c *wire.Conn, span context.Context, done func(), err error) {
	span, ended := tracing.Start(ctx, "sentry "+string(call.Op))
	if c, err = s.dial(); err != nil {
		ended(err)
		return nil, nil, nil, err
	}
	stop := context.AfterFunc(ctx, func() { c.Close() })
	done = func() {
		stop()
		c.Finish()
		ended(nil)
	}
	if err := send(c, call, fds); err != nil {
		done()
		return nil, nil, nil, s.callError(ctx, call, err)
	}
	return c, span, done, nil
}

// trace enters what a sentry says of how it spent the time of a call, if reply has
// that: it has no network to send spans itself.
func trace(span context.Context, call *wire.Call, reply any) {
	timed, ok := reply.(interface{ Spent() []wire.Stage })
	if !ok {
		return
	}
	var stages []tracing.Stage
	for _, st := range timed.Spent() {
		stages = append(stages, tracing.Stage{Name: st.Name, MS: st.MS})
	}
	tracing.Sentry(span, string(call.Op), stages)
}

func send(c *wire.Conn, call *wire.Call, files []*os.File) error {
	fds := make([]int, len(files))
	for i, f := range files {
		fds[i] = int(f.Fd())
	}
	err := c.SendJSON(wire.TypeCall, call, fds...)
	switch {
	case errors.Is(err, wire.ErrTooLarge):
		return api.Errorf(api.CodeLimit, "the arguments and the environment together are too large: pass data on standard input or in a file")
	case errors.Is(err, wire.ErrTooManyFiles):
		return api.Errorf(api.CodeLimit, "%d descriptors: %w", len(fds), err)
	}
	return err
}

func (s *Sentry) dial() (*wire.Conn, error) {
	c, err := wire.Dial(s.socket())
	if err != nil {
		select {
		case <-s.done:
			return nil, s.end
		default:
		}
		if IsShort(err) {
			return nil, api.Errorf(api.CodeLimit, "reach sentry: %w", err)
		}
		return nil, api.Errorf(api.CodeSandboxDied, "reach sentry: %w", err)
	}
	return c, nil
}

// callError says why a call broke off.
func (s *Sentry) callError(ctx context.Context, call *wire.Call, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", call.Op, context.Cause(ctx))
	}
	if errors.Is(err, io.EOF) || errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) {
		// The process closes its sockets before it can be waited for.
		select {
		case <-s.done:
			return s.end
		case <-time.After(endPatience):
		}
	}
	return fmt.Errorf("%s: %w", call.Op, err)
}

// SetLimits applies limits to the sentry's control group. It is an error of
// CodeIsolation if there are limits and no group.
func (s *Sentry) SetLimits(l cgroup.Limits) error {
	if l == (cgroup.Limits{}) {
		return nil
	}
	if s.group == nil {
		return api.Errorf(api.CodeIsolation, "limits need a control group, and none can be made by this user: see ramet doctor")
	}
	return s.group.SetLimits(l)
}

// CPU returns the processor time of the sentry and of the processes that the code of its
// guest runs in. Quotas, statistics and metrics all read it here.
func (s *Sentry) CPU() (time.Duration, error) {
	if s.group != nil {
		if st, err := s.group.Stats(); err == nil {
			return st.CPU, nil
		}
	}
	return procfs.FamilyCPU(s.PID())
}

// PrivateBytes returns the memory that a sandbox alone has: its own pages, and what the
// processes on the host need besides.
func PrivateBytes(s *Sentry) (int64, error) {
	family, err := procfs.FamilyPrivate(s.PID())
	return Allocated(s.Memory()) + family, err
}

// Kill ends the process if it runs, waits for it and removes all that belongs
// to it. It may be called more than once.
func (s *Sentry) Kill() {
	s.closeOnce.Do(func() {
		if s.process != nil {
			_ = s.process.Kill() // it may have ended
			<-s.done
		}
		s.release()
	})
}

// release gives up what belongs to a process that has ended.
func (s *Sentry) release() {
	if s.lifeline != nil {
		s.lifeline.Close()
	}
	if s.files != nil {
		s.files.Close()
	}
	if s.memory != nil {
		s.memory.Close()
	}
	if s.group != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = s.group.Kill()      // stubs end with their tracer; this is for one that did not
		_ = s.group.Delete(ctx) // a new daemon sweeps what is left
	}
	os.Remove(s.socket())
	os.Remove(s.log())
}
