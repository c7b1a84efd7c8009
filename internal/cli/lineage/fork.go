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
	network   values.NetworkFlags
	hold      string
	record    bool

	hostname    string
	newHostname bool
}

func (o *childOptions) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.IntVarP(&o.count, "count", "n", 1, "number of children")
	values.NameVar(f, &o.name, "name; with -n 2 and more P gives P-1, P-2, …")
	f.StringVar(&o.hostname, "hostname", "", "host name of the children (default that of the original)")
	f.BoolVar(&o.newHostname, "new-hostname", false, "each child has a host name of its own: its name, or its id")
	f.StringArrayVarP(&o.env, "env", "e", nil, "variable K=V for commands in the children, or K with its value here; may be repeated")
	f.StringArrayVar(&o.meta, "meta", nil, "metadata K=V; may be repeated")
	values.QuietVar(f, &o.quiet)
	values.RequireVar(f, &o.require, api.FreshRandomness+": fail if a random generator in a child is known to repeat and has no new seed")
	o.network.Flags(cmd, " (default what the original may reach)")
	f.StringVar(&o.hold, "hold", "", "writes: requests of the children that are not GET, HEAD or OPTIONS wait until they are released or their child is promoted, and are dropped with it; other connections than HTTP to names are refused; see 'ramet held'")
	values.CompleteValues(cmd, "hold", string(api.HoldWrites))
	f.BoolVar(&o.record, "record", false, "the children see one world: the answer to the first child's request is the answer to others that ask the same")
	o.life.Flags(cmd)
}

// children are the parsed options that fork and restore share.
type children struct {
	names         []string
	env, metadata map[string]string
	lifecycle     *api.LifecycleRequest
	network       *api.NetworkRequest
	hold          api.NetworkHold
}

// parse parses the options. It judges the count as well, because JSON omits a count of 0, which
// the daemon would take for 1, and because each child gets a name here.
func (o *childOptions) parse(in io.Reader) (made children, err error) {
	if err := api.ValidCount(o.count); err != nil {
		return made, err
	}
	if made.hold = api.NetworkHold(o.hold); o.hold != "" && made.hold != api.HoldWrites {
		return made, api.Invalid("hold", "%q is not %s", o.hold, api.HoldWrites)
	}
	made.names = values.ChildNames(o.name, o.count)
	if made.env, err = values.ParseEnv(o.env); err != nil {
		return made, err
	}
	if made.metadata, err = values.ParsePairs("meta", o.meta); err != nil {
		return made, err
	}
	if made.lifecycle, err = o.life.Request(); err != nil {
		return made, err
	}
	made.network, err = o.network.Request(in)
	return made, err
}

// ForkCommand returns the fork command.
func (g *Group) ForkCommand() *cobra.Command {
	var opts childOptions
	var timeout time.Duration
	var wait, secretEnv bool
	cmd := &cobra.Command{
		SuggestFor: []string{"branch", "clone"},
		Use:        "fork SBX",
		Short:      "Fork a running sandbox: files, memory and processes",
		Long: "Fork a running sandbox. Each child has the files, memory and processes of the sandbox at the fork point, and its own id, machine id and RAMET_FORK_INDEX. The sandbox continues.\n\n" +
			"A child that fails does not affect the others. It is listed with the reason, and the exit code is that of the first failure.",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: g.CompleteFirst(g.CompleteSandboxes),
		RunE: g.Connected(func(ctx context.Context, c *client.Client, args []string) error {
			made, err := opts.parse(g.In)
			if err != nil {
				return err
			}
			req := api.ForkRequest{Count: opts.count, Names: made.names, Env: made.env, Metadata: made.metadata, Lifecycle: made.lifecycle, Network: made.network, Hold: made.hold, Record: opts.record, Require: opts.require, Hostname: opts.hostname, NewHostname: opts.newHostname}
			if req.TimeoutMS, err = values.TimeoutMS("timeout", timeout); err != nil {
				return err
			}
			req.SecretEnv = secretEnv
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
	cmd.Flags().BoolVar(&secretEnv, "secret-env", false, "commands in the children have the secret variables of the sandbox, too")
	cmd.Flags().BoolVar(&wait, "wait", true, "wait until the children run; with false, return as soon as the sandbox continues: the children are in the state creating, and commands for a child wait until it runs")
	values.DurationVar(cmd.Flags(), &timeout, "timeout", "deadline for each child (default 30s)")
	return cmd
}

// RestoreCommand returns the restore command.
func (g *Group) RestoreCommand() *cobra.Command {
	var opts childOptions
	cmd := &cobra.Command{
		Use:               "restore SNAP",
		Short:             "Make new sandboxes from a snapshot",
		Long:              "Make new sandboxes from a snapshot, with its files, memory and processes. To return the sandbox itself to a snapshot, use rollback.",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: g.CompleteFirst(g.CompleteSnapshots),
		RunE: g.Connected(func(ctx context.Context, c *client.Client, args []string) error {
			made, err := opts.parse(g.In)
			if err != nil {
				return err
			}
			req := api.RestoreRequest{Count: opts.count, Names: made.names, Env: made.env, Metadata: made.metadata, Lifecycle: made.lifecycle, Network: made.network, Hold: made.hold, Record: opts.record, Require: opts.require, Hostname: opts.hostname, NewHostname: opts.newHostname}
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

// PromoteCommand returns the promote command.
func (g *Group) PromoteCommand() *cobra.Command {
	return g.OneSandbox("promote CHILD", "Replace the state of a parent by that of its child", (*client.Sandboxes).Promote)
}
