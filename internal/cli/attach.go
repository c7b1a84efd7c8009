package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/client"
)

const (
	// reconnectFor is how long it is tried to reach a daemon that went away under
	// an attached process, which runs on without it.
	reconnectFor = 20 * time.Second
	// reconnectEvery is the time between two attempts.
	reconnectEvery = 200 * time.Millisecond
)

type attachOptions struct {
	ref    string
	pid    int
	from   int64
	input  bool
	keys   []byte // that detach
	redraw bool   // have what is on the terminal drawn again
	gone   bool   // the sandbox is removed afterwards
}

func addDetachKeys(f *pflag.FlagSet, keys *string) {
	f.StringVar(keys, "detach-keys", defaultDetachKeys, "keys that end the connection and leave the process running; empty for none")
}

func (a *app) attachCommand() *cobra.Command {
	var opts attachOptions
	var keys string
	var interactive, noStdin bool
	cmd := &cobra.Command{
		Use: "attach SBX PID", Args: cobra.ExactArgs(2), ValidArgsFunction: a.completeProcesses(1, true),
		Short: "Connect to a process that runs in the background",
		Long: "Connect to a process that runs in the background, with a terminal or without: one that exec -d started, that a terminal was left of, or that a child inherited. " +
			"The exit code is the process's. An interrupt leaves it running, and in a terminal ctrl-p ctrl-q does.",
	}
	f := cmd.Flags()
	f.Int64Var(&opts.from, "from", 0, "first show its output from this sequence number on; -1, which is what terminals have, for none")
	f.BoolVarP(&interactive, "interactive", "i", false, "pass standard input on, and its end")
	f.BoolVar(&noStdin, "no-stdin", false, "pass nothing on from this terminal to that of the process")
	addDetachKeys(f, &keys)
	cmd.RunE = a.connected(func(ctx context.Context, c *client.Client, args []string) (err error) {
		if opts.pid, err = parsePID(args[1]); err != nil {
			return err
		}
		if opts.keys, err = parseDetachKeys(keys); err != nil {
			return err
		}
		opts.ref = args[0]
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
		opts.input = interactive || tty && !noStdin && isTerminal(a.In)
		x, err := a.attach(ctx, c, opts, tty)
		if err != nil && tty {
			return a.leave(ctx, opts, err)
		}
		if err != nil {
			return err
		}
		a.sayTimeout(x, "its timeout", "its idle timeout")
		return exitError(x)
	})
	return cmd
}

// execKept runs a command as a background process, and with a terminal attaches
// to it.
func (a *app) execKept(ctx context.Context, c *client.Client, opts execOptions) error {
	if opts.tty && a.json && !opts.detach {
		return api.Invalid("tty", "a terminal has no JSON output")
	}
	req, err := startRequest(opts)
	if err != nil {
		return err
	}
	keys, err := parseDetachKeys(opts.detachKeys)
	if err != nil {
		return err
	}
	var con *console
	if opts.tty && !opts.detach {
		if con, err = a.openConsole(opts.interactive); err != nil {
			return err
		}
		size := con.size()
		req.Terminal = &size
	} else if opts.tty {
		req.Terminal = &api.TerminalSize{Cols: 80, Rows: 24}
	}
	open, stop := ctx, func() {}
	hangUps := con != nil && !signal.Ignored(syscall.SIGHUP) // as nohup has it
	if hangUps {
		open, stop = signal.NotifyContext(ctx, syscall.SIGHUP)
	}
	defer stop()
	p, err := c.Processes.Start(ctx, opts.ref, req)
	if err != nil {
		return err
	}
	if opts.detach {
		return a.show(p, line(fmt.Sprint(p.PID)))
	}
	at := attachOptions{ref: opts.ref, pid: p.PID, input: opts.interactive, keys: keys, gone: opts.remove}
	x, err := a.attachConsole(open, c, con, at)
	switch {
	case err == nil:
	case hangUps && !errors.Is(err, errDetached) && ctx.Err() == nil && (open.Err() != nil || con.closed()):
		return a.hangUp(ctx, con, at)
	default:
		return a.leave(ctx, at, err)
	}
	// Its output was seen. If it is gone by now, so much the better.
	_ = c.Processes.Remove(ctx, opts.ref, p.PID)
	a.sayTimeout(x, opts.timeout.String(), opts.idleTimeout.String()+" without output or input")
	return exitError(x)
}

// sayTimeout tells why a process was killed, if its time was over.
func (a *app) sayTimeout(x *api.ExecResult, whole, idle string) {
	if x.Idle {
		whole = idle
	}
	if x.TimedOut {
		fmt.Fprintf(a.Err, "ramet: the command was killed after %s\n", whole)
	}
}

func startRequest(opts execOptions) (api.StartRequest, error) {
	req := api.StartRequest{Argv: opts.command, Cwd: opts.cwd, User: opts.user, Stdin: opts.interactive && !opts.tty}
	if opts.shell {
		req.Argv, req.Shell = nil, opts.command[0]
	}
	var err error
	if req.Env, err = parseEnv(opts.env); err != nil {
		return req, err
	}
	if req.TimeoutMS, err = timeoutMS("timeout", opts.timeout); err != nil {
		return req, err
	}
	req.IdleTimeoutMS, err = timeoutMS("idle-timeout", opts.idleTimeout)
	return req, err
}

func exitError(x *api.ExecResult) error {
	if x.ExitCode != 0 {
		return ExitError(x.ExitCode)
	}
	return nil
}

// attach connects with a process until it ends. The error is errDetached if the user left it
// running.
func (a *app) attach(ctx context.Context, c *client.Client, opts attachOptions, tty bool) (*api.ExecResult, error) {
	if tty && isTerminal(a.In) {
		con, err := a.openConsole(opts.input)
		if err != nil {
			return nil, err
		}
		return a.attachConsole(ctx, c, con, opts)
	}
	streams := client.AttachIO{Output: a.writeChunk}
	if opts.input {
		streams.Stdin = a.In
	}
	return a.stayAttached(ctx, c, opts, streams)
}

// attachConsole connects a process's terminal with the user's.
func (a *app) attachConsole(ctx context.Context, c *client.Client, con *console, opts attachOptions) (*api.ExecResult, error) {
	streams := client.AttachIO{Output: a.writeChunk}
	if opts.input {
		streams.Stdin = &detachReader{in: terminalInput{a.In}, keys: opts.keys}
	}
	if err := con.begin(opts.redraw); err != nil {
		return nil, err
	}
	defer con.end()
	streams.Sizes = con.sizes
	return a.stayAttached(ctx, c, opts, streams)
}

// leave says that a process runs on, if it was the user who left its terminal, and returns
// the error that this command ends with.
func (a *app) leave(ctx context.Context, opts attachOptions, err error) error {
	detached := errors.Is(err, errDetached)
	if (detached || ctx.Err() != nil) && !opts.gone {
		fmt.Fprintf(a.Err, "\nramet: the process runs on; 'ramet attach %s %d' connects again\n", opts.ref, opts.pid)
	}
	if detached {
		return nil
	}
	return err
}

// hangUpWithin is how long a process has to end when its terminal does, and be forgotten.
const hangUpWithin = 15 * time.Second

// hangUp tells a process and what it has in the foreground that their terminal was closed, as
// Linux does, and returns the error that this command ends with.
func (a *app) hangUp(ctx context.Context, con *console, opts attachOptions) error {
	ctx, cancel := context.WithTimeout(ctx, hangUpWithin)
	defer cancel()
	tell := func() error {
		for _, req := range []api.SignalRequest{{Signal: "HUP", Group: true, Foreground: true}, {Signal: "CONT", Group: true}} {
			err := a.client.Processes.Signal(ctx, opts.ref, opts.pid, req)
			if api.CodeOf(err) == api.CodeUnavailable {
				return err
			}
		}
		return nil // one that ended meanwhile need not be told
	}
	err := tell()
	if err != nil { // the daemon went away with the terminal
		if _, err = a.reconnect(ctx, time.Now().Add(hangUpWithin), err); err == nil {
			err = tell()
		}
	}
	if err == nil {
		_, err = a.client.Processes.Wait(ctx, opts.ref, opts.pid)
	}
	if err == nil {
		_ = a.client.Processes.Remove(ctx, opts.ref, opts.pid) // as of one whose end was seen
	} else if !con.closed() {
		fmt.Fprintf(a.Err, "\nramet: the process was told to hang up and did not end; 'ramet attach %s %d' connects again\n", opts.ref, opts.pid)
	}
	return ExitError(128 + int(syscall.SIGHUP))
}

// stayAttached attaches again, to where it was, if the daemon goes away.
func (a *app) stayAttached(ctx context.Context, c *client.Client, opts attachOptions, streams client.AttachIO) (*api.ExecResult, error) {
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
				return nil, api.Errorf(api.CodeInternal, "the connection with process %d ended before it did", opts.pid)
			}
			return pos.Exit, nil
		}
		if api.CodeOf(err) != api.CodeUnavailable || ctx.Err() != nil {
			return nil, err
		}
		if c, err = a.reconnect(ctx, time.Now().Add(reconnectFor), err); err != nil {
			return nil, err
		}
	}
}

// reconnect waits for a daemon that answers.
func (a *app) reconnect(ctx context.Context, until time.Time, cause error) (*client.Client, error) {
	for time.Until(until) > 0 {
		select {
		case <-ctx.Done():
			return nil, cause
		case <-time.After(reconnectEvery):
		}
		c, _, err := a.reach(ctx, true)
		if err == nil {
			a.client.Close()
			a.client = c
			return c, nil
		}
	}
	return nil, cause
}

// sharedInput is standard input for one connection after the other. What is typed
// between two connections is the next one's.
type sharedInput struct{ pieces chan piece }

// piece is what one read returned.
type piece struct {
	data []byte
	err  error
}

// newSharedInput starts reading in. The goroutine ends with in, or with the
// process: nothing ends a read of a terminal.
func newSharedInput(in io.Reader) *sharedInput {
	s := &sharedInput{pieces: make(chan piece)}
	go func() {
		for {
			buf := make([]byte, inputSize)
			n, err := in.Read(buf)
			s.pieces <- piece{buf[:n], err}
			if err != nil {
				return
			}
		}
	}()
	return s
}

// inputSize is how much is read at once, in bytes.
const inputSize = 32 << 10

// turn is the share of one connection, until done is closed.
type turn struct {
	*sharedInput
	done <-chan struct{}
	rest piece
}

var errTurnOver = errors.New("the connection ended")

// Read implements io.Reader.
func (t *turn) Read(p []byte) (int, error) {
	if len(t.rest.data) == 0 && t.rest.err == nil {
		select {
		case t.rest = <-t.pieces:
		case <-t.done:
			return 0, errTurnOver
		}
	}
	n := copy(p, t.rest.data)
	if t.rest.data = t.rest.data[n:]; len(t.rest.data) > 0 {
		return n, nil
	}
	return n, t.rest.err
}
