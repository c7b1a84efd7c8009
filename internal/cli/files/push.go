package files

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/client"
	"ramet.dev/ramet/internal/cli/console"
	"ramet.dev/ramet/internal/cli/values"
)

// PushCommand returns the push command.
func (g *Group) PushCommand() *cobra.Command {
	var req api.PushRequest
	var quiet bool
	cmd := &cobra.Command{
		Use:   "push SNAP REF",
		Short: "Send a snapshot to a container registry",
		Long: `Send a snapshot to a container registry, from which 'ramet pull' makes a snapshot on another machine: memory, processes, files and image.

Blobs that the repository has are not sent. The daemon uses the credentials of 'docker login' or 'podman login'. Whoever can read the repository can read the memory of the sandbox; 'ramet pack --dry-run' lists the contents first.`,
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: g.CompleteFirst(g.CompleteSnapshots),
		RunE: g.Connected(func(ctx context.Context, c *client.Client, args []string) error {
			req.Ref = args[1]
			p := g.ProgressUnless(ctx, quiet)
			res, err := c.Snapshots.Push(ctx, args[0], req, p.Update)
			p.End(err == nil)
			if err != nil {
				return err
			}
			said := res.Ref + "@" + res.Digest
			if !quiet {
				said += "  " + console.ByteSize(res.SentBytes) + " of " + console.ByteSize(res.SizeBytes) + " sent"
			}
			return g.Show(res, console.Line(console.Printable(said)))
		}),
	}
	cmd.Flags().BoolVar(&req.WithEngine, "with-engine", false, "include the program that loads the state, for machines with another version of Ramet; they need --trust")
	cmd.Flags().BoolVar(&req.Sign, "sign", false, "sign the snapshot with the key that 'ramet key' shows")
	cmd.Flags().BoolVar(&req.WithoutImage, "without-image", false, "leave the image out: the other machine must have it")
	values.QuietVar(cmd.Flags(), &quiet)
	return cmd
}

// PullCommand returns the pull command.
func (g *Group) PullCommand() *cobra.Command {
	var req api.PullRequest
	var quiet bool
	var trust []string
	cmd := &cobra.Command{
		Use:   "pull REF",
		Short: "Get a snapshot from a container registry",
		Long: `Get a snapshot that 'ramet push' has sent to a container registry. Images are pulled with 'ramet image pull'.

A snapshot that this machine cannot restore is refused before its pages are fetched. Parts that another snapshot has are not fetched. If pulling fails, nothing is left behind.`,
		Args: cobra.ExactArgs(1),
		RunE: g.Connected(func(ctx context.Context, c *client.Client, args []string) (err error) {
			req.Ref = args[0]
			if req.Trust, err = values.ParseKeys("trust", trust); err != nil {
				return err
			}
			p := g.ProgressUnless(ctx, quiet)
			snap, err := c.Snapshots.Pull(ctx, req, p.Update)
			p.End(err == nil)
			if err != nil {
				return err
			}
			return g.ShowIDs(snap, quiet, []string{snap.ID}, console.Line(strings.TrimRight(snap.ID+"  "+snap.Name, " ")))
		}),
	}
	cmd.Flags().StringArrayVar(&trust, "trust", nil, "key, or file of keys, as 'ramet key' shows it: refuse the snapshot unless one of these has signed it; may be repeated")
	values.NameVar(cmd.Flags(), &req.Name, "name of the snapshot (default the name that it was packed with)")
	values.QuietVar(cmd.Flags(), &quiet)
	return cmd
}

// KeyCommand returns the key command.
func (g *Group) KeyCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "key",
		Short: "Show the key that signs packed and pushed snapshots",
		Long:  `Show the public key that 'pack --sign' and 'push --sign' sign snapshots with. It is the tenant's, and made when it is first needed. Others name it with --trust of unpack, pull and serve.`,
		Args:  cobra.NoArgs,
		RunE: g.Connected(func(ctx context.Context, c *client.Client, _ []string) error {
			key, err := c.Snapshots.SigningKey(ctx)
			if err != nil {
				return err
			}
			return g.Show(key, console.Line(key.Key))
		}),
	}
}
