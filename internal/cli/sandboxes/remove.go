package sandboxes

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/client"
	"ramet.dev/ramet/internal/cli/console"
	"ramet.dev/ramet/internal/cli/describe"
	"ramet.dev/ramet/internal/cli/session"
	"ramet.dev/ramet/internal/cli/values"
)

// RmCommand returns the rm command.
func (g *Group) RmCommand() *cobra.Command {
	var how api.SnapshotDeletion
	var force bool
	var sel selection
	cmd := &cobra.Command{
		SuggestFor: []string{"delete", "destroy", "remove", "terminate"},
		Use:        "rm SBX|SNAP…", Short: "Destroy sandboxes or delete snapshots",
		Long: `Destroy sandboxes or delete snapshots. If both have the name, the sandbox is destroyed. Sandboxes may run, and their children stay. With --force, names of nothing are no errors, nor is it that there are no names.

--children, --state and --meta select sandboxes in place of names: the sandboxes that match all of them. --children selects all sandboxes that 'ramet tree' shows below a sandbox, over any number of generations; the sandbox itself and all snapshots stay. If nothing is selected, nothing is removed and the exit code is 0.`,
		Args: sel.args, ValidArgsFunction: g.CompleteBoth,
		RunE: g.Connected(func(ctx context.Context, c *client.Client, args []string) error {
			switch {
			case sel.given():
				return g.removeSelected(ctx, c, &sel)
			case sel.dryRun:
				return g.wouldRemove(ctx, c, args, sel.quiet)
			}
			return g.RemoveEach(args, func(ref string) (err error) {
				defer func() {
					if force && api.CodeOf(err) == api.CodeNotFound {
						err = session.ErrNothing
					}
				}()
				if api.IsID(api.KindSnapshot, ref) {
					return session.AcrossTenants(ref, func(opts ...client.Option) error { return c.Snapshots.Delete(ctx, ref, how, opts...) })
				}
				err = session.AcrossTenants(ref, func(opts ...client.Option) error { return c.Sandboxes.Destroy(ctx, ref, opts...) })
				if api.CodeOf(err) == api.CodeNotFound && !api.IsID(api.KindSandbox, ref) {
					switch _, serr := c.Snapshots.Get(ctx, ref); {
					case serr == nil:
						return c.Snapshots.Delete(ctx, ref, how)
					case api.CodeOf(serr) == api.CodeNotFound:
						return api.NotFound("sandbox or snapshot", ref)
					}
				}
				return err
			})
		}),
	}
	f := cmd.Flags()
	f.BoolVarP(&force, "force", "f", false, "a name of nothing is no error; that a sandbox runs is none in any case")
	f.BoolVar(&how.Cascade, "cascade", false, "also delete the snapshots that depend on these")
	f.BoolVar(&how.Flatten, "flatten", false, "rewrite the snapshots that depend on these, so that they are independent")
	sel.flags(cmd)
	completeStates(cmd)
	g.CompleteOption(cmd, "children", g.CompleteBoth)
	return cmd
}

// selection is the options of rm that select sandboxes in place of names.
type selection struct {
	cmd             *cobra.Command
	children, state string
	meta            []string
	dryRun, quiet   bool
}

func (s *selection) flags(cmd *cobra.Command) {
	s.cmd = cmd
	f := cmd.Flags()
	values.NotEmptyVar(f, &s.children, "children", "is not a sandbox", "sandboxes that descend from this sandbox or snapshot, over all generations")
	values.StateVar(f, &s.state, "sandboxes in this state, such as failed")
	f.StringArrayVar(&s.meta, "meta", nil, "sandboxes with this metadata K=V; may be repeated")
	f.BoolVar(&s.dryRun, "dry-run", false, "print what would be removed and remove nothing")
	values.QuietVar(f, &s.quiet)
}

// given reports whether an option selects sandboxes.
func (s *selection) given() bool {
	f := s.cmd.Flags()
	return f.Changed("children") || f.Changed("state") || f.Changed("meta")
}

// args checks the arguments of rm: names or a selection, not both.
func (s *selection) args(cmd *cobra.Command, args []string) error {
	f := cmd.Flags()
	switch {
	case s.dryRun && f.Changed("force"):
		return errors.New("--force removes, and --dry-run removes nothing")
	case s.given() && len(args) > 0:
		return errors.New("name what is to be removed, or select it by --children, --state and --meta, not both")
	case s.given() && (f.Changed("cascade") || f.Changed("flatten")):
		return errors.New("--cascade and --flatten are for snapshots, and --children, --state and --meta select sandboxes")
	case s.dryRun && f.Changed("cascade"):
		return errors.New("--dry-run cannot say which snapshots --cascade would delete besides")
	case !s.given() && len(args) == 0 && !f.Changed("force"):
		return errors.New("name what is to be removed, or select it by --children, --state and --meta")
	}
	return nil
}

// find returns the sandboxes that match all options.
func (s *selection) find(ctx context.Context, c *client.Client) ([]api.Sandbox, error) {
	metadata, err := values.ParsePairs("meta", s.meta)
	if err != nil {
		return nil, err
	}
	return c.Sandboxes.List(ctx, api.ListFilter{Ancestor: s.children, State: api.State(s.state), Metadata: metadata})
}

// removeSelected removes the selected sandboxes. A sandbox that does not exist any more counts as
// removed.
func (g *Group) removeSelected(ctx context.Context, c *client.Client, s *selection) error {
	found, err := s.find(ctx, c)
	if err != nil {
		return err
	}
	if s.dryRun {
		rows := make([][]string, len(found))
		for i, sb := range found {
			rows[i] = []string{sb.ID, sb.Name, string(sb.State)}
		}
		return g.showRemovable(rows, s.quiet)
	}
	return g.RemoveEach(console.IDsOf(found, func(s *api.Sandbox) string { return s.ID }), func(id string) error {
		if err := c.Sandboxes.Destroy(ctx, id); api.CodeOf(err) != api.CodeNotFound {
			return err
		}
		return nil
	})
}

// removable is the JSON of rm with --dry-run.
type removable struct {
	DryRun  bool     `json:"dry_run"`
	Removed []string `json:"removed"`
}

// showRemovable prints what would be removed: ids, names and states.
func (g *Group) showRemovable(rows [][]string, quiet bool) error {
	ids := console.IDsOf(rows, func(row *[]string) string { return (*row)[0] })
	if len(rows) == 0 {
		quiet = true // no heading without rows
	}
	return g.ShowIDs(removable{DryRun: true, Removed: ids}, quiet, ids, console.Table([]string{"ID", "NAME", "STATE"}, rows))
}

// wouldRemove prints the sandboxes and snapshots that refs name.
func (g *Group) wouldRemove(ctx context.Context, c *client.Client, refs []string, quiet bool) error {
	var rows [][]string
	var errs []error
	for _, ref := range refs {
		row, err := removableRow(ctx, c, ref)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		rows = append(rows, row)
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return g.showRemovable(rows, quiet)
}

// removableRow describes what rm removes for ref. If a sandbox and a snapshot have the name, that
// is the sandbox.
func removableRow(ctx context.Context, c *client.Client, ref string) ([]string, error) {
	var err error
	if !api.IsID(api.KindSnapshot, ref) {
		var sb *api.Sandbox
		err = session.AcrossTenants(ref, func(opts ...client.Option) (err error) {
			sb, err = c.Sandboxes.Get(ctx, ref, opts...)
			return err
		})
		if err == nil {
			return []string{sb.ID, sb.Name, string(sb.State)}, nil
		}
		if api.CodeOf(err) != api.CodeNotFound || api.IsID(api.KindSandbox, ref) {
			return nil, err
		}
	}
	var snap *api.Snapshot
	serr := session.AcrossTenants(ref, func(opts ...client.Option) (err error) {
		snap, err = c.Snapshots.Get(ctx, ref, opts...)
		return err
	})
	if err != nil && api.CodeOf(serr) == api.CodeNotFound {
		return nil, api.NotFound("sandbox or snapshot", ref)
	}
	if serr != nil {
		return nil, serr
	}
	return []string{snap.ID, describe.NameOrLabel(snap), "snapshot, " + string(snap.State)}, nil
}
