package network

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/client"
	"ramet.dev/ramet/internal/cli/console"
	"ramet.dev/ramet/internal/cli/values"
)

// SecretCommand returns the secret command.
func (g *Group) SecretCommand() *cobra.Command {
	cmd := &cobra.Command{
		SuggestFor: []string{"credential", "key"},
		Use:        "secret", Short: "Set and remove secrets for requests of sandboxes", Args: cobra.NoArgs,
		Long: "Set and remove secrets that are put into requests outside of sandboxes. Programs in a sandbox have a placeholder in the variable of the secret's name. It is replaced on the way to the servers that the secret is for, if the network of the sandbox has a rule with the secret.\n\n" +
			"Nothing ever shows a value again.",
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(g.secretSetCommand(), g.secretLsCommand(), g.secretRmCommand())
	return cmd
}

// maxSecret bounds what is read as a value. The daemon refuses less.
const maxSecret = 64 << 10

func (g *Group) secretSetCommand() *cobra.Command {
	var req api.SecretRequest
	var variable string
	var cmd *cobra.Command
	cmd = &cobra.Command{
		Use: "set NAME --for DOMAIN", Short: "Make a secret or replace it", Args: cobra.ExactArgs(1), ValidArgsFunction: g.CompleteFirst(g.completeSecrets),
		Long: "Make a secret or replace it. The value is read from standard input, without a newline at its end, or asked for on a terminal. It is never an argument, which other users of the machine could see.\n\n" +
			"Requests that begin afterwards have the new value.",
		RunE: g.Connected(func(ctx context.Context, c *client.Client, args []string) (err error) {
			if len(req.Names) == 0 {
				return api.Errorf(api.CodeInvalid, "--for is required: the names of the servers that may get the secret")
			}
			if req.Value, err = g.secretValue(args[0], variable, cmd.Flags().Changed("from-env")); err != nil {
				return err
			}
			s, err := c.Secrets.Set(ctx, args[0], req)
			if err != nil {
				return err
			}
			return g.Show(s, console.Line(fmt.Sprintf("%s is put into %s of requests to %s", s.Name, s.Header, strings.Join(s.Names, ", "))))
		}),
	}
	f := cmd.Flags()
	f.StringSliceVar(&req.Names, "for", nil, "names of servers that may get it, without wildcards; may be repeated")
	f.StringVar(&req.Header, "header", "Authorization", "header that it is put into")
	f.StringSliceVar(&req.Methods, "methods", nil, "only into requests with these methods, such as GET,POST")
	f.StringSliceVar(&req.Paths, "paths", nil, "only into requests for these paths; a * at the end stands for any rest")
	f.BoolVar(&req.Plain, "plain", false, "also into requests without TLS")
	f.StringVar(&variable, "from-env", "", "take the value of this variable")
	for _, option := range []string{"for", "header", "methods", "paths", "from-env"} {
		_ = cmd.RegisterFlagCompletionFunc(option, cobra.NoFileCompletions) // an error says that there is no such option
	}
	return cmd
}

// secretValue reads a value from a variable, the terminal or standard input.
func (g *Group) secretValue(name, variable string, fromEnv bool) (string, error) {
	if fromEnv {
		return values.SecretFromEnv("from-env", variable)
	}
	if console.IsTerminal(g.In) {
		return g.ReadHidden("value of " + console.Printable(name) + ": ")
	}
	text, err := io.ReadAll(io.LimitReader(g.In, maxSecret))
	if err != nil {
		return "", fmt.Errorf("read standard input: %w", err)
	}
	value := strings.TrimSuffix(strings.TrimSuffix(string(text), "\n"), "\r")
	if value == "" {
		return "", api.Errorf(api.CodeInvalid, "standard input is empty: the value is read from there")
	}
	return value, nil
}

func (g *Group) secretLsCommand() *cobra.Command {
	var quiet bool
	cmd := &cobra.Command{
		Use: "ls", Short: "List secrets, without their values", Args: cobra.NoArgs,
		RunE: g.Connected(func(ctx context.Context, c *client.Client, _ []string) error {
			all, err := c.Secrets.List(ctx)
			if err != nil {
				return err
			}
			var rows [][]string
			for _, s := range all {
				only := strings.TrimSpace(strings.Join(s.Methods, ",") + " " + strings.Join(s.Paths, ","))
				if s.Plain {
					only = strings.TrimSpace(only + " (plain)")
				}
				rows = append(rows, []string{s.Name, strings.Join(s.Names, ","), s.Header, only, console.Age(s.UpdatedAt, time.Now())})
			}
			names := console.IDsOf(all, func(s *api.Secret) string { return s.Name })
			return g.ShowIDs(all, quiet, names, console.Table([]string{"NAME", "FOR", "HEADER", "ONLY", "AGE"}, rows))
		}),
	}
	values.QuietOf(cmd.Flags(), &quiet, "names")
	return cmd
}

func (g *Group) secretRmCommand() *cobra.Command {
	return &cobra.Command{
		Use: "rm NAME…", Short: "Remove secrets", Args: cobra.MinimumNArgs(1), ValidArgsFunction: g.completeSecrets,
		Long: "Remove secrets. Servers whose rules need one of them are not reached any more: requests are answered 403.",
		RunE: g.Connected(func(ctx context.Context, c *client.Client, args []string) error {
			return g.RemoveEach(args, func(name string) error { return c.Secrets.Remove(ctx, name) })
		}),
	}
}

// completeSecrets completes names of secrets.
func (g *Group) completeSecrets(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return g.Complete(cmd, func(ctx context.Context, c *client.Client) (names []string, err error) {
		all, err := c.Secrets.List(ctx)
		for _, s := range all {
			names = append(names, s.Name+"\t"+strings.Join(s.Names, ","))
		}
		return names, err
	})
}
