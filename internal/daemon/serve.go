package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/server/portproxy"
	"ramet.dev/ramet/internal/server/rest"
	"ramet.dev/ramet/internal/service"
	"ramet.dev/ramet/internal/storage/paths"
)

const (
	// drainTimeout is how long requests may go on after a daemon was
	// told to end.
	drainTimeout = 10 * time.Second
	// answerTimeout is how long requests that are given up may take to answer, and
	// connections to close.
	answerTimeout = 2 * time.Second
	// headerTimeout bounds the head of a request; package rest bounds its body.
	headerTimeout = 10 * time.Second
	// idleTimeout is how long a connection may wait for its next request. Package client
	// closes its idle connections earlier; other clients may not.
	idleTimeout = 2 * time.Minute
)

// errEnding is the cause with which requests end that outlast the drain timeout. Its code
// tells a client that is attached to a process to come back to the next daemon.
var errEnding = api.Errorf(api.CodeUnavailable, "the daemon is ending")

// NewService builds the service that a daemon serves. ctx lives until the daemon has
// drained; then the Closer, which may be nil, is closed.
type NewService func(ctx context.Context, p paths.Paths, log *slog.Logger) (service.Service, io.Closer, error)

// Config is the configuration of a daemon. All fields but the last six must be set.
type Config struct {
	Paths      paths.Paths
	Version    string
	Logger     *slog.Logger
	NewService NewService
	// DrainTimeout is drainTimeout if it is zero.
	DrainTimeout time.Duration
	// Metrics serves /metrics; it may be nil.
	Metrics http.Handler
	// Around is called with the handler of requests and returns the one to use instead;
	// it may be nil.
	Around func(http.Handler) http.Handler
	// Listen is where it listens besides its socket.
	Listen Listen
	// Beside is another interface, if it has an address.
	Beside Beside
	// Handover is set in a daemon that a command started.
	Handover *Handover
}

// Serve is a daemon until ctx ends, and then drains: requests go on for up to
// DrainTimeout, after which their commands are killed. A CodeConflict error says
// that another daemon is running.
func Serve(ctx context.Context, cfg Config) (err error) {
	defer func() { cfg.Handover.report(err) }()
	if err := cfg.Listen.check(); err != nil {
		return fmt.Errorf("start daemon: %w", err)
	}
	if err := checkOpenFiles(); err != nil {
		return fmt.Errorf("start daemon: %w", err)
	}
	if err := errors.Join(cfg.Paths.MakeRuntime(), cfg.Paths.MakeData()); err != nil {
		return fmt.Errorf("start daemon: %w", err)
	}
	startLock := cfg.Handover.takeStartLock()
	if startLock == nil {
		if startLock, err = acquire(ctx, cfg.Paths.StartLock()); err != nil {
			return fmt.Errorf("start daemon: %w", err)
		}
	}
	listening := false
	defer func() {
		if !listening {
			err = errors.Join(err, release(startLock))
		}
	}()
	lock, err := takeOver(ctx, cfg)
	if err != nil {
		return fmt.Errorf("start daemon: %w", err)
	}
	defer func() { err = errors.Join(err, release(lock)) }()

	work, stopWork := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stopWork(errEnding)
	giveUp := context.AfterFunc(ctx, func() { stopWork(context.Cause(ctx)) })
	svc, closer, err := cfg.NewService(work, cfg.Paths, cfg.Logger)
	if err != nil {
		return fmt.Errorf("start daemon: %w", err)
	}
	defer func() { err = errors.Join(err, closeService(closer)) }()
	if !giveUp() {
		return fmt.Errorf("start daemon: %w", context.Cause(ctx))
	}
	l, err := listen(cfg.Paths.Socket(), cfg.Logger)
	if err != nil {
		return fmt.Errorf("start daemon: %w", err)
	}
	listeners := []net.Listener{l}
	var hosts portproxy.Hosts
	if cfg.Listen.Address != "" {
		tcp, err := cfg.Listen.open()
		if err != nil {
			return errors.Join(fmt.Errorf("start daemon: %w", err), l.Close())
		}
		listeners = append(listeners, tcp)
		if hosts, err = cfg.Listen.portHosts(tcp.Addr()); err != nil {
			return errors.Join(fmt.Errorf("start daemon: %w", err), closeAll(listeners))
		}
		cfg.Logger.Info("listening for those with a token", "address", tcp.Addr().String(), "tls", cfg.Listen.CertFile != "")
	}
	if cfg.Beside.Address != "" {
		other, berr := cfg.Beside.start(svc, work, cfg.Around)
		if berr != nil {
			return fmt.Errorf("start daemon: %w", errors.Join(berr, closeAll(listeners)))
		}
		defer func() { err = errors.Join(err, other.stop(answerTimeout)) }()
		cfg.Logger.Info("serving another interface", "interface", cfg.Beside.Name, "address", other.address)
	}
	s := newServer(cfg, svc, hosts, work, stopWork)
	listening = true
	if err := release(startLock); err != nil {
		return errors.Join(err, closeAll(listeners))
	}
	cfg.Handover.report(nil)
	cfg.Logger.Info("daemon is ready", "version", cfg.Version, "pid", os.Getpid(), "socket", cfg.Paths.Socket())
	return s.run(ctx, listeners)
}

// takeOver returns ramet.lock, held. The caller holds start.lock.
func takeOver(ctx context.Context, cfg Config) (*os.File, error) {
	if conn, err := net.Dial("unix", cfg.Paths.Socket()); err == nil {
		conn.Close()
		return nil, api.Errorf(api.CodeConflict, "a daemon is running already%s: end it with 'ramet stop' first; sandboxes run on meanwhile", holder(cfg.Paths.Lock()))
	}
	cfg.Logger.Debug("waiting for a daemon that is ending")
	lock, err := acquire(ctx, cfg.Paths.Lock())
	if err != nil {
		return nil, err
	}
	if err := errors.Join(lock.Truncate(0), writeAt(lock, fmt.Sprintf("%d\n", os.Getpid()))); err != nil {
		return nil, errors.Join(fmt.Errorf("write lock: %w", err), release(lock))
	}
	return lock, nil
}

func closeAll(listeners []net.Listener) error {
	var errs []error
	for _, l := range listeners {
		errs = append(errs, l.Close())
	}
	return errors.Join(errs...)
}

func writeAt(f *os.File, s string) error {
	_, err := f.WriteAt([]byte(s), 0)
	return err
}

// holder names the process that holds the lock at path, for people to read.
func holder(path string) string {
	b, err := os.ReadFile(path)
	if pid := strings.TrimSpace(string(b)); err == nil && pid != "" {
		return " (process " + pid + ")"
	}
	return ""
}

func closeService(c io.Closer) error {
	if c == nil {
		return nil
	}
	if err := c.Close(); err != nil {
		return fmt.Errorf("close service: %w", err)
	}
	return nil
}

// server is a daemon that listens.
type server struct {
	api      *rest.API
	http     *http.Server
	log      *slog.Logger
	timeout  time.Duration
	stopWork context.CancelCauseFunc
}

func newServer(cfg Config, svc service.Service, hosts portproxy.Hosts, work context.Context, stopWork context.CancelCauseFunc) *server {
	handlers := rest.New(rest.Config{Service: svc, Identify: whoConnected, Version: cfg.Version, Logger: cfg.Logger, Metrics: cfg.Metrics, PortHosts: hosts})
	timeout := cfg.DrainTimeout
	if timeout == 0 {
		timeout = drainTimeout
	}
	var handler http.Handler = handlers
	if cfg.Around != nil {
		handler = cfg.Around(handlers)
	}
	return &server{
		api: handlers, log: cfg.Logger, timeout: timeout, stopWork: stopWork,
		http: &http.Server{
			Handler:           handler,
			ReadHeaderTimeout: headerTimeout,
			IdleTimeout:       idleTimeout,
			ConnContext:       withPeer,
			BaseContext:       func(net.Listener) context.Context { return work },
			ErrorLog:          slog.NewLogLogger(cfg.Logger.Handler(), slog.LevelWarn),
		},
	}
}

// run serves until ctx ends and all requests are answered or given up. The first
// listener is the socket.
func (s *server) run(ctx context.Context, listeners []net.Listener) error {
	served := make(chan error, len(listeners))
	for _, l := range listeners {
		go func() { served <- s.http.Serve(l) }()
	}
	var err error
	running := len(listeners)
	select {
	case err = <-served: // without being asked: the listener broke
		running--
		err = fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
		s.log.Info("daemon is draining", "reason", context.Cause(ctx))
	}
	s.drain(listeners[0])
	for range running {
		<-served // an error, that of being closed
	}
	return err
}

// drain ends all requests. The socket goes first, so that new commands start a
// new daemon, which waits for this one's lock; those that come by other ways are
// told to ask again.
func (s *server) drain(socket net.Listener) {
	s.api.Drain()
	socket.Close()
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		s.api.Wait()
	}()
	if !closedWithin(answered, s.timeout) {
		s.log.Warn("requests are given up", "after", s.timeout)
		s.stopWork(errEnding)
		// A request whose connection is closed fails with another error than errEnding.
		if !closedWithin(answered, answerTimeout) {
			s.http.Close()
		}
		<-answered
	}
	ctx, cancel := context.WithTimeout(context.Background(), answerTimeout)
	defer cancel()
	if err := s.http.Shutdown(ctx); err != nil {
		s.http.Close()
	}
}

// closedWithin waits for ch to be closed, and reports whether it was before the timeout.
func closedWithin(ch <-chan struct{}, timeout time.Duration) bool {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-ch:
		return true
	case <-timer.C:
		return false
	}
}

// minOpenFiles is how many open files a daemon with a few sandboxes needs.
const minOpenFiles = 256

// checkOpenFiles refuses to start a daemon that could hold no sandbox. The Go runtime has raised the soft limit to the
// hard one.
func checkOpenFiles() error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err == nil && limit.Max < minOpenFiles {
		return api.Errorf(api.CodeLimit, "only %d open files are allowed, and the daemon needs %d: raise 'ulimit -n'", limit.Max, minOpenFiles)
	}
	return nil
}
