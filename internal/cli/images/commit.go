package images

import (
	"context"

	"github.com/spf13/cobra"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/client"
	"ramet.dev/ramet/internal/cli/console"
	"ramet.dev/ramet/internal/cli/describe"
	"ramet.dev/ramet/internal/cli/values"
)

// CommitCommand returns the commit command.
func (g *Group) CommitCommand() *cobra.Command {
	var req api.CommitRequest
	var quiet bool
	cmd := &cobra.Command{
		Use:   "commit SBX|SNAP NAME",
		Short: "Make an image of the files of a sandbox or snapshot",
		Long: `Make an image of the files of a sandbox or snapshot at one point in time. The sandbox continues.

The contents of /dev, /proc, /sys and /tmp, and the files ` + describe.IdentityFiles() + `, are those of the original image. So is the configuration: environment, command, directory and user. A name that another image has is refused unless --force moves it.`,
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: g.CompleteFirst(g.CompleteSandboxes),
		RunE: g.Connected(func(ctx context.Context, c *client.Client, args []string) error {
			req.Name = args[1]
			p := g.ProgressUnless(ctx, quiet)
			img, err := c.Images.Commit(ctx, args[0], req, p.Update)
			p.End(err == nil)
			if err != nil {
				return err
			}
			return g.Show(img, console.Line(img.ID))
		}),
	}
	cmd.Flags().StringVarP(&req.Message, "message", "m", "", "description of the image")
	values.QuietVar(cmd.Flags(), &quiet)
	cmd.Flags().BoolVar(&req.Replace, "force", false, "take the name from the image that has it; that image stays without a name")
	return cmd
}
