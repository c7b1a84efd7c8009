package sandboxes

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/client"
	"ramet.dev/ramet/internal/cli/console"
	"ramet.dev/ramet/internal/cli/describe"
	"ramet.dev/ramet/internal/cli/values"
)

// TagCommand returns the tag command.
func (g *Group) TagCommand() *cobra.Command {
	var quiet bool
	cmd := &cobra.Command{
		Use: "tag SBX K=V…|K-…", Short: "Set or remove metadata of a sandbox",
		Long: "Set metadata of a sandbox by KEY=VALUE, and remove it by KEY-. Later children and snapshots inherit the metadata.",
		Args: cobra.MinimumNArgs(2), ValidArgsFunction: g.CompleteFirst(g.CompleteSandboxes),
		RunE: g.Connected(func(ctx context.Context, c *client.Client, args []string) error {
			change, err := parseTags(args[1:])
			if err != nil {
				return err
			}
			sb, err := c.Sandboxes.Update(ctx, args[0], api.UpdateRequest{Metadata: change})
			if err != nil {
				return err
			}
			return g.ShowIDs(sb, quiet, []string{sb.ID}, console.Line(console.Printable(sb.ID+"  "+describe.JoinPairs(sb.Metadata))))
		}),
	}
	values.QuietVar(cmd.Flags(), &quiet)
	return cmd
}

// parseTags parses changes of metadata: K=V sets a key, and K- removes it.
func parseTags(args []string) (map[string]*string, error) {
	change := map[string]*string{}
	for _, arg := range args {
		k, v, set := strings.Cut(arg, "=")
		if !set && !strings.HasSuffix(arg, "-") {
			return nil, api.Invalid("metadata", "%q is neither KEY=VALUE nor KEY-", arg)
		}
		if !set {
			k = strings.TrimSuffix(arg, "-")
		}
		if _, twice := change[k]; twice {
			return nil, api.Invalid("metadata", "%q is given twice", k)
		}
		if change[k] = nil; set {
			change[k] = &v
		}
	}
	return change, nil
}

// RenameCommand returns the rename command.
func (g *Group) RenameCommand() *cobra.Command {
	var quiet bool
	cmd := &cobra.Command{
		Use: "rename SBX NAME", Short: "Rename a sandbox; its host name stays", Args: cobra.ExactArgs(2),
		ValidArgsFunction: g.CompleteFirst(g.CompleteSandboxes),
		RunE: g.Connected(func(ctx context.Context, c *client.Client, args []string) error {
			if args[1] == "" {
				return api.Errorf(api.CodeInvalid, "NAME is empty")
			}
			sb, err := c.Sandboxes.Update(ctx, args[0], api.UpdateRequest{Name: &args[1]})
			if err != nil {
				return err
			}
			return g.ShowIDs(sb, quiet, []string{sb.ID}, console.Line(console.Printable(sb.ID+"  "+sb.Name)))
		}),
	}
	values.QuietVar(cmd.Flags(), &quiet)
	return cmd
}
