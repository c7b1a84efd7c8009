package run

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/client"
	"ramet.dev/ramet/internal/cli/session"
	"ramet.dev/ramet/internal/cli/values"
)

type execOptions struct {
	interactive bool
	shell       bool
	env         []string
	cwd, user   string
	timeout     time.Duration
	tty, detach bool
	quiet       bool // has no effect: --detach prints the process id alone anyway
	detachKeys  string
	idleTimeout time.Duration
	fromOptions

	ref     string
	command []string
}

// ExecCommand returns the exec command.
func (g *Group) ExecCommand() *cobra.Command {
	var opts execOptions
	cmd := &cobra.Command{
		Use:   "exec [flags] SBX CMD…",
		Short: "Run a command in a sandbox",
		Long: "Run a command in a sandbox. The exit code is that of the command, or 128+N if signal N ended it.\n\n" +
			"An interrupt kills the command, unless it has a terminal (-t), which gets ctrl-c, or runs in the background (-d).\n\n" +
			"Options stand before the command. All words after its first are its arguments, as with docker and kubectl. With -c the command is one argument, which /bin/sh -c runs.\n\n" +
			"With --from in place of SBX, the command runs in a new sandbox from a snapshot or an image. --rm removes it afterwards.",
		Args: func(cmd *cobra.Command, args []string) error {
			return opts.split(cmd.Flags(), args)
		},
		ValidArgsFunction: g.CompleteFirst(g.CompleteSandboxes),
		RunE: g.Connected(func(ctx context.Context, c *client.Client, _ []string) error {
			return g.runExec(ctx, c, opts)
		}),
	}
	f := cmd.Flags()
	f.SetInterspersed(false)
	f.BoolVarP(&opts.interactive, "interactive", "i", false, "pass standard input on")
	f.BoolVarP(&opts.shell, "shell", "c", false, "the command is one argument, which /bin/sh -c runs")
	f.StringArrayVarP(&opts.env, "env", "e", nil, "variable K=V, or K with its value here; may be repeated")
	f.StringVarP(&opts.cwd, "cwd", "w", "", "working directory")
	f.StringVarP(&opts.user, "user", "u", "", "name or uid, optionally :group")
	values.DurationVar(f, &opts.timeout, "timeout", "kill the command after this time, such as 10s")
	f.BoolVarP(&opts.tty, "tty", "t", false, "give the command a terminal")
	f.BoolVarP(&opts.detach, "detach", "d", false, "leave the command running in the background and print its process id")
	values.DurationVar(f, &opts.idleTimeout, "idle-timeout", "with -t or -d: kill the command after this time without output or input")
	f.BoolVarP(&opts.quiet, "quiet", "q", false, "with -d: print the process id only")
	addDetachKeys(f, &opts.detachKeys)
	opts.fromOptions.flags(g, cmd)
	return cmd
}

// split parses args, which begin at the sandbox. Options may stand before the sandbox, between it
// and the command, and after the text of --shell. The first word of another command ends the
// options, as with docker and kubectl.
func (o *execOptions) split(f *pflag.FlagSet, args []string) error {
	parse := func(rest []string) ([]string, error) {
		if f.ArgsLenAtDash() >= 0 { // -- ended the options
			return rest, nil
		}
		err := f.Parse(rest)
		return f.Args(), err
	}
	if o.from != "" { // args have no sandbox
		o.command = args
	} else if len(args) > 0 {
		var err error
		o.ref = args[0]
		if o.command, err = parse(args[1:]); err != nil {
			return err
		}
	}
	if o.shell && len(o.command) > 1 {
		rest, err := parse(o.command[1:])
		if err != nil {
			return err
		}
		if len(rest) > 0 {
			return fmt.Errorf("with -c (--shell) the command is one argument: quote it")
		}
		o.command = o.command[:1]
	}
	if help, err := f.GetBool("help"); err == nil && help {
		return pflag.ErrHelp // cobra shows it
	}
	if err := o.fromOptions.valid(f, o.ref); err != nil {
		return err
	}
	if o.remove && o.detach {
		return fmt.Errorf("--rm removes the sandbox when its command ends, and -d does not wait for that")
	}
	if o.network.TakesInput() && o.interactive {
		return fmt.Errorf("--net - and -i both read standard input")
	}
	if len(o.command) == 0 && o.from != "" {
		return fmt.Errorf("exec --from needs a command")
	}
	if len(o.command) == 0 {
		return fmt.Errorf("exec needs a sandbox and a command")
	}
	if o.shell && o.command[0] == "" {
		return fmt.Errorf("the text for -c (--shell) is empty")
	}
	if o.quiet && !o.detach {
		return fmt.Errorf("--quiet is for commands with -d")
	}
	if o.idleTimeout != 0 && !o.tty && !o.detach {
		return fmt.Errorf("--idle-timeout is for commands with -t or -d")
	}
	return nil
}

// exitNoCommand is the exit code of shells, and of exec, if a command does not exist.
const exitNoCommand = 127

func (g *Group) exec(ctx context.Context, c *client.Client, opts execOptions) error {
	env, err := values.ParseEnv(opts.env)
	if err != nil {
		return err
	}
	timeout, err := values.TimeoutMS("timeout", opts.timeout)
	if err != nil {
		return err
	}
	req := api.ExecRequest{Argv: opts.command, Env: env, Cwd: opts.cwd, User: opts.user, TimeoutMS: timeout}
	if opts.shell {
		req.Argv, req.Shell = nil, opts.command[0]
	}
	res, err := g.execWithStreams(ctx, c, opts.ref, req, opts.interactive)
	if err != nil {
		return err
	}
	if g.JSON {
		if err := g.WriteJSON(res); err != nil {
			return err
		}
	} else {
		g.reportTimeout(res, opts.timeout.String(), "")
		if res.ExitCode == exitNoCommand && len(req.Argv) == 1 && strings.Contains(req.Argv[0], " ") {
			fmt.Fprintf(g.Err, "ramet: %q was run as the name of one program: with exec SBX -c 'COMMAND', a shell runs it\n", req.Argv[0])
		}
	}
	if res.ExitCode != 0 {
		return session.ExitError(res.ExitCode)
	}
	return nil
}

// execWithStreams runs req with the streams that the options ask for.
func (g *Group) execWithStreams(ctx context.Context, c *client.Client, ref string, req api.ExecRequest, interactive bool) (*api.ExecResult, error) {
	if g.JSON && !interactive && g.OnlyOnce() { // a repeated answer cannot be a stream
		return c.Processes.Exec(ctx, ref, req)
	}
	streams := api.ExecIO{Stdout: g.Out, Stderr: g.Err}
	if interactive {
		streams.Stdin = g.In
	}
	if !g.JSON {
		return g.execResumable(ctx, c, ref, req, streams)
	}
	var stdout, stderr headBuffer
	streams.Stdout, streams.Stderr = &stdout, &stderr
	res, err := g.execResumable(ctx, c, ref, req, streams)
	if err != nil {
		return nil, err
	}
	res.Stdout, res.Stderr = stdout.buf.String(), stderr.buf.String()
	res.Truncated = stdout.cut || stderr.cut
	return res, nil
}

// execResumable runs a command. If it has no standard input, and the daemon goes away, it resumes
// the output at the next daemon: the command continues meanwhile, and no output is lost.
func (g *Group) execResumable(ctx context.Context, c *client.Client, ref string, req api.ExecRequest, streams api.ExecIO) (*api.ExecResult, error) {
	if streams.Stdin != nil || g.OnlyOnce() || !g.DaemonIsCurrent() {
		return c.Processes.ExecStream(ctx, ref, req, streams)
	}
	req.Key = rand.Text()
	var written int64
	streams.Stdout, streams.Stderr = &tally{streams.Stdout, &written}, &tally{streams.Stderr, &written}
	for {
		res, err := c.Processes.ExecStream(ctx, ref, req, streams)
		if api.CodeOf(err) != api.CodeUnavailable || ctx.Err() != nil {
			return res, err
		}
		if c, err = g.Reconnect(ctx, time.Now().Add(session.ReconnectTimeout), err); err != nil {
			return nil, err
		}
		from := written
		req.From = &from
	}
}

// tally counts the bytes that several writers write.
type tally struct {
	io.Writer
	sum *int64
}

// Write implements io.Writer.
func (t *tally) Write(p []byte) (int, error) {
	n, err := t.Writer.Write(p)
	*t.sum += int64(n)
	return n, err
}

// headBuffer keeps the first api.MaxCollected bytes.
type headBuffer struct {
	buf bytes.Buffer
	cut bool
}

// Write implements io.Writer.
func (b *headBuffer) Write(p []byte) (int, error) {
	room := api.MaxCollected - b.buf.Len()
	b.cut = b.cut || len(p) > room
	b.buf.Write(p[:min(len(p), room)])
	return len(p), nil
}
