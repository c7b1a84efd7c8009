package cli

import (
	"context"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"ramet.dev/ramet/internal/client"
	"ramet.dev/ramet/internal/sandbox"
)

func (a *app) snapshotCommand() *cobra.Command {
	var req sandbox.SnapshotRequest
	var meta []string
	var noWait bool
	cmd := &cobra.Command{
		SuggestFor:        []string{"checkpoint", "save"},
		Use:               "snapshot SBX [--name NAME] [--memory] [--no-wait] [--meta K=V]",
		Short:             "Keep the present state of a running sandbox",
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
			snap, err := c.Snapshot(ctx, args[0], req)
			if err != nil {
				return err
			}
			return a.show(snap, line(snap.ID))
		}),
	}
	f := cmd.Flags()
	nameVar(f, &req.Name, "name, usable wherever an id is")
	f.BoolVar(&req.Memory, "memory", false, "keep it in memory only: faster, and gone when the daemon ends")
	f.BoolVar(&noWait, "no-wait", false, "return as soon as the sandbox goes on; it is written to disk in the background, and can be restored at once")
	f.StringArrayVar(&meta, "meta", nil, "metadata K=V; may be repeated")
	return cmd
}

func (a *app) verifyCommand() *cobra.Command {
	return &cobra.Command{
		Use: "verify SNAP", Short: "Compare all of a snapshot on disk with its digests", Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeFirst(a.completeSnapshots),
		RunE: a.connected(func(ctx context.Context, c *client.Client, args []string) error {
			snap, err := c.VerifySnapshot(ctx, args[0])
			if err != nil {
				return err
			}
			return a.show(snap, line(snap.ID+"  "+string(snap.State)))
		}),
	}
}

func (a *app) snapshotsCommand() *cobra.Command {
	var quiet bool
	var view tenantView
	cmd := &cobra.Command{
		Use: "snapshots [-A] [-q]", Short: "List snapshots", Args: cobra.NoArgs,
		RunE: a.connected(func(ctx context.Context, c *client.Client, _ []string) error {
			snaps, err := c.Snapshots(ctx, view.options()...)
			if err != nil {
				return err
			}
			var rows [][]string
			var ids strings.Builder
			for _, s := range snaps {
				ids.WriteString(s.ID + "\n")
				where := "memory"
				if s.OnDisk {
					where = byteSize(s.SizeBytes)
				}
				rows = append(rows, view.row(tenantName(s.Tenant), s.ID, nameOrLabel(&s), string(s.State), s.Sandbox, where, age(s.CreatedAt, time.Now())))
			}
			if quiet && !a.json {
				_, err := io.WriteString(a.Out, ids.String())
				return err
			}
			return a.show(snaps, table(view.row("TENANT", "ID", "NAME", "STATE", "SANDBOX", "SIZE", "AGE"), rows))
		}),
	}
	view.flag(cmd.Flags())
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "print ids only")
	return cmd
}

// nameOrLabel returns what a snapshot is called: by the sandbox alone, in brackets.
func nameOrLabel(s *sandbox.Snapshot) string {
	if s.Name == "" && s.Label != "" {
		return "(" + s.Label + ")"
	}
	return s.Name
}

func (a *app) rollbackCommand() *cobra.Command {
	var step int
	cmd := &cobra.Command{
		Use: "rollback SBX SNAP|--step=N", Short: "Return a sandbox to a snapshot of it, or to a step of its timeline; it keeps its id",
		Args: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("step") {
				if len(args) > 1 {
					return errors.New("a snapshot and a step are two states: name one")
				}
				return cobra.ExactArgs(1)(cmd, args)
			}
			return cobra.ExactArgs(2)(cmd, args)
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 1 {
				return a.completeSnapshots(cmd, args, prefix)
			}
			return a.completeFirst(a.completeSandboxes)(cmd, args, prefix)
		},
		RunE: a.connected(func(ctx context.Context, c *client.Client, args []string) (err error) {
			var sb *sandbox.Sandbox
			if len(args) == 1 {
				sb, err = c.Rewind(ctx, args[0], step)
			} else {
				sb, err = c.Rollback(ctx, args[0], args[1])
			}
			if err != nil {
				return err
			}
			return a.show(sb, line(sb.ID+"  "+string(sb.State)))
		}),
	}
	cmd.Flags().IntVar(&step, "step", 0, "number of a step that ramet timeline lists")
	return cmd
}
