package run

import (
	"context"
	"errors"
	"fmt"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/client"
	"ramet.dev/ramet/internal/cli/session"
	"ramet.dev/ramet/internal/cli/values"
)

// removeTimeout bounds the removal of a sandbox that --from made.
const removeTimeout = 30 * time.Second

// fromOptions are the options of commands that can make their sandbox.
type fromOptions struct {
	from   string // snapshot or image; empty for an existing sandbox
	remove bool
	// network is what the new sandbox may reach.
	network values.NetworkFlags
	// secret is what is put into its requests.
	secret values.SecretFlags
}

func (o *fromOptions) flags(g *Group, cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.from, "from", "", "snapshot or image to make a new sandbox from; if both have the name, the snapshot")
	f.BoolVar(&o.remove, "rm", false, "with --from: remove the sandbox when the command has ended, failed or was interrupted")
	o.network.Flags(cmd, " (default none); with --from")
	o.secret.Flags(cmd, "; with --from")
	// An error says that there is no such option.
	_ = cmd.RegisterFlagCompletionFunc("from", g.completeSources)
}

// valid checks the options. ref is the sandbox in the arguments, if there is one.
func (o *fromOptions) valid(f *pflag.FlagSet, ref string) error {
	switch {
	case o.from == "" && f.Changed("from"):
		return errors.New("--from names a snapshot or an image, and is empty")
	case o.from != "" && ref != "":
		return fmt.Errorf("--from makes a new sandbox: leave out %q", ref)
	case o.from == "" && o.remove:
		return errors.New("--rm is for sandboxes that --from makes")
	case o.from == "" && o.network.Given() != "":
		return fmt.Errorf("%s is for sandboxes that --from makes: 'ramet network set' is for those that exist", o.network.Given())
	case o.from == "" && o.secret.Given():
		return errors.New("--secret is for sandboxes that --from makes: 'ramet secret set' and 'ramet network set' are for those that exist")
	}
	return nil
}

// completeSources completes snapshots and images.
func (g *Group) completeSources(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	snapshots, _ := g.CompleteSnapshots(cmd, args, prefix)
	images, directive := g.CompleteImages(cmd, args, prefix)
	return append(snapshots, images...), directive
}

// runExec runs the command of opts in an existing sandbox, or in a new one with --from.
func (g *Group) runExec(ctx context.Context, c *client.Client, opts execOptions) (err error) {
	if opts.from != "" {
		if opts.ref, err = g.makeFrom(ctx, c, opts.fromOptions); err != nil {
			return err
		}
		if !opts.remove {
			fmt.Fprintf(g.Err, "ramet: the sandbox is %s\n", opts.ref)
		} else {
			opts.detachKeys = ""
			if !opts.tty { // with a terminal, hangUp handles the signal
				var stop func()
				ctx, stop = signal.NotifyContext(ctx, syscall.SIGHUP)
				defer stop()
			}
			defer func() { err = g.removeMade(ctx, opts.ref, err) }()
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if opts.tty || opts.detach {
		return g.execKept(ctx, c, opts)
	}
	return g.exec(ctx, c, opts)
}

// makeFrom makes a sandbox from a snapshot or an image. An interrupt does not cancel the call,
// because the id of the sandbox would be lost, but it ends a pull of the image. The caller checks ctx afterwards.
func (g *Group) makeFrom(ctx context.Context, c *client.Client, opts fromOptions) (id string, err error) {
	network, err := opts.network.Request(g.In)
	if err != nil {
		return "", err
	}
	req := api.CreateRequest{Network: network}
	if err := opts.secret.Add(&req); err != nil {
		return "", err
	}
	interruptible := ctx
	ctx = context.WithoutCancel(ctx)
	from := opts.from
	image := from
	if !api.IsID(api.KindSnapshot, from) && !api.IsID(api.KindImage, from) {
		switch snap, err := c.Snapshots.Get(ctx, from); {
		case err == nil:
			image = snap.ID
		case api.CodeOf(err) != api.CodeNotFound:
			return "", err
		}
	}
	req.Image = image
	sb, err := g.CreateSandbox(interruptible, ctx, c, req, false)
	if api.CodeOf(err) == api.CodeNotFound && api.ValidName("name", from) == nil {
		if _, serr := c.Sandboxes.Get(ctx, from); serr == nil {
			return "", api.Errorf(api.CodeNotFound, "no snapshot or image %q: it is a sandbox, of which 'ramet snapshot %s' makes a snapshot", from, from)
		}
	}
	if err != nil {
		return "", err
	}
	return sb.ID, nil
}

// removeMade removes a sandbox that makeFrom made, also after an interrupt, and returns the error
// that the command ends with.
func (g *Group) removeMade(ctx context.Context, id string, ended error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTimeout)
	defer cancel()
	err := g.Current().Sandboxes.Destroy(ctx, id)
	if err == nil || api.CodeOf(err) == api.CodeNotFound {
		return ended
	}
	fmt.Fprintf(g.Err, "ramet: warning: sandbox %s was not removed: %v\n", id, err)
	if ended == nil {
		ended = session.ExitError(api.CodeOf(err).ExitCode())
	}
	return ended
}
