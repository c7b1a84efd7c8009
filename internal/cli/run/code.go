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

// maxCode is more than the daemon takes, in bytes.
const maxCode = 8 << 20

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

// code returns the code that args name.
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
	res, err := g.runCodeOver(ctx, c, ref, req)
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
	case res.TimedOut: // it was interrupted, and took that for nothing
		return session.ExitError(api.CodeCanceled.ExitCode())
	case !res.OK:
		return session.ExitError(1)
	}
	return nil
}

// runCodeOver runs a cell in the context that req names, in a new one for Python if
// that is not there and no language is said.
func (g *Group) runCodeOver(ctx context.Context, c *client.Client, ref string, req api.RunCodeRequest) (*api.RunResult, error) {
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
	res, err := c.Contexts.RunCodeStream(ctx, ref, req, client.RunIO{Stdout: stdout, Stderr: stderr, Result: func(forms map[string]json.RawMessage) error {
		_, err := fmt.Fprintln(stdout, plainForm(forms))
		return err
	}})
	return res, errors.Join(err, endOut(), endErr())
}

// plainForm returns what of a result can be shown in a terminal.
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

// sayVisibly writes text that code in a sandbox has made.
func (g *Group) sayVisibly(text string) {
	w, finish := console.Visible(g.Err)
	fmt.Fprint(w, text)
	_ = finish() // as with all that is said on standard error
}

// explainRun says what is missing of what a cell has shown, and why it failed.
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
		g.sayVisibly(res.Error.Traceback)
		return
	}
	g.sayVisibly(fmt.Sprintf("ramet: %s: %s\n", res.Error.Name, res.Error.Value))
}
