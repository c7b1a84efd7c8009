package run

import (
	"context"
	"errors"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"ramet.dev/ramet/client"
	"ramet.dev/ramet/internal/cli/console"
)

// anyShell runs the best shell that is installed.
const anyShell = "if command -v bash >/dev/null 2>&1; then exec bash; fi; exec sh"

// ShellCommand returns the shell command.
func (g *Group) ShellCommand() *cobra.Command {
	opts := execOptions{interactive: true, shell: true, command: []string{anyShell}}
	cmd := &cobra.Command{
		SuggestFor: []string{"sh", "bash", "ssh", "login", "console"},
		Use:        "shell SBX",
		Short:      "Open a shell in a sandbox: bash, or sh if there is none",
		Long: "Open a shell in a sandbox: bash, or sh if there is none. It has a terminal if this command has one, and else " +
			"runs the commands from standard input. In a terminal, ctrl-p ctrl-q detaches and leaves it running, and 'ramet attach' connects again. With --rm it ends with its sandbox.",
		ValidArgsFunction: g.CompleteFirst(g.CompleteSandboxes),
		RunE: g.Connected(func(ctx context.Context, c *client.Client, _ []string) error {
			opts.tty = console.IsTerminal(g.In)
			return g.runExec(ctx, c, opts)
		}),
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error { return opts.shellOf(cmd, cmd.Flags(), args) }
	f := cmd.Flags()
	f.StringArrayVarP(&opts.env, "env", "e", nil, "variable K=V, or K with its value here; may be repeated")
	f.StringVarP(&opts.cwd, "cwd", "w", "", "working directory")
	f.StringVarP(&opts.user, "user", "u", "", "name or uid, optionally :group")
	addDetachKeys(f, &opts.detachKeys)
	opts.fromOptions.flags(g, cmd)
	return cmd
}

// shellOf takes the sandbox from args. With --from, args have none.
func (o *execOptions) shellOf(cmd *cobra.Command, f *pflag.FlagSet, args []string) error {
	if len(args) > 0 {
		o.ref = args[0]
	}
	if err := o.fromOptions.valid(f, o.ref); err != nil {
		return err
	}
	if o.network.TakesInput() {
		return errors.New("--net - and the shell both read standard input: name a file")
	}
	if o.from == "" && len(args) == 0 {
		return errors.New("SBX is missing: a sandbox, or --from SNAPSHOT|IMAGE")
	}
	return cobra.MaximumNArgs(1)(cmd, args)
}
