package lineage

import (
	"cmp"
	"context"
	"fmt"
	"io"
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

// childOptions are the options of fork and restore.
type childOptions struct {
	count     int
	name      string
	env, meta []string
	quiet     bool
	require   []string
	life      values.LifecycleFlags
}

func (o *childOptions) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.IntVarP(&o.count, "count", "n", 1, "number of children")
	values.NameVar(f, &o.name, "name; with -n 2 and more P gives P-1, P-2, …")
	f.StringArrayVarP(&o.env, "env", "e", nil, "variable K=V for commands in the children, or K with its value here; may be repeated")
	f.StringArrayVar(&o.meta, "meta", nil, "metadata K=V; may be repeated")
	values.QuietVar(f, &o.quiet)
	values.RequireVar(f, &o.require, api.FreshRandomness+": fail if a random generator in a child is known to repeat and has no new seed")
	o.life.Flags(cmd)
}

func (g *Group) ForkCommand() *cobra.Command {
	var opts childOptions
	var timeout time.Duration
	var wait bool
	cmd := &cobra.Command{
		SuggestFor: []string{"branch", "clone"},
		Use:        "fork SBX",
		Short:      "Fork a running sandbox: files, memory and processes",
		Long: "Fork a running sandbox. Each child has the files, memory and processes of the sandbox at the fork point, and its own id, host name and RAMET_FORK_INDEX. The sandbox continues.\n\n" +
			"A child that fails does not affect the others. It is listed with the reason, and the exit code is that of the first failure.",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: g.CompleteFirst(g.CompleteSandboxes),
		RunE: g.Connected(func(ctx context.Context, c *client.Client, args []string) error {
			req := api.ForkRequest{Count: opts.count, Names: values.ChildNames(opts.name, opts.count), Require: opts.require}
			var err error
			if req.TimeoutMS, err = values.TimeoutMS("timeout", timeout); err != nil {
				return err
			}
			if req.Env, err = values.ParseEnv(opts.env); err != nil {
				return err
			}
			if req.Metadata, err = values.ParsePairs("meta", opts.meta); err != nil {
				return err
			}
			if req.Lifecycle, err = opts.life.Request(); err != nil {
				return err
			}
			if err := api.ValidCount(opts.count); err != nil { // JSON omits 0, which the daemon would take for 1
				return err
			}
			if !wait {
				req.Wait = &wait
			}
			res, err := c.Sandboxes.Fork(ctx, args[0], req)
			if err != nil {
				return err
			}
			return g.showChildren(res, opts.quiet)
		}),
	}
	opts.flags(cmd)
	cmd.Flags().BoolVar(&wait, "wait", true, "wait until the children run; with false, return as soon as the sandbox continues: the children are in the state creating, and commands for a child wait until it runs")
	values.DurationVar(cmd.Flags(), &timeout, "timeout", "deadline for each child (default 30s)")
	return cmd
}

func (g *Group) RestoreCommand() *cobra.Command {
	var opts childOptions
	cmd := &cobra.Command{
		Use:               "restore SNAP",
		Short:             "Make new sandboxes from a snapshot",
		Long:              "Make new sandboxes from a snapshot, with its files, memory and processes. To return the sandbox itself to a snapshot, use rollback.",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: g.CompleteFirst(g.CompleteSnapshots),
		RunE: g.Connected(func(ctx context.Context, c *client.Client, args []string) error {
			req := api.RestoreRequest{Count: opts.count, Names: values.ChildNames(opts.name, opts.count), Require: opts.require}
			var err error
			if req.Env, err = values.ParseEnv(opts.env); err != nil {
				return err
			}
			if req.Metadata, err = values.ParsePairs("meta", opts.meta); err != nil {
				return err
			}
			if req.Lifecycle, err = opts.life.Request(); err != nil {
				return err
			}
			if err := api.ValidCount(opts.count); err != nil {
				return err
			}
			res, err := c.Snapshots.Restore(ctx, args[0], req)
			if err != nil {
				return err
			}
			return g.showChildren(res, opts.quiet)
		}),
	}
	opts.flags(cmd)
	return cmd
}

// showChildren prints the children. If some failed, the error has the exit code of the first. With
// quiet, the ids go to standard output, and the failures to standard error.
func (g *Group) showChildren(res *api.ForkResult, quiet bool) error {
	var failed error
	rows, ids := make([][]string, 0, len(res.Children)), []string{}
	for i, child := range res.Children {
		switch {
		case child.Sandbox != nil:
			ids = append(ids, child.Sandbox.ID)
			ready := console.Millis(child.ReadyMS)
			if child.Sandbox.State == api.StateCreating {
				ready = string(child.Sandbox.State)
			}
			rows = append(rows, []string{child.Sandbox.ID, child.Sandbox.Name, ready, describe.FailedHooks(child.Identity)})
		case child.Error != nil:
			why := string(child.Error.Code) + ": " + child.Error.Error()
			rows = append(rows, []string{"", child.Name, "", why})
			if quiet && !g.JSON {
				fmt.Fprintln(g.Err, "ramet:", console.Printable(cmp.Or(child.Name, fmt.Sprintf("child %d", i+1))+": "+why))
			}
			if failed == nil {
				failed = session.ExitError(child.Error.Code.ExitCode())
			}
		}
	}
	err := g.ShowIDs(res, quiet, ids, func(w io.Writer) error {
		if err := console.Table([]string{"ID", "NAME", "READY", "ERROR"}, rows)(w); err != nil {
			return err
		}
		_, err := fmt.Fprintf(w, "pause %s, snapshot %s, returned after %s\n", console.Millis(res.PauseMS), console.Millis(res.SnapshotMS), console.Millis(res.ReturnMS))
		return err
	})
	if err != nil {
		return err
	}
	if !quiet && !g.JSON {
		g.showRepeating(res)
	}
	return failed
}

// showRepeating prints the programs whose random generators have no new seed. All children have the
// same programs.
func (g *Group) showRepeating(res *api.ForkResult) {
	i := slices.IndexFunc(res.Children, func(c api.Child) bool { return c.Identity != nil })
	if i < 0 {
		return
	}
	for _, r := range res.Children[i].Identity.Reseeded {
		if r.Program != "" {
			fmt.Fprintln(g.Err, "ramet: note:", console.Printable(r.Program+": "+strings.Join(r.Failed, "; ")))
		}
	}
}

func (g *Group) PromoteCommand() *cobra.Command {
	return g.OneSandbox("promote CHILD", "Replace the state of a parent by that of its child", (*client.Sandboxes).Promote)
}
