package lineage

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/client"
	"ramet.dev/ramet/internal/cli/console"
	"ramet.dev/ramet/internal/cli/describe"
	"ramet.dev/ramet/internal/cli/session"
	"ramet.dev/ramet/internal/cli/values"
)

// TimelineCommand returns the timeline command.
func (g *Group) TimelineCommand() *cobra.Command {
	return &cobra.Command{
		Use: "timeline SBX", Short: "List the steps that a sandbox can return to", Args: cobra.ExactArgs(1), ValidArgsFunction: g.CompleteFirst(g.CompleteSandboxes),
		RunE: g.Connected(func(ctx context.Context, c *client.Client, args []string) error {
			steps, err := c.Sandboxes.Timeline(ctx, args[0])
			if err != nil {
				return err
			}
			var rows [][]string
			for _, s := range steps {
				at, exit := "", strconv.Itoa(s.ExitCode)
				if s.Current {
					at = "*"
				}
				if s.Kind == api.StepStart {
					exit = ""
				}
				rows = append(rows, []string{strconv.Itoa(s.Step), at, string(s.Kind), exit, string(s.State), console.ByteSize(s.SizeBytes), console.Age(s.At, time.Now()), describe.CommandLine(s.Command)})
			}
			return g.Show(steps, console.Table([]string{"STEP", "AT", "KIND", "EXIT", "STATE", "SIZE", "AGE", "COMMAND"}, rows))
		}),
	}
}

// BisectCommand returns the bisect command.
func (g *Group) BisectCommand() *cobra.Command {
	var req api.BisectRequest
	var timeout time.Duration
	var shell bool
	var env []string
	cmd := &cobra.Command{
		Use:   "bisect SBX -- CMD…",
		Short: "Find the first step of a sandbox at which a command fails",
		Long: "Find the first step in the timeline of a sandbox at which a command fails. The command runs in sandboxes that are restored from some of the steps.\n\n" +
			"The exit code is 1 if there is no such step: the command succeeds at the last step, or fails already at the first one that is kept.",
		Args:              cobra.MinimumNArgs(2),
		ValidArgsFunction: g.CompleteFirst(g.CompleteSandboxes),
		RunE: g.Connected(func(ctx context.Context, c *client.Client, args []string) (err error) {
			if req.TimeoutMS, err = values.TimeoutMS("timeout", timeout); err != nil {
				return err
			}
			if req.Env, err = values.ParseEnv(env); err != nil {
				return err
			}
			if req.Argv = args[1:]; shell {
				if len(args) > 2 {
					return api.Invalid("shell", "with -c (--shell) the command is one argument: quote it")
				}
				if args[1] == "" {
					return api.Invalid("shell", "its text is empty")
				}
				req.Argv, req.Shell = nil, args[1]
			}
			res, err := c.Sandboxes.Bisect(ctx, args[0], req)
			if err != nil {
				return err
			}
			if err := g.Show(res, func(w io.Writer) error { return writeBisection(w, res) }); err != nil {
				return err
			}
			if !blames(res) {
				return session.ExitError(1)
			}
			return nil
		}),
	}
	f := cmd.Flags()
	f.BoolVarP(&shell, "shell", "c", false, "the command is one argument, which /bin/sh -c runs")
	f.StringArrayVarP(&env, "env", "e", nil, "variable K=V, or K with its value here; may be repeated")
	f.StringVarP(&req.Cwd, "cwd", "w", "", "working directory")
	f.StringVarP(&req.User, "user", "u", "", "name or uid, optionally :group")
	values.DurationVar(f, &timeout, "timeout", "count a run that takes longer as failed, such as 10s")
	return cmd
}

// blames reports whether a step broke the command: it succeeds at an earlier step.
func blames(res *api.BisectResult) bool {
	return res.First != nil && slices.ContainsFunc(res.Tried, func(t api.Try) bool { return t.ExitCode == 0 && !t.TimedOut })
}

func writeBisection(w io.Writer, res *api.BisectResult) error {
	var b strings.Builder
	for _, t := range res.Tried {
		fmt.Fprintf(&b, "step %d: exit code %d", t.Step, t.ExitCode)
		if t.TimedOut {
			b.WriteString(", after its timeout")
		}
		b.WriteByte('\n')
	}
	switch s := res.First; {
	case s == nil:
		b.WriteString("it succeeds at the last step\n")
	case !blames(res) && s.Kind == api.StepStart:
		b.WriteString("it fails at the start already: no step is to blame\n")
	case !blames(res):
		fmt.Fprintf(&b, "it fails at step %d already, the first that is kept: which one is to blame is not known\n", s.Step)
	default:
		fmt.Fprintf(&b, "first failing step: %d\n", s.Step)
		if s.Kind != api.StepStart {
			fmt.Fprintf(&b, "made by %s: %s (exit code %d)\n", s.Kind, console.Printable(describe.CommandLine(s.Command)), s.ExitCode)
		}
	}
	for _, text := range []string{res.Stdout, res.Stderr} {
		if text != "" {
			b.WriteString(strings.TrimSuffix(console.WithoutControls(text, "\n\t"), "\n") + "\n")
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
