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
)

// removeWithin is how long the removal of a sandbox that exec made may take.
const removeWithin = 30 * time.Second

// fromOptions are the options of commands that can make the sandbox they work in.
type fromOptions struct {
	from   string // snapshot or image; empty if the sandbox is there
	remove bool
}

func (o *fromOptions) flags(g *Group, cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.from, "from", "", "snapshot or image to make a new sandbox from; if both have the name, the snapshot")
	f.BoolVar(&o.remove, "rm", false, "with --from: remove the sandbox when the command has ended, failed or was interrupted")
	// An error says that there is no such option.
	_ = cmd.RegisterFlagCompletionFunc("from", g.completeSources)
}

// valid checks the options against each other; ref is a sandbox that was named.
func (o *fromOptions) valid(f *pflag.FlagSet, ref string) error {
	switch {
	case o.from == "" && f.Changed("from"):
		return errors.New("--from names a snapshot or an image, and is empty")
	case o.from != "" && ref != "":
		return fmt.Errorf("--from makes a new sandbox: leave out %q", ref)
	case o.from == "" && o.remove:
		return errors.New("--rm is for sandboxes that --from makes")
	}
	return nil
}

// completeSources completes what sandboxes are made from.
func (g *Group) completeSources(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	snapshots, _ := g.CompleteSnapshots(cmd, args, prefix)
	images, directive := g.CompleteImages(cmd, args, prefix)
	return append(snapshots, images...), directive
}

// runExec runs the command of opts in the sandbox that they name or have made.
func (g *Group) runExec(ctx context.Context, c *client.Client, opts execOptions) (err error) {
	if opts.from != "" {
		if opts.ref, err = g.makeFrom(ctx, c, opts.from); err != nil {
			return err
		}
		if !opts.remove {
			fmt.Fprintf(g.Err, "ramet: the sandbox is %s\n", opts.ref)
		} else {
			opts.detachKeys = ""
			if !opts.tty { // with a terminal, the process is told to hang up before
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

// makeFrom makes a sandbox from a snapshot or an image. An interrupt does not end the call, for
// nobody would know the id then: the caller looks at ctx when the sandbox is there.
func (g *Group) makeFrom(ctx context.Context, c *client.Client, from string) (id string, err error) {
	ctx = context.WithoutCancel(ctx)
	image := from
	if !api.IsID(api.KindSnapshot, from) && !api.IsID(api.KindImage, from) {
		switch snap, err := c.Snapshots.Get(ctx, from); {
		case err == nil:
			image = snap.ID
		case api.CodeOf(err) != api.CodeNotFound:
			return "", err
		}
	}
	sb, err := c.Sandboxes.Create(ctx, api.CreateRequest{Image: image})
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

// removeMade removes a sandbox, interrupted or not, and returns the error that its command
// ends with. The daemon may be another one by now.
func (g *Group) removeMade(ctx context.Context, id string, ended error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeWithin)
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
