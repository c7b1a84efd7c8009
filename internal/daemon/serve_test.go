package daemon

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/client"
	"ramet.dev/ramet/internal/server/rest/apitest"
	"ramet.dev/ramet/internal/service"
	"ramet.dev/ramet/internal/storage/paths"
)

// running is a daemon in this process.
type running struct {
	stop   func() // as SIGTERM does
	done   chan error
	closed bool // the service was closed; read it after done
}

// testDaemon runs a daemon and waits until it listens.
func testDaemon(t *testing.T, p paths.Paths, svc *apitest.Service, drain time.Duration) *running {
	t.Helper()
	r, ready := beginDaemon(t, p, svc, drain)
	if line, err := io.ReadAll(ready); err != nil || parseStarted(line) != nil {
		t.Fatalf("daemon: %q, %v", line, err)
	}
	return r
}

func beginDaemon(t *testing.T, p paths.Paths, svc *apitest.Service, drain time.Duration) (*running, *os.File) {
	t.Helper()
	ready, readyWrite, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ready.Close() })
	ctx, stop := context.WithCancel(context.Background())
	r := &running{stop: stop, done: make(chan error, 1)}
	cfg := Config{
		Paths: p, Version: "test", Logger: slog.New(slog.DiscardHandler), DrainTimeout: drain, Handover: &Handover{ready: readyWrite},
		NewService: func(context.Context, paths.Paths, *slog.Logger) (service.Service, io.Closer, error) {
			return svc, closerFunc(func() error { r.closed = true; return nil }), nil
		},
	}
	go func() { r.done <- Serve(ctx, cfg) }()
	t.Cleanup(func() {
		stop()
		if err := <-r.done; err != nil {
			t.Errorf("Serve = %v", err)
		}
		close(r.done)
	})
	return r, ready
}

func (r *running) wait() error {
	err := <-r.done
	r.done <- nil // for the cleanup
	if !r.closed {
		return errors.Join(err, errors.New("the service was not closed"))
	}
	return err
}

func connect(t *testing.T, p paths.Paths) *client.Client {
	t.Helper()
	c, h, err := Connect(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	if h.Version != "test" {
		t.Errorf("health: %+v", h)
	}
	return c
}

func TestOneDaemonPerRuntimeDirectory(t *testing.T) {
	p := testPaths(t)
	testDaemon(t, p, &apitest.Service{}, 0)
	err := Serve(t.Context(), Config{Paths: p, Logger: slog.New(slog.DiscardHandler)})
	if api.CodeOf(err) != api.CodeConflict || !strings.Contains(err.Error(), "process") {
		t.Errorf("a second daemon: %v", err)
	}
	connect(t, p)
	for path, mode := range map[string]os.FileMode{p.Socket(): 0o600, p.RuntimeDir(): 0o700, p.DataDir(): 0o700} {
		if fi, err := os.Stat(path); err != nil || fi.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v", path, fi, err)
		}
	}
}

func TestAStaleSocketIsReplaced(t *testing.T) {
	p := testPaths(t)
	if err := p.MakeRuntime(); err != nil {
		t.Fatal(err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: p.Socket(), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	if _, _, err := Connect(t.Context(), p); !client.NobodyListens(err) {
		t.Fatalf("stale socket: %v", err)
	}
	testDaemon(t, p, &apitest.Service{}, 0)
	connect(t, p)
}

func TestWhatIsNoSocketStays(t *testing.T) {
	p := testPaths(t)
	if err := p.MakeRuntime(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p.Socket(), []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	err := Serve(t.Context(), Config{
		Paths: p, Logger: slog.New(slog.DiscardHandler),
		NewService: func(context.Context, paths.Paths, *slog.Logger) (service.Service, io.Closer, error) {
			return &apitest.Service{}, nil, nil
		},
	})
	if api.CodeOf(err) != api.CodeConflict {
		t.Errorf("Serve = %v", err)
	}
	if b, err := os.ReadFile(p.Socket()); err != nil || string(b) != "precious" {
		t.Errorf("the file: %q, %v", b, err)
	}
}

type closerFunc func() error

func (f closerFunc) Close() error { return f() }

func TestServiceIsClosedWhenTheStartIsInterrupted(t *testing.T) {
	p := testPaths(t)
	broken := errors.New("broken")
	var events []string
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	err := Serve(ctx, Config{
		Paths: p, Logger: slog.New(slog.DiscardHandler),
		NewService: func(context.Context, paths.Paths, *slog.Logger) (service.Service, io.Closer, error) {
			events = append(events, "build")
			stop()
			return &apitest.Service{}, closerFunc(func() error {
				events = append(events, "close")
				return broken
			}), nil
		},
	})
	if got := strings.Join(events, " "); got != "build close" {
		t.Errorf("events: %s", got)
	}
	if !errors.Is(err, broken) || !errors.Is(err, context.Canceled) {
		t.Errorf("Serve = %v", err)
	}
}

// blocked is a command that waits for release or for its context.
func blocked(entered chan<- struct{}, release <-chan struct{}) *apitest.Service {
	return &apitest.Service{ExecFunc: func(ctx context.Context, _ string, _ api.ExecRequest, _ api.ExecIO) (*api.ExecResult, error) {
		entered <- struct{}{}
		select {
		case <-release:
			return &api.ExecResult{OK: true}, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}}
}

func TestDrainLetsRequestsEnd(t *testing.T) {
	for _, withInput := range []bool{false, true} {
		p := testPaths(t)
		entered, release := make(chan struct{}), make(chan struct{})
		d := testDaemon(t, p, blocked(entered, release), time.Minute)
		c := connect(t, p)
		result := make(chan error, 1)
		go func() {
			streams := api.ExecIO{}
			if withInput {
				streams.Stdin = strings.NewReader("")
			}
			_, err := c.Processes.ExecStream(context.Background(), "a", api.ExecRequest{Shell: "x"}, streams)
			result <- err
		}()
		<-entered
		d.stop()
		waitUntilGone(t, p)
		close(release)
		if err := <-result; err != nil {
			t.Errorf("input %t: the request that was running: %v", withInput, err)
		}
		if err := d.wait(); err != nil {
			t.Errorf("input %t: Serve = %v", withInput, err)
		}
	}
}

// waitUntilGone returns when the socket of p is gone. The directory is watched:
// nothing is polled.
func waitUntilGone(t *testing.T, p paths.Paths) {
	t.Helper()
	fd, err := syscall.InotifyInit1(syscall.IN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fd)
	if _, err := syscall.InotifyAddWatch(fd, filepath.Dir(p.Socket()), syscall.IN_DELETE); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 4096)
	for {
		if _, err := os.Lstat(p.Socket()); errors.Is(err, os.ErrNotExist) {
			return
		}
		if _, err := syscall.Read(fd, buf); err != nil {
			t.Fatal(err)
		}
	}
}

func TestDrainGivesUp(t *testing.T) {
	for _, withInput := range []bool{false, true} {
		p := testPaths(t)
		entered := make(chan struct{})
		d := testDaemon(t, p, blocked(entered, nil), 10*time.Millisecond)
		c := connect(t, p)
		result := make(chan error, 1)
		go func() {
			streams := api.ExecIO{}
			if withInput {
				streams.Stdin = strings.NewReader("")
			}
			_, err := c.Processes.ExecStream(context.Background(), "a", api.ExecRequest{Shell: "x"}, streams)
			result <- err
		}()
		<-entered
		d.stop()
		if err := d.wait(); err != nil {
			t.Errorf("input %t: Serve = %v", withInput, err)
		}
		if err := <-result; api.CodeOf(err) != api.CodeUnavailable {
			t.Errorf("input %t: the request that was given up: %v, want one that says to come back", withInput, err)
		}
	}
}

func TestASuccessorWaitsForTheDrain(t *testing.T) {
	p := testPaths(t)
	entered, release := make(chan struct{}), make(chan struct{})
	first := testDaemon(t, p, blocked(entered, release), time.Minute)
	c := connect(t, p)
	go func() { _, _ = c.Processes.Exec(context.Background(), "a", api.ExecRequest{Shell: "x"}) }()
	<-entered
	first.stop()
	waitUntilGone(t, p)
	_, ready := beginDaemon(t, p, &apitest.Service{}, 0)
	// The successor cannot be ready: the first daemon holds the lock until the
	// request ends.
	if err := ready.SetReadDeadline(time.Now().Add(20 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if n, err := ready.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the successor spoke: %d bytes, %v", n, err)
	}
	close(release)
	if err := ready.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	if line, err := io.ReadAll(ready); err != nil || parseStarted(line) != nil {
		t.Fatalf("successor: %q, %v", line, err)
	}
	connect(t, p)
}

func TestLockCanBeGivenUp(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	held, err := acquire(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := acquire(ctx, path); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("acquire = %v", err)
	}
	if err := release(held); err != nil {
		t.Fatal(err)
	}
	again, err := acquire(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if err := release(again); err != nil {
		t.Fatal(err)
	}
}

// A connection of another user is closed without an answer. The kernel takes the
// credentials from the connecting thread, so one thread becomes that user.
func TestOtherUsersAreRefused(t *testing.T) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: "@" + api.NewID("sbx"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	other := os.Getuid() == 0
	own := &ownListener{UnixListener: l, uid: uint32(os.Getuid()), log: slog.New(slog.DiscardHandler)}
	if !other {
		own.uid++ // without privileges a thread cannot change: the listener does
	}
	defer own.Close()
	accepted := make(chan net.Conn, 1)
	go func() {
		defer close(accepted)
		for {
			conn, err := own.Accept()
			if err != nil {
				return
			}
			accepted <- conn
		}
	}()
	result := make(chan error, 1)
	go func() {
		// Never unlocked: the thread ends with the goroutine.
		runtime.LockOSThread()
		if other {
			if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, ^uintptr(0), 65534, ^uintptr(0)); errno != 0 {
				result <- errno
				return
			}
		}
		conn, err := net.Dial("unix", l.Addr().String())
		if err == nil {
			_, err = conn.Read(make([]byte, 1))
			conn.Close()
		}
		result <- err
	}()
	if err := <-result; err != io.EOF && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the other user saw %v", err)
	}
	if other {
		conn, err := net.Dial("unix", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if conn := <-accepted; conn == nil {
			t.Error("the own user was refused")
		} else {
			conn.Close()
		}
	}
	own.Close()
	if conn, ok := <-accepted; ok {
		t.Errorf("a second connection was accepted: %v", conn.RemoteAddr())
	}
}
