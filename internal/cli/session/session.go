package session

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/client"
	"ramet.dev/ramet/internal/cli/console"
	"ramet.dev/ramet/internal/cli/values"
)

// ConnectFunc returns a client of the user's own daemon and the daemon's health. If start is
// set, it starts a daemon where none runs.
type ConnectFunc func(ctx context.Context, start bool) (*client.Client, api.Health, error)

// Session is one run of the command line: its streams, its global options and its connection
// to a daemon.
type Session struct {
	console.Printer
	remote Remote

	version    string // of this program
	connectOwn ConnectFunc
	client     *client.Client // nil before the first connection
	// sameVersion is set if the daemon has the version of this program, and so all its features.
	sameVersion bool
	typedNames  []string // pairs: an id in the error, and the name that the user typed for it
}

// New returns a session that is not connected.
func New(stdio console.Streams, version string, connectOwn ConnectFunc) *Session {
	return &Session{Printer: console.Printer{Streams: stdio}, version: version, connectOwn: connectOwn}
}

// Flags adds the global options.
func (s *Session) Flags(f *pflag.FlagSet) {
	f.BoolVar(&s.JSON, "json", false, "print JSON")
	s.remote.flags(f)
}

// Close closes the connection, if there is one.
func (s *Session) Close() {
	if s.client != nil {
		s.client.Close()
	}
}

// Current returns the client of the daemon that the session is connected to. It is another one
// after a reconnection.
func (s *Session) Current() *client.Client { return s.client }

// DaemonIsCurrent reports whether the daemon has the version of this program.
func (s *Session) DaemonIsCurrent() bool { return s.sameVersion }

// OnlyOnce reports whether the user gave an idempotency key.
func (s *Session) OnlyOnce() bool { return s.remote.key != "" }

// Host returns the address of the daemon that the user named, empty for the user's own.
func (s *Session) Host() string { return s.remote.address() }

// Connected returns the RunE of a command that needs a daemon.
func (s *Session) Connected(run func(ctx context.Context, c *client.Client, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		c, err := s.Connect(cmd.Context())
		if err != nil {
			return err
		}
		err = run(cmd.Context(), c, args)
		s.resolveTyped(cmd.Context(), s.client, args, err)
		return err
	}
}

// Connect connects to the daemon that the options name, or to the user's own, which it starts if
// none runs.
func (s *Session) Connect(ctx context.Context) (*client.Client, error) {
	c, h, err := s.Reach(ctx, true)
	if err != nil {
		return nil, err
	}
	s.client, s.sameVersion = c, h.Version == s.version
	if cfg, err := s.remote.config(); h.Version != s.version && err == nil && cfg.Address == "" {
		fmt.Fprintf(s.Err, "ramet: warning: the running daemon is version %s and this command is %s; 'ramet stop' ends that daemon (process %d), and the next command starts a new one\n",
			h.Version, s.version, h.PID)
	}
	return c, nil
}

// Reach returns a client of the daemon that the options name, or of the user's own. If start is
// set, it starts the latter if none runs.
func (s *Session) Reach(ctx context.Context, start bool) (*client.Client, api.Health, error) {
	cfg, err := s.remote.config()
	if err != nil {
		return nil, api.Health{}, err
	}
	if cfg.Address == "" && cfg.Token == "" && cfg.IdempotencyKey == "" {
		return s.connectOwn(ctx, start)
	}
	if cfg.Address == "" { // the user's own daemon, with a token or a key
		c, h, err := s.connectOwn(ctx, start)
		if err != nil {
			return nil, h, err
		}
		defer c.Close()
		c, err = c.As(cfg.Token, cfg.IdempotencyKey)
		return c, h, err
	}
	c, err := client.Open(cfg)
	if err != nil {
		return nil, api.Health{}, err
	}
	h, err := c.Health(ctx)
	if err != nil {
		c.Close()
		return nil, h, fmt.Errorf("connect to %s: %w", cfg.Address, err)
	}
	return c, h, nil
}

const (
	// ReconnectTimeout is how long a command waits for a daemon to return. Attached
	// processes continue meanwhile.
	ReconnectTimeout = 20 * time.Second
	// reconnectEvery is the time between two attempts.
	reconnectEvery = 200 * time.Millisecond
)

// Reconnect tries to reach a daemon until a time, and returns its client. The error is cause if
// ctx ends before, and otherwise that of the last attempt.
func (s *Session) Reconnect(ctx context.Context, until time.Time, cause error) (*client.Client, error) {
	began := time.Now()
	last := cause
	for time.Until(until) > 0 {
		select {
		case <-ctx.Done():
			return nil, cause
		case <-time.After(reconnectEvery):
		}
		c, _, err := s.Reach(ctx, true)
		if err == nil {
			s.client.Close()
			s.client = c
			return c, nil
		}
		last = err
	}
	return nil, api.Errorf(api.CodeUnavailable, "the daemon ended, and none was reached for %s: %w", time.Since(began).Round(time.Second), last)
}

// OneSandbox returns a command that calls do with one sandbox.
func (s *Session) OneSandbox(use, short string, do func(*client.Sandboxes, context.Context, string) (*api.Sandbox, error)) *cobra.Command {
	var quiet bool
	cmd := &cobra.Command{
		Use: use, Short: short, Args: cobra.ExactArgs(1), ValidArgsFunction: s.CompleteFirst(s.CompleteSandboxes),
		RunE: s.Connected(func(ctx context.Context, c *client.Client, args []string) error {
			sb, err := do(c.Sandboxes, ctx, args[0])
			if err != nil {
				return err
			}
			return s.ShowIDs(sb, quiet, []string{sb.ID}, console.Line(sb.ID+"  "+string(sb.State)))
		}),
	}
	values.QuietVar(cmd.Flags(), &quiet)
	return cmd
}
