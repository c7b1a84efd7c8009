package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/client"
	"ramet.dev/ramet/internal/cli/console"
	"ramet.dev/ramet/internal/cli/session"
	"ramet.dev/ramet/internal/cli/values"
)

// maxCode bounds what is read of standard input, in bytes. The daemon accepts less, and judges the code.
const maxCode = 8 << 20

// RunCodeCommand returns the run-code command.
func (g *Group) RunCodeCommand() *cobra.Command {
	var req api.RunCodeRequest
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "run-code SBX [CODE|-]",
		Short: "Run code in a stateful interpreter of a sandbox",
		Long: "Run code in a stateful interpreter of a sandbox. Without CODE it is read from standard input. Its variables are there in the next run and in every fork.\n\n" +
			"Each language has a context of its own. --context names another one. Contexts are made when they are first used; a named one is for Python unless --lang names another language.",
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: g.CompleteFirst(g.CompleteSandboxes),
		RunE: g.Connected(func(ctx context.Context, c *client.Client, args []string) error {
			var err error
			if req.TimeoutMS, err = values.TimeoutMS("timeout", timeout); err != nil {
				return err
			}
			if req.Code, err = g.code(args[1:]); err != nil {
				return err
			}
			return g.runCode(ctx, c, args[0], req)
		}),
	}
	cmd.Flags().StringVarP(&req.Language, "lang", "l", "", "python (the default), node or bash")
	values.CompleteValues(cmd, "lang", "python", "node", "bash")
	cmd.Flags().StringVar(&req.Context, "context", "", "name of the context, which is made if it does not exist")
	values.DurationVar(cmd.Flags(), &timeout, "timeout", "interrupt the code after this time, such as 10s; time in the queue of the context does not count")
	return cmd
}

// code returns the argument with the code, or standard input.
func (g *Group) code(args []string) (string, error) {
	if len(args) > 0 && args[0] != "-" {
		return args[0], nil
	}
	text, err := io.ReadAll(io.LimitReader(g.In, maxCode))
	if err != nil {
		return "", fmt.Errorf("read code: %w", err)
	}
	return string(text), nil
}

func (g *Group) runCode(ctx context.Context, c *client.Client, ref string, req api.RunCodeRequest) error {
	res, err := g.runInContext(ctx, c, ref, req)
	if err != nil {
		return err
	}
	if g.JSON {
		if err := g.WriteJSON(res); err != nil {
			return err
		}
	} else {
		g.explainRun(res)
	}
	switch {
	case res.ExitCode != 0:
		return session.ExitError(res.ExitCode)
	case res.TimedOut: // the code handled the interrupt and succeeded
		return session.ExitError(api.CodeCanceled.ExitCode())
	case !res.OK:
		return session.ExitError(1)
	}
	return nil
}

// runInContext runs a cell in the context of req. If that does not exist and no language is given,
// it makes one for Python.
func (g *Group) runInContext(ctx context.Context, c *client.Client, ref string, req api.RunCodeRequest) (*api.RunResult, error) {
	res, err := g.runCell(ctx, c, ref, req)
	if api.CodeOf(err) == api.CodeNotFound && req.Context != "" && req.Language == "" {
		req.Language = "python"
		return g.runCell(ctx, c, ref, req)
	}
	return res, err
}

func (g *Group) runCell(ctx context.Context, c *client.Client, ref string, req api.RunCodeRequest) (*api.RunResult, error) {
	if g.JSON {
		return c.Contexts.RunCode(ctx, ref, req)
	}
	stdout, endOut := console.Visible(g.Out)
	stderr, endErr := console.Visible(g.Err)
	res, err := c.Contexts.RunCodeStream(ctx, ref, req, api.RunIO{Stdout: stdout, Stderr: stderr, Result: func(forms map[string]json.RawMessage) error {
		_, err := fmt.Fprintln(stdout, plainForm(forms))
		return err
	}})
	return res, errors.Join(err, endOut(), endErr())
}

// plainForm returns the form of a result that a terminal can show.
func plainForm(forms map[string]json.RawMessage) string {
	var text string
	if json.Unmarshal(forms["text/plain"], &text) != nil {
		text = "(no text form)"
	}
	var rich []string
	for mime := range forms {
		if mime != "text/plain" {
			rich = append(rich, mime)
		}
	}
	if len(rich) > 0 {
		slices.Sort(rich)
		text += fmt.Sprintf("  %s", rich)
	}
	return text
}

// printVisible writes text of code in a sandbox to standard error.
func (g *Group) printVisible(text string) {
	w, finish := console.Visible(g.Err)
	fmt.Fprint(w, text)
	_ = finish() // errors of standard error are ignored, as everywhere
}

// explainRun prints whether output is missing, and why a cell failed.
func (g *Group) explainRun(res *api.RunResult) {
	if res.Truncated {
		fmt.Fprintln(g.Err, "ramet: what the code showed or resulted in was too large, and was cut or left out")
	}
	if res.TimedOut {
		fmt.Fprintln(g.Err, "ramet: the code was ended at its timeout")
	}
	if res.Error == nil {
		return
	}
	if res.Error.Traceback != "" {
		g.printVisible(res.Error.Traceback)
		return
	}
	g.printVisible(fmt.Sprintf("ramet: %s: %s\n", res.Error.Name, res.Error.Value))
}
