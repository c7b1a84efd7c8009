package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/mattn/go-runewidth"
	"github.com/spf13/cobra"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/client"
)

func (a *app) treeCommand() *cobra.Command {
	var view tenantView
	var watch bool
	cmd := &cobra.Command{
		Use: "tree [SBX] [--watch]", Short: "Show which sandbox and snapshot came from which", Args: cobra.MaximumNArgs(1),
		Long: "Show which sandbox and snapshot came from which. On a terminal states have colours, unless NO_COLOR is set.\n\n" +
			"With --watch it is drawn again whenever something happens, with the memory that each sandbox has for itself and its " +
			"metadata, until it is interrupted.",
		ValidArgsFunction: a.completeFirst(a.completeSandboxes),
		RunE: a.connected(func(ctx context.Context, c *client.Client, args []string) error {
			t := &tree{app: a, ref: strings.Join(args, ""), view: view, colours: a.colours()}
			if watch {
				return t.watch(ctx, c)
			}
			roots, err := t.get(ctx, c)
			if err != nil {
				return err
			}
			return a.show(roots, func(w io.Writer) error { return t.write(w, roots) })
		}),
	}
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "draw it again whenever something happens")
	view.flag(cmd.Flags())
	return cmd
}

// tree is one run of the command.
type tree struct {
	*app
	ref     string // of the sandbox at the top; empty for all
	view    tenantView
	colours bool
}

func (t *tree) get(ctx context.Context, c *client.Client) ([]*api.TreeNode, error) {
	roots, err := c.Sandboxes.Tree(ctx, t.ref, t.view.options()...)
	slices.SortStableFunc(roots, func(x, y *api.TreeNode) int { return cmp.Compare(tenantName(x.Tenant), tenantName(y.Tenant)) })
	return roots, err
}

func (t *tree) write(w io.Writer, roots []*api.TreeNode) error {
	for _, l := range t.lines(roots) {
		text := l.text
		if l.node != nil {
			text += " (" + l.kind() + coloured(stateColour(l.node.State), l.node.State, t.colours) + ")"
		}
		if err := line(text)(w); err != nil {
			return err
		}
	}
	return nil
}

// treeLine is one line of a drawing. It is a heading if it has no node.
type treeLine struct {
	text string
	node *api.TreeNode
}

func (l *treeLine) kind() string {
	if l.node.Kind == "sandbox" {
		return ""
	}
	return printable(l.node.Kind) + ", "
}

func (t *tree) lines(roots []*api.TreeNode) (lines []treeLine) {
	tenant := ""
	for _, root := range roots {
		if name := tenantName(root.Tenant); t.view.all && name != tenant {
			tenant = name
			lines = append(lines, treeLine{text: "tenant " + printable(tenant)})
		}
		lines = appendTree(lines, root, "", "")
	}
	return lines
}

// appendTree appends node after first, and everything below it after rest.
func appendTree(lines []treeLine, node *api.TreeNode, first, rest string) []treeLine {
	label := node.ID
	if node.Name != "" {
		label += " " + node.Name
	}
	if node.Label != "" {
		label += " (" + node.Label + ")" // as in lists
	}
	lines = append(lines, treeLine{first + printable(label), node})
	for i, child := range node.Children {
		branch, below := "├── ", "│   "
		if i == len(node.Children)-1 {
			branch, below = "└── ", "    "
		}
		lines = appendTree(lines, child, rest+branch, rest+below)
	}
	return lines
}

// colours reports whether standard output is a terminal whose user wants colours.
func (a *app) colours() bool {
	return isTerminal(a.Out) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// The parameters of SGR, by which terminals have colours.
const (
	bold   = "1"
	faint  = "2"
	red    = "31"
	green  = "32"
	yellow = "33"
	blue   = "34"
	cyan   = "36"
)

// stateColour returns the colour of a state of a sandbox or a snapshot.
func stateColour(state string) string {
	switch state {
	case string(api.StateRunning), string(api.SnapshotReady):
		return green
	case string(api.StatePaused):
		return yellow
	case string(api.StateHibernated):
		return blue
	case string(api.StateFailed):
		return red
	case string(api.StateDestroyed):
		return faint
	}
	return cyan // it is being made or changed
}

func coloured(colour, text string, on bool) string {
	if !on {
		return printable(text)
	}
	return "\x1b[" + colour + "m" + printable(text) + "\x1b[0m"
}

// cells are the columns of one line of a table that is drawn again and again.
type cells struct {
	text    []string
	colours []string // one each; empty for none
}

// drawing returns lines of at most cols columns, and at most rows of them.
func drawing(all []cells, cols, rows int, on bool) []string {
	widths := make([]int, len(all[0].text))
	for _, c := range all {
		for i, text := range c.text {
			widths[i] = max(widths[i], runewidth.StringWidth(text))
		}
	}
	const (
		others = 24 // what the first column leaves at least
		fewest = 8  // into how much a column is cut
	)
	widths[0] = min(widths[0], max(cols-others, others))
	var out []string
	for i, c := range all {
		if i == rows-1 && len(all) > rows {
			out = append(out, runewidth.Truncate(fmt.Sprintf("… and %d more", len(all)-i), cols, "…"))
			break
		}
		var b strings.Builder
		room := cols
		for j, text := range c.text {
			last := j == len(c.text)-1
			if room < min(widths[j], fewest) {
				break // half a number is none
			}
			if text = runewidth.Truncate(text, min(room, widths[j]), "…"); text == "" && last {
				break
			}
			b.WriteString(coloured(cmp.Or(c.colours[j], "0"), text, on && c.colours[j] != ""))
			room -= runewidth.StringWidth(text)
			if pad := min(room, widths[j]-runewidth.StringWidth(text)+2); !last && pad > 0 {
				b.WriteString(strings.Repeat(" ", pad))
				room -= pad
			}
		}
		out = append(out, strings.TrimRight(b.String(), " "))
	}
	return out
}
