package service

import (
	"cmp"
	"context"
	"time"

	"github.com/spf13/cobra"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/client"
	"ramet.dev/ramet/internal/cli/console"
	"ramet.dev/ramet/internal/cli/describe"
	"ramet.dev/ramet/internal/cli/values"
	"ramet.dev/ramet/internal/httpwire"
)

// TokenCommand returns the token command.
func (g *Group) TokenCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "token", Short: "Make and remove the tokens of clients of this daemon", Args: cobra.NoArgs,
		Long: "Make and remove the tokens of clients of this daemon.\n\n" +
			"A token belongs to one tenant and gives no access to other tenants. Its scope is to read (read), also to run things in sandboxes (exec), or also to make and remove them (admin), " +
			"for all sandboxes of the tenant, for those that descend from one, or for a single one. The secret is shown once.",
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(g.tokenCreateCommand(), g.tokenLsCommand(), g.tokenRotateCommand(), g.tokenRmCommand())
	return cmd
}

func (g *Group) tokenCreateCommand() *cobra.Command {
	var req api.TokenRequest
	var scope string
	var ttl time.Duration
	var e2b bool
	cmd := &cobra.Command{
		Use: "create --scope read|exec|admin", Short: "Make a token and show its secret, once", Args: cobra.NoArgs,
		RunE: g.Connected(func(ctx context.Context, c *client.Client, _ []string) (err error) {
			if scope == "" {
				return api.Errorf(api.CodeInvalid, "--scope is required: read, exec or admin")
			}
			if req.Scope = api.Scope(scope); !req.Scope.Valid() {
				return api.Invalid("scope", "%q is not read, exec or admin", scope)
			}
			if req.TTLSeconds, err = wholeSeconds("ttl", ttl); err != nil {
				return err
			}
			t, err := c.Tokens.Create(ctx, req)
			if err != nil {
				return err
			}
			if e2b {
				t.Secret = httpwire.E2BKey(t.Secret)
			}
			return g.Show(t, console.Line(t.Secret))
		}),
	}
	f := cmd.Flags()
	f.StringVar(&scope, "scope", "", "read, exec or admin")
	f.StringVar(&req.Tenant, "tenant", "", "tenant of the token (default your own)")
	f.StringVar(&req.Tree, "tree", "", "only this sandbox or snapshot and its descendants")
	f.StringVar(&req.Sandbox, "sandbox", "", "only this sandbox")
	values.DurationVar(f, &ttl, "ttl", "how long the token is valid, such as 12h (default without end)")
	f.StringVar(&req.Name, "name", "", "purpose of the token")
	values.CompleteValues(cmd, "scope", string(api.ScopeRead), string(api.ScopeExec), string(api.ScopeAdmin))
	f.BoolVar(&req.Browser, "browser", false, "accept the token in a URL (access_token=); needs --sandbox and a --ttl of at most 1h")
	f.BoolVar(&e2b, "e2b", false, "show the secret in the form of an API key of E2B, which older clients of it demand")
	return cmd
}

// wholeSeconds returns a duration in seconds. It refuses fractions.
func wholeSeconds(field string, d time.Duration) (int64, error) {
	if d < 0 || d%time.Second != 0 {
		return 0, api.Invalid(field, "%v is not a number of whole seconds, such as 90s or 12h", d)
	}
	return int64(d / time.Second), nil
}

func (g *Group) tokenLsCommand() *cobra.Command {
	var tenant string
	var quiet bool
	cmd := &cobra.Command{
		Use: "ls", Short: "List tokens, without their secrets", Args: cobra.NoArgs,
		RunE: g.Connected(func(ctx context.Context, c *client.Client, _ []string) error {
			tokens, err := c.Tokens.List(ctx, tenant)
			if err != nil {
				return err
			}
			var rows [][]string
			for _, t := range tokens {
				bound := ""
				switch {
				case t.Tree != "":
					bound = "tree " + t.Tree
				case t.Sandbox != "":
					bound = t.Sandbox
				}
				rows = append(rows, []string{t.ID, t.Name, t.Tenant, string(t.Scope), bound, cmp.Or(describe.Expiry(t.ExpiresAt), "never"), console.Age(t.CreatedAt, time.Now())})
			}
			ids := console.IDsOf(tokens, func(t *api.Token) string { return t.ID })
			return g.ShowIDs(tokens, quiet, ids, console.Table([]string{"ID", "NAME", "TENANT", "SCOPE", "BOUND TO", "EXPIRES", "AGE"}, rows))
		}),
	}
	cmd.Flags().StringVar(&tenant, "tenant", "", "only tokens of this tenant")
	values.QuietVar(cmd.Flags(), &quiet)
	return cmd
}

func (g *Group) tokenRotateCommand() *cobra.Command {
	var grace time.Duration
	cmd := &cobra.Command{
		Use: "rotate TOKEN-ID", Short: "Replace the secret of a token and show it, once", Args: cobra.ExactArgs(1), ValidArgsFunction: g.CompleteFirst(g.CompleteTokens),
		RunE: g.Connected(func(ctx context.Context, c *client.Client, args []string) error {
			seconds, err := wholeSeconds("grace", grace)
			if err != nil {
				return err
			}
			t, err := c.Tokens.Rotate(ctx, args[0], api.RotateRequest{GraceSeconds: seconds})
			if err != nil {
				return err
			}
			return g.Show(t, console.Line(t.Secret))
		}),
	}
	values.DurationVar(cmd.Flags(), &grace, "grace", "how long the old secret stays valid, at most 24h")
	return cmd
}

func (g *Group) tokenRmCommand() *cobra.Command {
	return &cobra.Command{
		Use: "rm TOKEN-ID…", Short: "Remove tokens and the tokens that they made", Args: cobra.MinimumNArgs(1), ValidArgsFunction: g.CompleteTokens,
		RunE: g.Connected(func(ctx context.Context, c *client.Client, args []string) error {
			return g.RemoveEach(args, func(id string) error { return c.Tokens.Remove(ctx, id) })
		}),
	}
}
