package cli

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/client"
)

func (a *app) snapshotCommand() *cobra.Command {
	var req api.SnapshotRequest
	var meta []string
	var noWait, quiet bool
	cmd := &cobra.Command{
		SuggestFor:        []string{"checkpoint", "save"},
		Use:               "snapshot SBX",
		Short:             "Keep the present state of a running sandbox",
		Long:              "Keep the present state of a running sandbox: files, memory and processes. It is written to disk, and is there until it is removed or a rule of its tree says otherwise.",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeFirst(a.completeSandboxes),
		RunE: a.connected(func(ctx context.Context, c *client.Client, args []string) (err error) {
			if req.Metadata, err = parsePairs("meta", meta); err != nil {
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
			return a.showIDs(snap, quiet, []string{snap.ID}, line(snap.ID))
		}),
	}
	f := cmd.Flags()
	nameVar(f, &req.Name, "name, usable wherever an id is")
	f.BoolVar(&req.Memory, "memory", false, "keep it in memory only: faster, and gone when the daemon ends")
	f.BoolVar(&noWait, "no-wait", false, "return as soon as the sandbox goes on; it is written to disk in the background, and can be restored at once")
	f.StringArrayVar(&meta, "meta", nil, "metadata K=V; may be repeated")
	quietVar(f, &quiet)
	return cmd
}

func (a *app) verifyCommand() *cobra.Command {
	var quiet bool
	cmd := &cobra.Command{
		Use: "verify SNAP", Short: "Compare all of a snapshot on disk with its digests", Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeFirst(a.completeSnapshots),
		RunE: a.connected(func(ctx context.Context, c *client.Client, args []string) error {
			snap, err := c.Snapshots.Verify(ctx, args[0])
			if err != nil {
				return err
			}
			return a.showIDs(snap, quiet, []string{snap.ID}, line(snap.ID+"  "+string(snap.State)))
		}),
	}
	quietVar(cmd.Flags(), &quiet)
	return cmd
}

func (a *app) snapshotsCommand() *cobra.Command {
	var quiet bool
	var view tenantView
	cmd := &cobra.Command{
		Use: "snapshots", Short: "List snapshots", Args: cobra.NoArgs,
		RunE: a.connected(func(ctx context.Context, c *client.Client, _ []string) error {
			snaps, err := c.Snapshots.List(ctx, view.options()...)
			if err != nil {
				return err
			}
			var rows [][]string
			for _, s := range snaps {
				where := "memory"
				if s.OnDisk {
					where = byteSize(s.SizeBytes)
				}
				rows = append(rows, view.row(tenantName(s.Tenant), s.ID, nameOrLabel(&s), string(s.State), s.Sandbox, where, age(s.CreatedAt, time.Now())))
			}
			ids := idsOf(snaps, func(s *api.Snapshot) string { return s.ID })
			return a.showIDs(snaps, quiet, ids, table(view.row("TENANT", "ID", "NAME", "STATE", "SANDBOX", "SIZE", "AGE"), rows))
		}),
	}
	view.flag(cmd.Flags())
	quietVar(cmd.Flags(), &quiet)
	return cmd
}

// nameOrLabel returns what a snapshot is called: by the sandbox alone, in brackets.
func nameOrLabel(s *api.Snapshot) string {
	if s.Name == "" && s.Label != "" {
		return "(" + s.Label + ")"
	}
	return s.Name
}

func (a *app) rollbackCommand() *cobra.Command {
	var step int
	var quiet bool
	cmd := &cobra.Command{
		SuggestFor: []string{"revert", "undo"},
		Use:        "rollback SBX [SNAP]", Short: "Return a sandbox to a snapshot or a step of its own",
		Long: `Return a sandbox to a snapshot of it or of one of its ancestors, or to a step of its timeline. It keeps its id, name and limits.

Without SNAP that is the last snapshot that was taken of it.`,
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
				return a.completeSnapshots(cmd, args, prefix)
			}
			return a.completeFirst(a.completeSandboxes)(cmd, args, prefix)
		},
	}
	f := cmd.Flags()
	f.IntVar(&step, "step", 0, "number of a step that ramet timeline lists")
	quietVar(f, &quiet)
	cmd.RunE = a.connected(func(ctx context.Context, c *client.Client, args []string) (err error) {
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
			said = "  " + strings.TrimRight(last.ID+" "+nameOrLabel(last), " ") + ", taken " + age(last.CreatedAt, time.Now()) + " ago"
			sb, err = c.Sandboxes.Rollback(ctx, args[0], last.ID)
		}
		if err != nil {
			return err
		}
		return a.showIDs(sb, quiet, []string{sb.ID}, line(printable(sb.ID+"  "+string(sb.State)+said)))
	})
	return cmd
}

// lastSnapshot returns the last snapshot of a sandbox that it can return to.
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
