package launch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/cgroup"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/observe/procfs"
	"ramet.dev/ramet/internal/polltest"
)

func wantCode(t testing.TB, err error, code api.Code) {
	t.Helper()
	if api.CodeOf(err) != code {
		t.Errorf("error has code %q, not %q: %v", api.CodeOf(err), code, err)
	}
}

func TestStartAndKill(t *testing.T) {
	l := newLauncher(t, normal)
	s := start(t, l)
	if !alive(s.PID()) || !validKey(s.Key()) {
		t.Fatalf("sentry %s has process %d", s.Key(), s.PID())
	}
	var info wire.Info
	if _, err := s.Call(context.Background(), &wire.Call{Op: wire.OpInfo}, &info, s.Memory(), s.Memory()); err != nil || info.ID != "2" {
		t.Errorf("call with two descriptors: %+v, %v", info, err)
	}
	_, err := s.Call(context.Background(), &wire.Call{Op: "dance"}, nil)
	if err == nil || !strings.Contains(err.Error(), "no dance here") {
		t.Errorf("a refused call: %v", err)
	}
	var wg sync.WaitGroup
	for range 3 {
		wg.Add(1)
		go func() { defer wg.Done(); s.Kill() }()
	}
	wg.Wait()
	if alive(s.PID()) {
		t.Error("process lives")
	}
	<-s.Done()
	wantCode(t, s.End(), api.CodeSandboxDied)
	if _, err := s.Call(context.Background(), &wire.Call{Op: wire.OpInfo}, nil); api.CodeOf(err) != api.CodeSandboxDied {
		t.Errorf("call after the end: %v", err)
	}
}

// TestCallIsTooLarge makes calls that no message has room for: the errors must
// say which part of it was too much.
func TestCallIsTooLarge(t *testing.T) {
	s := start(t, newLauncher(t, normal))
	for text, call := range map[string]func() error{
		"standard input": func() error {
			_, err := s.Exec(context.Background(), &wire.Exec{Argv: []string{strings.Repeat("x", wire.MaxCall)}}, api.ExecIO{})
			return err
		},
		"254 descriptors": func() error {
			_, err := s.Call(context.Background(), &wire.Call{Op: wire.OpInfo}, nil, slices.Repeat([]*os.File{s.Memory()}, wire.MaxFiles+1)...)
			return err
		},
	} {
		err := call()
		wantCode(t, err, api.CodeLimit)
		if !strings.Contains(fmt.Sprint(err), text) {
			t.Errorf("%v says nothing of %s", err, text)
		}
	}
}

func TestStartIsCancelled(t *testing.T) {
	l := newLauncher(t, silent)
	ctx, cancel := context.WithCancelCause(context.Background())
	why := api.Errorf(api.CodeTimeout, "no patience")
	defer time.AfterFunc(50*time.Millisecond, func() { cancel(why) }).Stop()
	_, err := l.Start(ctx)
	if !errors.Is(err, why) {
		t.Errorf("start: %v", err)
	}
}

// TestStartIsGivenUp has a sentry hang before it is ready: the next one may do better.
func TestStartIsGivenUp(t *testing.T) {
	path, count := starts(t)
	l := newLauncher(t, fmt.Sprintf(spawnsSilent, startAttempts-1, path))
	l.helloTimeout = 2 * time.Second
	start(t, l)
	if n := count(); n != startAttempts {
		t.Errorf("it was started %d times", n)
	}
	l = newLauncher(t, silent)
	l.helloTimeout = 50 * time.Millisecond
	_, err := l.Start(context.Background())
	wantCode(t, err, api.CodeSandboxDied)
}

func TestOtherBuild(t *testing.T) {
	_, err := newLauncher(t, imposter).Start(context.Background())
	wantCode(t, err, api.CodeConflict)
}

// TestStartTriesAgain has sentries die before they are ready, and the zygote of calls:
// the next one is of another zygote then.
func TestStartTriesAgain(t *testing.T) {
	for _, behaviour := range []string{dying, zygoteDies} {
		for _, deaths := range []int{startAttempts - 1, startAttempts} {
			path, count := starts(t)
			s, err := newLauncher(t, fmt.Sprintf(behaviour, deaths, path)).Start(context.Background())
			if n := count(); n != startAttempts {
				t.Errorf("it was started %d times", n)
			}
			if deaths < startAttempts {
				if err != nil {
					t.Fatal(err)
				}
				s.Kill()
				continue
			}
			wantCode(t, err, api.CodeSandboxDied)
			if err == nil || !strings.Contains(err.Error(), crashLine) || strings.Contains(err.Error(), "goroutine") {
				t.Errorf("the reason is %q", err)
			}
		}
	}
}

// TestEndDuringCall checks that a call that a process dies of says so.
func TestEndDuringCall(t *testing.T) {
	s := start(t, newLauncher(t, normal))
	_, err := s.Call(context.Background(), &wire.Call{Op: wire.OpFreeze}, nil)
	wantCode(t, err, api.CodeSandboxDied)
	if err == nil || !strings.Contains(err.Error(), crashLine) {
		t.Errorf("the reason is %v", err)
	}
}

// TestCallOfTheDying checks that a call of a process that is being killed says so, however far that is.
func TestCallOfTheDying(t *testing.T) {
	l := newLauncher(t, normal)
	for range 5 {
		s := start(t, l)
		if err := unix.Kill(s.PID(), unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			_, err := s.Call(context.Background(), &wire.Call{Op: wire.OpInfo}, nil)
			wantCode(t, err, api.CodeSandboxDied)
			if err == nil || !strings.Contains(err.Error(), "sentry") || strings.Contains(err.Error(), "refused") {
				t.Errorf("the reason is %v", err)
			}
		}
	}
}

func TestExec(t *testing.T) {
	s := start(t, newLauncher(t, normal))
	ctx := context.Background()
	data := strings.Repeat("0123456789abcdef", 20_000)
	var out, errs bytes.Buffer
	r, err := s.Exec(ctx, &wire.Exec{Argv: []string{"cat"}}, api.ExecIO{Stdin: strings.NewReader(data), Stdout: &out, Stderr: &errs})
	if err != nil || r.Code != 1 || r.Signal != "true" || out.String() != data || errs.Len() > 0 {
		t.Errorf("cat: %+v %v, %d of %d bytes", r, err, out.Len(), len(data))
	}
	out.Reset()
	r, err = s.Exec(ctx, &wire.Exec{Argv: []string{"both", "x"}}, api.ExecIO{Stdout: &out, Stderr: &errs})
	if err != nil || r.Code != 2 || r.Signal != "false" || out.String() != "out" || errs.String() != "err" {
		t.Errorf("both: %+v %v %q %q", r, err, out.String(), errs.String())
	}
	_, err = s.Exec(ctx, &wire.Exec{Argv: []string{strings.Repeat("x", wire.MaxCall)}}, api.ExecIO{Stdout: &out, Stderr: &errs})
	wantCode(t, err, api.CodeLimit)
}

// notify tells when something is written.
type notify struct{ written chan struct{} }

func (n notify) Write(b []byte) (int, error) {
	close(n.written)
	return len(b), nil
}

func TestExecIsCancelled(t *testing.T) {
	s := start(t, newLauncher(t, normal))
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	out := notify{make(chan struct{})}
	go func() {
		<-out.written
		cancel()
	}()
	_, err := s.Exec(ctx, &wire.Exec{Argv: []string{"hang"}}, api.ExecIO{Stdout: out, Stderr: io.Discard})
	wantCode(t, err, api.CodeCanceled)
	polltest.Eventually(t, patience, "the sentry notices", func() bool {
		b := make([]byte, 11)
		_, err := s.Memory().ReadAt(b, 0)
		return err == nil && string(b) == "caller went"
	})
}

// full is a writer that takes nothing.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, unix.ENOSPC }

func TestExecWriterFails(t *testing.T) {
	s := start(t, newLauncher(t, normal))
	_, err := s.Exec(context.Background(), &wire.Exec{Argv: []string{"hang"}}, api.ExecIO{Stdout: full{}, Stderr: io.Discard})
	if !errors.Is(err, unix.ENOSPC) || api.CodeOf(err) != api.CodeCanceled {
		t.Errorf("exec: %s, %v", api.CodeOf(err), err)
	}
}

func TestMemoryIsReadOnly(t *testing.T) {
	s := start(t, newLauncher(t, normal))
	if _, err := s.Memory().WriteAt([]byte("x"), 0); !errors.Is(err, unix.EBADF) {
		t.Errorf("writing to a sandbox's memory: %v", err)
	}
}

func TestLimitsNeedAGroup(t *testing.T) {
	s := start(t, newLauncher(t, normal))
	wantCode(t, s.SetLimits(cgroup.Limits{Pids: 10}), api.CodeIsolation)
	if err := s.SetLimits(cgroup.Limits{}); err != nil {
		t.Errorf("no limits: %v", err)
	}
}

// orphan starts a committed sentry and forgets it, as a daemon that dies does.
func orphan(t testing.TB, l *Launcher) (s *Sentry, startTime uint64) {
	t.Helper()
	s = start(t, l)
	if _, err := s.Call(context.Background(), &wire.Call{Op: wire.OpCommit}, nil); err != nil {
		t.Fatal(err)
	}
	startTime, err := procfs.StartTime(s.PID())
	if err != nil {
		t.Fatal(err)
	}
	s.lifeline.Close()
	return s, startTime
}

func TestAdopt(t *testing.T) {
	ctx := context.Background()
	l := newLauncher(t, normal)
	old, startTime := orphan(t, l)
	s, info, gens, err := l.Adopt(ctx, old.Key(), old.PID(), startTime)
	if err != nil {
		t.Fatal(err)
	}
	if info.State != "running" || len(gens) != 1 || s.PID() != old.PID() {
		t.Errorf("adopted %+v with %d generations", info, len(gens))
	}
	for _, g := range gens {
		g.Close()
	}
	if _, err := s.Memory().WriteAt([]byte("x"), 0); !errors.Is(err, unix.EBADF) {
		t.Errorf("writing to an adopted sandbox's memory: %v", err)
	}
	if _, err := s.Call(ctx, &wire.Call{Op: wire.OpInfo}, nil); err != nil {
		t.Error(err)
	}
	s.Kill()
	<-s.Done()
	if alive(old.PID()) {
		t.Error("process lives")
	}
}

func TestAdoptedEndIsNoticed(t *testing.T) {
	l := newLauncher(t, normal)
	old, startTime := orphan(t, l)
	s, _, gens, err := l.Adopt(context.Background(), old.Key(), old.PID(), startTime)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Kill()
	for _, g := range gens {
		g.Close()
	}
	if err := unix.Kill(old.PID(), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	select {
	case <-s.Done():
		wantCode(t, s.End(), api.CodeSandboxDied)
	case <-time.After(patience):
		t.Error("nobody noticed")
	}
}

func TestAdoptRefuses(t *testing.T) {
	ctx := context.Background()
	l := newLauncher(t, normal)
	s, startTime := orphan(t, l)
	_, _, _, err := l.Adopt(ctx, "../../etc/passwd", s.PID(), startTime)
	wantCode(t, err, api.CodeCorrupt)
	// Another process has the number now.
	_, _, _, err = l.Adopt(ctx, s.Key(), s.PID(), startTime+1)
	wantCode(t, err, api.CodeSandboxDied)
	if !alive(s.PID()) {
		t.Error("a process that is none of ours was killed")
	}
	_, _, _, err = l.Adopt(ctx, s.Key(), 1<<22+1, 0) // more than pid_max
	wantCode(t, err, api.CodeSandboxDied)
}

// TestAdoptWhenShort adopts a sentry with no more descriptors than so many left
// to this process: that must never be the sentry's end.
func TestAdoptWhenShort(t *testing.T) {
	l := newLauncher(t, normal)
	old, startTime := orphan(t, l)
	failed := 0
	for free := 0; ; free++ {
		var s *Sentry
		var gens []*os.File
		var err error
		withDescriptors(t, free, func() { s, _, gens, err = l.Adopt(context.Background(), old.Key(), old.PID(), startTime) })
		if err == nil {
			for _, g := range gens {
				g.Close()
			}
			s.Kill()
			break
		}
		failed++
		if !IsShort(err) || !alive(old.PID()) {
			t.Fatalf("with %d descriptors: %v; sentry is alive: %v", free, err, alive(old.PID()))
		}
	}
	if failed < 4 { // the process, its start time, the connection, each descriptor that comes
		t.Errorf("it failed only %d times: the test proves nothing", failed)
	}
}

// withDescriptors runs f while this process can open that many descriptors.
func withDescriptors(t testing.TB, free int, f func()) {
	t.Helper()
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	runtime.GC() // closes what nobody has
	limit := 0
	for ; free > 0 || isOpen(limit); limit++ {
		if !isOpen(limit) {
			free--
		}
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(limit), Max: was.Max}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
			t.Error(err)
		}
	}()
	f()
}

func isOpen(fd int) bool {
	_, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
	return err == nil
}

func TestSweep(t *testing.T) {
	l := newLauncher(t, normal)
	kept, _ := orphan(t, l)
	left, _ := orphan(t, l)
	dead, _ := orphan(t, l)
	if err := unix.Kill(dead.PID(), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-dead.Done()
	if err := l.Sweep(context.Background(), func(key string) bool { return key == kept.Key() }); err != nil {
		t.Error(err)
	}
	polltest.Eventually(t, patience, "the end of what nobody needs", func() bool { return !alive(left.PID()) })
	if !alive(kept.PID()) {
		t.Error("what is needed was ended")
	}
	entries, err := os.ReadDir(l.cfg.Dir)
	if err != nil || len(entries) != 3 { // a socket and a log, and the zygote's
		t.Errorf("left: %v (%v)", entries, err)
	}
}

// TestSweepKills sweeps a sentry that does not end when it is asked to.
func TestSweepKills(t *testing.T) {
	l := newLauncher(t, stubborn)
	s, _ := orphan(t, l)
	l.quitTimeout = 100 * time.Millisecond
	if err := l.Sweep(context.Background(), func(string) bool { return false }); err != nil {
		t.Error(err)
	}
	if alive(s.PID()) {
		t.Error("it lives, and nobody can find it any more")
	}
}

// TestSweepKeepsWhatItCannotEnd sweeps something that listens and whose process
// is not to be found: its socket must stay.
func TestSweepKeepsWhatItCannotEnd(t *testing.T) {
	l := newLauncher(t, normal)
	l.quitTimeout = 100 * time.Millisecond
	path := filepath.Join(l.cfg.Dir, "pool_0123456789abcdef.sock")
	listener, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close() // removes it
	if err := l.Sweep(context.Background(), func(string) bool { return false }); err == nil {
		t.Error("it was ended")
	}
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
}

func TestReasonIn(t *testing.T) {
	for log, want := range map[string]string{
		"":                           "",
		"\n\n":                       "",
		"W1121 some warning\nmore\n": "more",
		"warning\npanic: test\n\ngoroutine 1:\nmain.main()":                           "panic: test",
		"fatal error: fault\n[signal SIGBUS]\n":                                       "fatal error: fault",
		"sentry: enter empty root: operation not permitted\nx":                        "sentry: enter empty root: operation not permitted",
		"one line that is no end of anything, only long " + strings.Repeat("x", 1000): ("one line that is no end of anything, only long " + strings.Repeat("x", 1000))[:500],
	} {
		if got := reasonIn(log); got != want {
			t.Errorf("reasonIn(%q) = %q, not %q", log, got, want)
		}
	}
}

func TestCrashIn(t *testing.T) {
	long := "panic: x\n" + strings.Repeat("goroutine\n", 10_000)
	for log, want := range map[string]string{
		"":                "",
		"sentry: wrong\n": "",
		"warning\npanic: test\n\ngoroutine 1:\nmain.main()":     "panic: test\n\ngoroutine 1:\nmain.main()",
		"not a panic: x\nfatal error: fault\n[signal SIGBUS]\n": "fatal error: fault\n[signal SIGBUS]\n",
		long: long[:16<<10],
	} {
		if got := crashIn(log); got != want {
			t.Errorf("crashIn(%.50q) = %.50q of %d bytes, not %.50q", log, got, len(got), want)
		}
	}
}

// TestNothingInheritedIsPassedOn opens a descriptor as whoever starts a daemon
// may leave to it.
func TestNothingInheritedIsPassedOn(t *testing.T) {
	fd, err := unix.Open("/dev/null", unix.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	newLauncher(t, normal)
	if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("it would reach sentries (%v)", err)
	}
}

func newPool(t testing.TB, l *Launcher, size int) *Pool {
	t.Helper()
	p := NewPool(l, PoolSize{Least: size, Most: size}, slog.New(slog.DiscardHandler))
	t.Cleanup(p.Close)
	return p
}
