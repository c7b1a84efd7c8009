package lineage

import (
	"context"
	"errors"
	"slices"
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

// SnapshotCommand returns the snapshot command.
func (g *Group) SnapshotCommand() *cobra.Command {
	var req api.SnapshotRequest
	var meta []string
	var noWait, quiet bool
	cmd := &cobra.Command{
		SuggestFor:        []string{"checkpoint", "save"},
		Use:               "snapshot SBX",
		Short:             "Save the state of a running sandbox",
		Long:              "Save the state of a running sandbox: files, memory and processes. The snapshot is written to disk and kept until it is removed or its tree's retention rule removes it.",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: g.CompleteFirst(g.CompleteSandboxes),
		RunE: g.Connected(func(ctx context.Context, c *client.Client, args []string) (err error) {
			if req.Metadata, err = values.ParsePairs("meta", meta); err != nil {
				return err
			}
			if noWait {
				wait := false
				req.Wait = &wait
			}
			snap, err := c.Snapshots.Create(ctx, args[0], req)
			if err != nil {
				return err
			}
			return g.ShowIDs(snap, quiet, []string{snap.ID}, console.Line(snap.ID))
		}),
	}
	f := cmd.Flags()
	values.NameVar(f, &req.Name, "name, accepted wherever an id is")
	f.BoolVar(&req.Memory, "memory", false, "keep the snapshot in memory only: faster, and lost when the daemon ends")
	f.BoolVar(&noWait, "no-wait", false, "return as soon as the sandbox continues; the snapshot is written to disk in the background and can be restored at once")
	f.StringArrayVar(&meta, "meta", nil, "metadata K=V; may be repeated")
	values.QuietVar(f, &quiet)
	return cmd
}

// VerifyCommand returns the verify command.
func (g *Group) VerifyCommand() *cobra.Command {
	var quiet bool
	cmd := &cobra.Command{
		Use: "verify SNAP", Short: "Check all data of a snapshot on disk against its digests", Args: cobra.ExactArgs(1), ValidArgsFunction: g.CompleteFirst(g.CompleteSnapshots),
		RunE: g.Connected(func(ctx context.Context, c *client.Client, args []string) error {
			snap, err := c.Snapshots.Verify(ctx, args[0])
			if err != nil {
				return err
			}
			return g.ShowIDs(snap, quiet, []string{snap.ID}, console.Line(snap.ID+"  "+string(snap.State)))
		}),
	}
	values.QuietVar(cmd.Flags(), &quiet)
	return cmd
}

// SnapshotsCommand returns the snapshots command.
func (g *Group) SnapshotsCommand() *cobra.Command {
	var quiet bool
	var view session.TenantView
	cmd := &cobra.Command{
		Use: "snapshots", Short: "List snapshots", Args: cobra.NoArgs,
		RunE: g.Connected(func(ctx context.Context, c *client.Client, _ []string) error {
			snaps, err := c.Snapshots.List(ctx, view.Options()...)
			if err != nil {
				return err
			}
			var rows [][]string
			for _, s := range snaps {
				where := "memory"
				if s.OnDisk {
					where = console.ByteSize(s.SizeBytes)
				}
				rows = append(rows, view.Row(session.TenantName(s.Tenant), s.ID, describe.NameOrLabel(&s), string(s.State), s.Sandbox, where, console.Age(s.CreatedAt, time.Now())))
			}
			ids := console.IDsOf(snaps, func(s *api.Snapshot) string { return s.ID })
			return g.ShowIDs(snaps, quiet, ids, console.Table(view.Row("TENANT", "ID", "NAME", "STATE", "SANDBOX", "SIZE", "AGE"), rows))
		}),
	}
	view.Flag(cmd.Flags())
	values.QuietVar(cmd.Flags(), &quiet)
	return cmd
}

// RollbackCommand returns the rollback command.
func (g *Group) RollbackCommand() *cobra.Command {
	var step int
	var quiet bool
	cmd := &cobra.Command{
		SuggestFor: []string{"revert", "undo"},
		Use:        "rollback SBX [SNAP]", Short: "Return a sandbox to a snapshot or a step of its timeline",
		Long: `Return a sandbox to a snapshot of it or of an ancestor, or to a step of its timeline. The sandbox keeps its id, name and limits.

Without SNAP, it returns to the last snapshot of it.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("step") && len(args) > 1 {
				return errors.New("a snapshot and a step are two states: name one")
			}
			if len(args) == 2 && args[1] == "" {
				return errors.New(`"" is not a snapshot: leave it out for the last one`)
			}
			return cobra.RangeArgs(1, 2)(cmd, args)
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 1 {
				return g.CompleteSnapshots(cmd, args, prefix)
			}
			return g.CompleteFirst(g.CompleteSandboxes)(cmd, args, prefix)
		},
	}
	f := cmd.Flags()
	f.IntVar(&step, "step", 0, "number of the step, as 'ramet timeline' lists it")
	values.QuietVar(f, &quiet)
	cmd.RunE = g.Connected(func(ctx context.Context, c *client.Client, args []string) (err error) {
		var sb *api.Sandbox
		said := ""
		switch {
		case f.Changed("step"):
			sb, err = c.Sandboxes.Rewind(ctx, args[0], step)
		case len(args) == 2:
			sb, err = c.Sandboxes.Rollback(ctx, args[0], args[1])
		default:
			var last *api.Snapshot
			if last, err = lastSnapshot(ctx, c, args[0]); err != nil {
				return err
			}
			said = "  " + strings.TrimRight(last.ID+" "+describe.NameOrLabel(last), " ") + ", taken " + console.Age(last.CreatedAt, time.Now()) + " ago"
			sb, err = c.Sandboxes.Rollback(ctx, args[0], last.ID)
		}
		if err != nil {
			return err
		}
		return g.ShowIDs(sb, quiet, []string{sb.ID}, console.Line(console.Printable(sb.ID+"  "+string(sb.State)+said)))
	})
	return cmd
}

// lastSnapshot returns the last snapshot of a sandbox that a rollback can use.
func lastSnapshot(ctx context.Context, c *client.Client, ref string) (*api.Snapshot, error) {
	sb, err := c.Sandboxes.Get(ctx, ref)
	if err != nil {
		return nil, err
	}
	snaps, err := c.Snapshots.ListOf(ctx, sb.ID)
	if err != nil {
		return nil, err
	}
	for _, s := range slices.Backward(snaps) {
		if s.State == api.SnapshotReady || s.State == api.SnapshotUploading {
			return &s, nil
		}
	}
	return nil, api.Errorf(api.CodeNotFound, "there is no snapshot of sandbox %q to return to; name one of an ancestor, or take one by 'ramet snapshot %s'", ref, ref)
}
