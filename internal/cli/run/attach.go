package run

import (
	"context"
	"errors"
	"fmt"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/client"
	"ramet.dev/ramet/internal/cli/console"
	"ramet.dev/ramet/internal/cli/session"
	"ramet.dev/ramet/internal/cli/values"
)

type attachOptions struct {
	ref    string
	pid    int
	from   int64
	input  bool
	keys   []byte // detach keys
	redraw bool   // make the program draw its screen again
	gone   bool   // the sandbox is removed afterwards: nobody can attach again
}

func addDetachKeys(f *pflag.FlagSet, keys *string) {
	f.StringVar(keys, "detach-keys", console.DefaultDetachKeys, "keys that detach and leave the process running; empty for none")
}

// AttachCommand returns the attach command.
func (g *Group) AttachCommand() *cobra.Command {
	var opts attachOptions
	var keys string
	var interactive, noStdin bool
	cmd := &cobra.Command{
		Use: "attach SBX PID", Args: cobra.ExactArgs(2), ValidArgsFunction: g.CompleteProcesses(1, true),
		Short: "Connect to a process that runs in the background",
		Long: "Connect to a process that runs in the background, with a terminal or without: a process that exec -d started, that a user detached from, or that a child inherited. " +
			"The exit code is that of the process. An interrupt, or ctrl-p ctrl-q in a terminal, detaches and leaves the process running.",
	}
	f := cmd.Flags()
	f.Int64Var(&opts.from, "from", 0, "first show the output from this sequence number on; -1 for none, which is the default for terminals")
	f.BoolVarP(&interactive, "interactive", "i", false, "pass standard input on, and close it at its end")
	f.BoolVar(&noStdin, "no-stdin", false, "do not pass input on from this terminal")
	addDetachKeys(f, &keys)
	cmd.RunE = g.Connected(func(ctx context.Context, c *client.Client, args []string) (err error) {
		if opts.pid, err = values.ParsePID(args[1]); err != nil {
			return err
		}
		if opts.keys, err = console.ParseDetachKeys(keys); err != nil {
			return err
		}
		opts.ref = args[0]
		if g.JSON {
			return api.Invalid("json", "output is a stream: 'ramet logs -f --json %s %d' prints it in JSON", opts.ref, opts.pid)
		}
		p, err := c.Processes.Get(ctx, opts.ref, opts.pid)
		if err != nil {
			return err
		}
		tty := p.Kept != nil && p.Kept.Terminal
		if opts.redraw = tty && !f.Changed("from"); opts.redraw {
			opts.from = -1
		}
		if p.Kept == nil {
			return api.Errorf(api.CodeNotFound, "process %d was not started in the background: its output is not kept", opts.pid)
		}
		if interactive && !p.Kept.Stdin && p.Kept.EndedAt == nil {
			return api.Errorf(api.CodeWrongState, "standard input of process %d is closed, or never was open: exec -d -i opens it", opts.pid)
		}
		opts.input = interactive || tty && !noStdin && console.IsTerminal(g.In)
		x, err := g.attach(ctx, c, opts, tty)
		if err != nil && tty {
			return g.leave(ctx, opts, err)
		}
		if err != nil {
			return err
		}
		g.reportTimeout(x, "its timeout", "its idle timeout")
		return exitOf(x)
	})
	return cmd
}

// execKept starts a command as a background process, and attaches to it unless --detach is given.
func (g *Group) execKept(ctx context.Context, c *client.Client, opts execOptions) error {
	if opts.tty && g.JSON && !opts.detach {
		return api.Invalid("tty", "a terminal has no JSON output")
	}
	req, err := startRequest(opts)
	if err != nil {
		return err
	}
	keys, err := console.ParseDetachKeys(opts.detachKeys)
	if err != nil {
		return err
	}
	var con *console.Terminal
	if opts.tty && !opts.detach {
		if con, err = g.OpenTerminal(opts.interactive); err != nil {
			return err
		}
		size := con.Size()
		req.Terminal = &size
	} else if opts.tty {
		req.Terminal = &api.TerminalSize{Cols: 80, Rows: 24}
	}
	open, stop := ctx, func() {}
	hangUps := con != nil && !signal.Ignored(syscall.SIGHUP) // nohup ignores the signal
	if hangUps {
		open, stop = signal.NotifyContext(ctx, syscall.SIGHUP)
	}
	defer stop()
	p, err := c.Processes.Start(ctx, opts.ref, req)
	if err != nil {
		return err
	}
	if opts.detach {
		return g.Show(p, console.Line(fmt.Sprint(p.PID)))
	}
	at := attachOptions{ref: opts.ref, pid: p.PID, input: opts.interactive, keys: keys, gone: opts.remove}
	x, err := g.attachTerminal(open, c, con, at)
	switch {
	case err == nil:
	case hangUps && !errors.Is(err, console.ErrDetached) && ctx.Err() == nil && (open.Err() != nil || con.Closed()):
		return g.hangUp(ctx, con, at)
	default:
		return g.leave(ctx, at, err)
	}
	// The user saw the output, so the process is not kept. It may be gone already.
	_ = c.Processes.Remove(ctx, opts.ref, p.PID)
	g.reportTimeout(x, opts.timeout.String(), opts.idleTimeout.String()+" without output or input")
	return exitOf(x)
}

// reportTimeout prints why a process was killed, if a timeout killed it.
func (g *Group) reportTimeout(x *api.ExecResult, whole, idle string) {
	if x.Idle {
		whole = idle
	}
	if x.TimedOut {
		fmt.Fprintf(g.Err, "ramet: the command was killed after %s\n", whole)
	}
}

func startRequest(opts execOptions) (api.StartRequest, error) {
	req := api.StartRequest{Argv: opts.command, Cwd: opts.cwd, User: opts.user, Stdin: opts.interactive && !opts.tty}
	if opts.shell {
		req.Argv, req.Shell = nil, opts.command[0]
	}
	var err error
	if req.Env, err = values.ParseEnv(opts.env); err != nil {
		return req, err
	}
	if req.TimeoutMS, err = values.TimeoutMS("timeout", opts.timeout); err != nil {
		return req, err
	}
	req.IdleTimeoutMS, err = values.TimeoutMS("idle-timeout", opts.idleTimeout)
	return req, err
}

// exitOf returns the error with the exit code of a process.
func exitOf(x *api.ExecResult) error {
	if x.ExitCode != 0 {
		return session.ExitError(x.ExitCode)
	}
	return nil
}

// attach connects to a process until it ends. The error is ErrDetached if the user detached.
func (g *Group) attach(ctx context.Context, c *client.Client, opts attachOptions, tty bool) (*api.ExecResult, error) {
	if tty && console.IsTerminal(g.In) {
		con, err := g.OpenTerminal(opts.input)
		if err != nil {
			return nil, err
		}
		return g.attachTerminal(ctx, c, con, opts)
	}
	streams := api.AttachIO{Output: g.WriteChunk}
	if opts.input {
		streams.Stdin = g.In
	}
	return g.stayAttached(ctx, c, opts, streams)
}

// attachTerminal connects the terminal of a process with the user's.
func (g *Group) attachTerminal(ctx context.Context, c *client.Client, con *console.Terminal, opts attachOptions) (*api.ExecResult, error) {
	streams := api.AttachIO{Output: g.WriteChunk}
	if opts.input {
		streams.Stdin = console.NewDetachReader(g.In, opts.keys)
	}
	if err := con.Begin(opts.redraw); err != nil {
		return nil, err
	}
	defer con.End()
	streams.Sizes = con.Sizes
	return g.stayAttached(ctx, c, opts, streams)
}

// leave returns the error that this command ends with when err ended the connection. If the process
// continues, it prints how to attach again.
func (g *Group) leave(ctx context.Context, opts attachOptions, err error) error {
	detached := errors.Is(err, console.ErrDetached)
	if (detached || ctx.Err() != nil) && !opts.gone {
		fmt.Fprintf(g.Err, "\nramet: the process runs on; 'ramet attach %s %d' connects again\n", opts.ref, opts.pid)
	}
	if detached {
		return nil
	}
	return err
}

// hangUpTimeout bounds the time that a process has to end after its terminal was closed.
const hangUpTimeout = 15 * time.Second

// hangUp sends SIGHUP and SIGCONT to a process and its foreground process group, as Linux does when
// a terminal is closed. It returns the error that this command ends with.
func (g *Group) hangUp(ctx context.Context, con *console.Terminal, opts attachOptions) error {
	ctx, cancel := context.WithTimeout(ctx, hangUpTimeout)
	defer cancel()
	tell := func() error {
		for _, req := range []api.SignalRequest{{Signal: "HUP", Group: true, Foreground: true}, {Signal: "CONT", Group: true}} {
			err := g.Current().Processes.Signal(ctx, opts.ref, opts.pid, req)
			if api.CodeOf(err) == api.CodeUnavailable {
				return err
			}
		}
		return nil // a process that has ended needs no signal
	}
	err := tell()
	if err != nil { // the daemon ended with the terminal
		if _, err = g.Reconnect(ctx, time.Now().Add(hangUpTimeout), err); err == nil {
			err = tell()
		}
	}
	if err == nil {
		_, err = g.Current().Processes.Wait(ctx, opts.ref, opts.pid)
	}
	if err == nil {
		_ = g.Current().Processes.Remove(ctx, opts.ref, opts.pid) // as after a process that ended while attached
	} else if !con.Closed() {
		fmt.Fprintf(g.Err, "\nramet: the process got SIGHUP and did not end; 'ramet attach %s %d' connects again\n", opts.ref, opts.pid)
	}
	return session.ExitError(128 + int(syscall.SIGHUP))
}

// stayAttached attaches again at the same position if the daemon goes away.
func (g *Group) stayAttached(ctx context.Context, c *client.Client, opts attachOptions, streams api.AttachIO) (*api.ExecResult, error) {
	write := streams.Output
	streams.Output = func(chunk api.Chunk) error {
		opts.from = chunk.Seq + chunk.Lost + int64(len(chunk.Data))
		return write(chunk)
	}
	var in *sharedInput
	if streams.Stdin != nil {
		in = newSharedInput(streams.Stdin)
	}
	for {
		done := make(chan struct{})
		if in != nil {
			streams.Stdin = &turn{sharedInput: in, done: done}
		}
		pos, err := c.Processes.Attach(ctx, opts.ref, opts.pid, opts.from, streams)
		close(done)
		if err == nil {
			if pos.Exit == nil {
				return nil, api.Errorf(api.CodeInternal, "the connection with process %d ended before the process", opts.pid)
			}
			return pos.Exit, nil
		}
		if api.CodeOf(err) != api.CodeUnavailable || ctx.Err() != nil {
			return nil, err
		}
		if c, err = g.Reconnect(ctx, time.Now().Add(session.ReconnectTimeout), err); err != nil {
			return nil, err
		}
	}
}
