package sandboxes

import (
	"cmp"
	"context"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/client"
	"ramet.dev/ramet/internal/cli/console"
	"ramet.dev/ramet/internal/cli/session"
)

// TreeCommand returns the tree command.
func (g *Group) TreeCommand() *cobra.Command {
	var view session.TenantView
	var watch bool
	cmd := &cobra.Command{
		Use: "tree [SBX] [--watch]", Short: "Show the lineage of sandboxes and snapshots", Args: cobra.MaximumNArgs(1),
		Long: "Show the lineage of sandboxes and snapshots as a tree. On a terminal, states have colours unless NO_COLOR is set.\n\n" +
			"With --watch the tree is drawn again on every event, with the private memory of each sandbox and its " +
			"metadata, until it is interrupted.",
		ValidArgsFunction: g.CompleteFirst(g.CompleteSandboxes),
		RunE: g.Connected(func(ctx context.Context, c *client.Client, args []string) error {
			t := &tree{Group: g, ref: strings.Join(args, ""), view: view, colours: g.Colours()}
			if watch {
				return t.watch(ctx, c)
			}
			roots, err := t.get(ctx, c)
			if err != nil {
				return err
			}
			return g.Show(roots, func(w io.Writer) error { return t.write(w, roots) })
		}),
	}
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "draw the tree again on every event")
	view.Flag(cmd.Flags())
	return cmd
}

// tree is one run of the tree command.
type tree struct {
	*Group
	ref     string // the sandbox at the top; empty for all
	view    session.TenantView
	colours bool
}

func (t *tree) get(ctx context.Context, c *client.Client) ([]*api.TreeNode, error) {
	roots, err := c.Sandboxes.Tree(ctx, t.ref, t.view.Options()...)
	slices.SortStableFunc(roots, func(x, y *api.TreeNode) int {
		return cmp.Compare(session.TenantName(x.Tenant), session.TenantName(y.Tenant))
	})
	return roots, err
}

func (t *tree) write(w io.Writer, roots []*api.TreeNode) error {
	for _, l := range t.lines(roots) {
		text := l.text
		if l.node != nil {
			text += " (" + l.kind() + console.Coloured(stateColour(l.node.State), l.node.State, t.colours) + ")"
		}
		if err := console.Line(text)(w); err != nil {
			return err
		}
	}
	return nil
}

// treeLine is one line of a tree. A line without a node is a heading.
type treeLine struct {
	text string
	node *api.TreeNode
}

func (l *treeLine) kind() string {
	if l.node.Kind == "sandbox" {
		return ""
	}
	return console.Printable(l.node.Kind) + ", "
}

func (t *tree) lines(roots []*api.TreeNode) (lines []treeLine) {
	tenant := ""
	for _, root := range roots {
		if name := session.TenantName(root.Tenant); t.view.All && name != tenant {
			tenant = name
			lines = append(lines, treeLine{text: "tenant " + console.Printable(tenant)})
		}
		lines = appendTree(lines, root, "", "")
	}
	return lines
}

// appendTree appends the line of node with the prefix first, and the lines below it with the prefix
// rest.
func appendTree(lines []treeLine, node *api.TreeNode, first, rest string) []treeLine {
	label := node.ID
	if node.Name != "" {
		label += " " + node.Name
	}
	if node.Label != "" {
		label += " (" + node.Label + ")" // as in lists
	}
	lines = append(lines, treeLine{first + console.Printable(label), node})
	for i, child := range node.Children {
		branch, below := "├── ", "│   "
		if i == len(node.Children)-1 {
			branch, below = "└── ", "    "
		}
		lines = appendTree(lines, child, rest+branch, rest+below)
	}
	return lines
}

// stateColour returns the colour of a state of a sandbox or a snapshot.
func stateColour(state string) string {
	switch state {
	case string(api.StateRunning), string(api.SnapshotReady):
		return console.Green
	case string(api.StatePaused):
		return console.Yellow
	case string(api.StateHibernated):
		return console.Blue
	case string(api.StateFailed):
		return console.Red
	case string(api.StateDestroyed):
		return console.Faint
	}
	return console.Cyan // it is being made or changed
}
