package volumes

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/client"
	"ramet.dev/ramet/internal/cli/console"
	"ramet.dev/ramet/internal/cli/values"
)

// VolumeCommand returns the volume command.
func (g *Group) VolumeCommand() *cobra.Command {
	cmd := &cobra.Command{
		SuggestFor: []string{"disk", "mount"},
		Use:        "volume", Short: "Make and remove directories that sandboxes share", Args: cobra.NoArgs,
		Long: "Make and remove volumes: directories that outlive sandboxes, and that several of them share. A sandbox has a volume if it was created with --volume, and its children have it too.\n\n" +
			"A change in one sandbox is seen by the others at once. A volume is no part of a sandbox's own files: forks, snapshots, rollbacks, diffs and merges leave it as it is.",
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(g.createCommand(), g.lsCommand(), g.inspectCommand(), g.rmCommand())
	return cmd
}

func (g *Group) createCommand() *cobra.Command {
	var size string
	cmd := &cobra.Command{
		Use: "create NAME", Short: "Make a volume", Args: cobra.ExactArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: g.Connected(func(ctx context.Context, c *client.Client, args []string) (err error) {
			req := api.VolumeRequest{Name: args[0]}
			if req.LimitMiB, err = values.ParseMiB("size", size); err != nil {
				return err
			}
			v, err := c.Volumes.Create(ctx, req)
			if err != nil {
				return err
			}
			return g.Show(v, console.Line(v.ID))
		}),
	}
	values.SizeVar(cmd.Flags(), &size, "size", "what its files may take together, such as 512M or 2G (default 10G)")
	return cmd
}

func (g *Group) lsCommand() *cobra.Command {
	var quiet bool
	cmd := &cobra.Command{
		Use: "ls", Short: "List volumes", Args: cobra.NoArgs,
		RunE: g.Connected(func(ctx context.Context, c *client.Client, _ []string) error {
			all, err := c.Volumes.List(ctx)
			if err != nil {
				return err
			}
			var rows [][]string
			for _, v := range all {
				rows = append(rows, []string{v.ID, v.Name, console.MiB(v.UsedMiB), console.MiB(float64(v.LimitMiB)), strconv.FormatInt(v.Files, 10), strconv.Itoa(len(v.Sandboxes)), console.Age(v.CreatedAt, time.Now())})
			}
			ids := console.IDsOf(all, func(v *api.Volume) string { return v.ID })
			return g.ShowIDs(all, quiet, ids, console.Table([]string{"VOLUME", "NAME", "USED", "SIZE", "FILES", "SANDBOXES", "AGE"}, rows))
		}),
	}
	values.QuietVar(cmd.Flags(), &quiet)
	return cmd
}

func (g *Group) inspectCommand() *cobra.Command {
	return &cobra.Command{
		Use: "inspect VOLUME", Short: "Describe a volume", Args: cobra.ExactArgs(1), ValidArgsFunction: g.CompleteFirst(g.completeVolumes),
		RunE: g.Connected(func(ctx context.Context, c *client.Client, args []string) error {
			v, err := c.Volumes.Get(ctx, args[0])
			if err != nil {
				return err
			}
			used := fmt.Sprintf("%s of %s, %s", console.MiB(v.UsedMiB), console.MiB(float64(v.LimitMiB)), console.Count(v.Files, "file"))
			return g.Show(v, console.Pairs("id", v.ID, "name", v.Name, "tenant", v.Tenant, "created", v.CreatedAt.Format(time.RFC3339), "used", used, "sandboxes", strings.Join(v.Sandboxes, " ")))
		}),
	}
}

func (g *Group) rmCommand() *cobra.Command {
	return &cobra.Command{
		Use: "rm VOLUME…", Short: "Remove volumes with their files", Args: cobra.MinimumNArgs(1), ValidArgsFunction: g.completeVolumes,
		Long: "Remove volumes with their files. A volume that a sandbox has is not removed.",
		RunE: g.Connected(func(ctx context.Context, c *client.Client, args []string) error {
			return g.RemoveEach(args, func(ref string) error { return c.Volumes.Remove(ctx, ref) })
		}),
	}
}

// completeVolumes completes ids and names of volumes.
func (g *Group) completeVolumes(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return g.Complete(cmd, func(ctx context.Context, c *client.Client) (refs []string, err error) {
		all, err := c.Volumes.List(ctx)
		for _, v := range all {
			refs = append(refs, v.Name+"\t"+v.ID, v.ID)
		}
		return refs, err
	})
}
