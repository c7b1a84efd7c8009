package sandboxes

import (
	"cmp"
	"context"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/client"
	"ramet.dev/ramet/internal/cli/console"
	"ramet.dev/ramet/internal/cli/describe"
	"ramet.dev/ramet/internal/cli/session"
	"ramet.dev/ramet/internal/cli/values"
)

// LsCommand returns the ls command.
func (g *Group) LsCommand() *cobra.Command {
	var filter api.ListFilter
	var state string
	var meta []string
	var quiet bool
	var view session.TenantView
	cmd := &cobra.Command{
		SuggestFor: []string{"get"},
		Use:        "ls", Short: "List sandboxes", Args: cobra.NoArgs,
		RunE: g.Connected(func(ctx context.Context, c *client.Client, _ []string) (err error) {
			filter.State = api.State(state)
			if filter.Metadata, err = values.ParsePairs("meta", meta); err != nil {
				return err
			}
			sandboxes, err := c.Sandboxes.List(ctx, filter, view.Options()...)
			if err != nil {
				return err
			}
			return g.ShowIDs(sandboxes, quiet, console.IDsOf(sandboxes, func(s *api.Sandbox) string { return s.ID }), sandboxTable(sandboxes, view))
		}),
	}
	f := cmd.Flags()
	values.StateVar(f, &state, "only sandboxes in this state")
	values.NotEmptyVar(f, &filter.Image, "image", "is not an image", "only sandboxes of this image")
	f.StringArrayVar(&meta, "meta", nil, "only sandboxes with this metadata K=V; may be repeated")
	values.NotEmptyVar(f, &filter.Parent, "parent", "is not a sandbox", "only children of this sandbox or snapshot: forks and restores")
	view.Flag(f)
	values.QuietVar(f, &quiet)
	completeStates(cmd)
	g.CompleteOption(cmd, "parent", g.CompleteBoth)
	g.CompleteOption(cmd, "image", g.CompleteImages)
	return cmd
}

func sandboxTable(sandboxes []api.Sandbox, view session.TenantView) func(io.Writer) error {
	var rows [][]string
	for _, s := range sandboxes {
		image := s.ImageName
		if image == "" {
			image = s.Image
		}
		rows = append(rows, view.Row(session.TenantName(s.Tenant), s.ID, s.Name, string(s.State), image, s.Parent, console.Age(s.CreatedAt, time.Now()), describe.Shortened(describe.JoinPairs(s.Metadata))))
	}
	return console.Table(view.Row("TENANT", "ID", "NAME", "STATE", "IMAGE", "PARENT", "AGE", "METADATA"), rows)
}

// StatsCommand returns the stats command.
func (g *Group) StatsCommand() *cobra.Command {
	return &cobra.Command{
		SuggestFor: []string{"top"},
		Use:        "stats [SBX]", Short: "Show the memory, disk and processor time of sandboxes", Args: cobra.MaximumNArgs(1),
		Long: "Show the memory, disk and processor time that a sandbox uses, or all of them.", ValidArgsFunction: g.CompleteFirst(g.CompleteSandboxes),
		RunE: g.Connected(func(ctx context.Context, c *client.Client, args []string) error {
			if len(args) == 0 {
				return g.allStats(ctx, c)
			}
			st, err := c.Sandboxes.Stats(ctx, args[0])
			if err != nil {
				return err
			}
			return g.Show(st, console.Table(statsHeadings, [][]string{statsRow(st)}))
		}),
	}
}

var statsHeadings = []string{"STATE", "PRIVATE", "SHARED", "DISK", "CPU", "PROCESSES"}

// namedStats are the stats of one sandbox of several.
type namedStats struct {
	ID   string `json:"id"`
	Name string `json:"name,omitempty"`
	*api.Stats
}

// allStats shows what all sandboxes use, those with the most memory first.
func (g *Group) allStats(ctx context.Context, c *client.Client) error {
	list, err := c.Sandboxes.List(ctx, api.ListFilter{})
	if err != nil {
		return err
	}
	all := []namedStats{}
	for _, s := range list {
		st, err := c.Sandboxes.Stats(ctx, s.ID)
		if err != nil {
			continue // it has ended, failed, or is in no state for it
		}
		all = append(all, namedStats{s.ID, s.Name, st})
	}
	slices.SortStableFunc(all, func(a, b namedStats) int { return cmp.Compare(b.Memory.PrivateMiB, a.Memory.PrivateMiB) })
	var rows [][]string
	for _, s := range all {
		rows = append(rows, append([]string{s.ID, s.Name}, statsRow(s.Stats)...))
	}
	return g.Show(all, console.Table(append([]string{"ID", "NAME"}, statsHeadings...), rows))
}

// InspectCommand returns the inspect command.
func (g *Group) InspectCommand() *cobra.Command {
	return &cobra.Command{
		SuggestFor: []string{"describe", "info", "show"},
		Use:        "inspect SBX|SNAP", Short: "Show all details of a sandbox or snapshot", Args: cobra.ExactArgs(1),
		ValidArgsFunction: g.CompleteFirst(g.CompleteSandboxes),
		RunE: g.Connected(func(ctx context.Context, c *client.Client, args []string) error {
			if api.IsID(api.KindSnapshot, args[0]) {
				var snap *api.Snapshot
				err := session.AcrossTenants(args[0], func(opts ...client.Option) (err error) {
					snap, err = c.Snapshots.Get(ctx, args[0], opts...)
					return err
				})
				if err != nil {
					return err
				}
				return g.Show(snap, snapshotPairs(snap))
			}
			var sb *api.Sandbox
			err := session.AcrossTenants(args[0], func(opts ...client.Option) (err error) {
				sb, err = c.Sandboxes.Get(ctx, args[0], opts...)
				return err
			})
			if api.CodeOf(err) == api.CodeNotFound {
				if snap, serr := c.Snapshots.Get(ctx, args[0]); serr == nil {
					return g.Show(snap, snapshotPairs(snap))
				}
			}
			if api.CodeOf(err) == api.CodeNotFound && !api.IsID(api.KindSandbox, args[0]) {
				return api.NotFound("sandbox or snapshot", args[0])
			}
			if err != nil {
				return err
			}
			return g.Show(sb, sandboxPairs(sb))
		}),
	}
}

// completeStates completes the option for a state of sandboxes.
func completeStates(cmd *cobra.Command) {
	values.CompleteValues(cmd, "state", string(api.StateCreating), string(api.StateRunning), string(api.StatePaused), string(api.StateHibernated), string(api.StateFailed))
}
