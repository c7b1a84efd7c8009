package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/client"
	"ramet.dev/ramet/internal/storage/paths"
)

const (
	// healthTimeout bounds the first question to a daemon that listens.
	healthTimeout = 10 * time.Second
	// maxLogTail is how much of its log a daemon that died is quoted with.
	maxLogTail = 2 << 10
)

var errSaidNothing = errors.New("the daemon ended while it started")

// Connect returns a client of the running daemon, and its health. It is a CodeUnavailable
// error that none is running.
func Connect(ctx context.Context, p paths.Paths) (*client.Client, api.Health, error) {
	c, err := client.New("unix:" + p.Socket())
	if err != nil {
		return nil, api.Health{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	h, err := c.Health(ctx)
	if err != nil {
		c.Close()
		return nil, h, fmt.Errorf("connect to daemon: %w", err)
	}
	return c, h, nil
}

// Ensure returns a client of the daemon of p and starts that daemon if none is
// running: this program with the arguments "serve --background". It blocks until
// the daemon is ready, or says why it cannot be.
func Ensure(ctx context.Context, p paths.Paths) (*client.Client, api.Health, error) {
	c, h, err := Connect(ctx, p)
	if api.CodeOf(err) == api.CodeUnavailable && !client.NobodyListens(err) {
		c, h, err = Connect(ctx, p) // it may have died while it was asked
	}
	if err == nil || !client.NobodyListens(err) {
		return c, h, err
	}
	if err := errors.Join(p.MakeRuntime(), p.MakeData()); err != nil {
		return nil, h, err
	}
	startLock, err := acquire(ctx, p.StartLock())
	if err != nil {
		return nil, h, err
	}
	// The daemon releases the lock when it listens; then this only closes.
	defer startLock.Close()
	c, h, err = Connect(ctx, p) // another command may have been faster
	if err == nil || !client.NobodyListens(err) {
		return c, h, err
	}
	if err := start(ctx, p, startLock); err != nil {
		return nil, h, err
	}
	return Connect(ctx, p)
}

// start starts a daemon, which inherits startLock, and waits for its message.
func start(ctx context.Context, p paths.Paths, startLock *os.File) error {
	log, err := openLog(p.Log(), maxLog)
	if err != nil {
		return err
	}
	defer log.Close()
	end, err := log.Seek(0, io.SeekEnd)
	if err != nil {
		return fmt.Errorf("open log: %w", err)
	}
	ready, readyWrite, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("start daemon: %w", err)
	}
	defer ready.Close()
	cmd := exec.Cmd{
		Path:        "/proc/self/exe", // this very program, even if its file was replaced
		Args:        []string{"ramet", "serve", "--background"},
		Dir:         "/",
		Stdout:      log,
		Stderr:      log,
		ExtraFiles:  []*os.File{readyFD - 3: readyWrite, startLockFD - 3: startLock},
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	err = cmd.Start()
	readyWrite.Close()
	if err != nil {
		return fmt.Errorf("start daemon: %w", err)
	}
	// The daemon outlives this process, or ends before it: a server of MCP must not keep it as a zombie then.
	// Nothing waits for the goroutine, which ends with either.
	go func() { _ = cmd.Wait() }()
	stop := context.AfterFunc(ctx, func() { _ = ready.SetReadDeadline(time.Unix(0, 0)) })
	defer stop()
	line, err := io.ReadAll(ready)
	if ctx.Err() != nil {
		return fmt.Errorf("start daemon: %w", ctx.Err())
	}
	if err != nil {
		return fmt.Errorf("start daemon: %w", err)
	}
	if err = parseStarted(line); errors.Is(err, errSaidNothing) {
		return api.Errorf(api.CodeUnavailable, "start daemon: %w%s", err, logTail(log, end))
	}
	return err
}

// logTail quotes the part of the log that a daemon wrote from offset on.
func logTail(log *os.File, offset int64) string {
	if end, err := log.Seek(0, io.SeekEnd); err == nil {
		offset = max(offset, end-maxLogTail)
	}
	b, err := io.ReadAll(io.NewSectionReader(log, offset, maxLogTail))
	if text := strings.TrimSpace(string(b)); err == nil && text != "" {
		return "; its log " + log.Name() + " says:\n" + text
	}
	return "; its log is " + log.Name()
}
