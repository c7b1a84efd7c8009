package images

import (
	"context"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/client"
	"ramet.dev/ramet/internal/build"
	"ramet.dev/ramet/internal/cli/console"
	"ramet.dev/ramet/internal/cli/session"
	"ramet.dev/ramet/internal/cli/values"
)

// ImageCommand returns the image command.
func (g *Group) ImageCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "image", Short: "Build, import, pull, list and remove images", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(g.imageBuild(), g.imageImport(), g.imagePull(), g.imageLs(), g.imageRm(), g.imagePrune(), g.imageInspect())
	return cmd
}

func (g *Group) imageImport() *cobra.Command {
	var name, choice string
	var quiet bool
	cmd := &cobra.Command{
		Use: "import [NAME] PATH", Short: "Make an image of a directory or an archive",
		Long: "Make an image of a directory, a tar archive, an archive of docker save, or an archive or directory of an OCI image layout.", Args: cobra.RangeArgs(1, 2),
		RunE: g.Connected(func(ctx context.Context, c *client.Client, args []string) error {
			path, err := filepath.Abs(args[len(args)-1])
			if err != nil {
				return api.Invalid("path", "%v", err)
			}
			if len(args) == 2 {
				if name != "" && name != args[0] {
					return api.Invalid("name", "%q and %q are two names", args[0], name)
				}
				name = args[0]
			}
			if name == "" {
				name = imageName(path)
			}
			return g.makeImage(ctx, c, api.ImageRequest{Name: name, Path: path, Select: choice}, quiet)
		}),
	}
	values.NameVar(cmd.Flags(), &name, "name of the image (default from the path)")
	cmd.Flags().StringVar(&choice, "select", "", "name of the image to import, of an archive that has several")
	values.QuietVar(cmd.Flags(), &quiet)
	return cmd
}

func (g *Group) imagePull() *cobra.Command {
	var name string
	var quiet bool
	cmd := &cobra.Command{
		Use: "pull REF", Short: "Get an image from a registry", Args: cobra.ExactArgs(1),
		RunE: g.Connected(func(ctx context.Context, c *client.Client, args []string) error {
			return g.makeImage(ctx, c, api.ImageRequest{Name: name, Ref: args[0]}, quiet)
		}),
	}
	values.NameVar(cmd.Flags(), &name, "name of the image (default the reference, without port, default registry and tag latest)")
	values.QuietVar(cmd.Flags(), &quiet)
	return cmd
}

// makeImage makes an image and shows the progress, unless the user asked for JSON or for the id
// only.
func (g *Group) makeImage(ctx context.Context, c *client.Client, req api.ImageRequest, quiet bool) error {
	p := g.ProgressUnless(ctx, quiet)
	img, err := c.Images.Create(ctx, req, p.Update)
	p.End(err == nil)
	if err != nil {
		return err
	}
	return g.Show(img, console.Line(img.ID))
}

func (g *Group) imageLs() *cobra.Command {
	var view session.TenantView
	var quiet bool
	cmd := &cobra.Command{
		Use: "ls", Short: "List images", Args: cobra.NoArgs,
		RunE: g.Connected(func(ctx context.Context, c *client.Client, _ []string) error {
			images, err := c.Images.List(ctx, view.Options()...)
			if err != nil {
				return err
			}
			ids := console.IDsOf(images, func(i *api.Image) string { return i.ID })
			return g.ShowIDs(images, quiet, ids, console.Table(view.Row("TENANT", "ID", "NAMES", "SIZE", "AGE", "SOURCE"), imageRows(images, view)))
		}),
	}
	view.Flag(cmd.Flags())
	values.QuietVar(cmd.Flags(), &quiet)
	return cmd
}

// imageRows returns a row for each image, or for each tenant that has a name for it.
func imageRows(images []api.Image, view session.TenantView) (rows [][]string) {
	for _, i := range images {
		add := func(tenant string, names []string) {
			rows = append(rows, view.Row(tenant, i.ID, strings.Join(names, " "), console.ByteSize(i.SizeBytes), console.Age(i.CreatedAt, time.Now()), i.Source))
		}
		if len(i.Names) > 0 {
			add(session.TenantName(""), i.Names)
		}
		for _, tenant := range slices.Sorted(maps.Keys(i.Tenants)) {
			add(tenant, i.Tenants[tenant])
		}
		if len(i.Names)+len(i.Tenants) == 0 {
			add("", nil) // no tenant has it
		}
	}
	return rows
}

func (g *Group) imageRm() *cobra.Command {
	return &cobra.Command{
		Use: "rm IMAGE…", Short: "Remove images or names of images", Args: cobra.MinimumNArgs(1), ValidArgsFunction: g.CompleteImages,
		RunE: g.Connected(func(ctx context.Context, c *client.Client, args []string) error {
			return g.RemoveEach(args, func(ref string) error { return c.Images.Remove(ctx, ref) })
		}),
	}
}

func (g *Group) imagePrune() *cobra.Command {
	var req api.PruneRequest
	var unused time.Duration
	var quiet bool
	cmd := &cobra.Command{
		Use: "prune", Short: "Remove images without a name that nothing uses", Args: cobra.NoArgs,
		RunE: g.Connected(func(ctx context.Context, c *client.Client, _ []string) (err error) {
			if req.CacheUnusedMS, err = values.TimeoutMS("unused-for", unused); err != nil {
				return err
			}
			if unused > 0 && !req.Cache {
				return api.Invalid("unused-for", "it is about cached packages: say --cache as well")
			}
			states := 0
			if req.Cache { // before the images that they keep
				if states, err = build.Prune(ctx, c, time.Now().Add(-unused)); err != nil {
					return err
				}
			}
			pruned, err := c.Images.Prune(ctx, req)
			if err != nil {
				return err
			}
			said := slices.Clone(pruned.Removed)
			if req.Cache {
				said = append(said, fmt.Sprintf("%d cached packages and lists of packages", pruned.Packages), fmt.Sprintf("%d states and caches of builds", states))
			}
			return g.ShowIDs(pruned, quiet, pruned.Removed, console.Lines(append(said, console.ByteSize(pruned.FreedBytes)+" freed")))
		}),
	}
	f := cmd.Flags()
	f.BoolVar(&req.Cache, "cache", false, "also remove the packages, states and caches that builds have kept")
	values.DurationVar(f, &unused, "unused-for", "with --cache: only packages that no build has used for this time, and older states and caches, such as 168h")
	values.QuietVar(f, &quiet)
	return cmd
}

func (g *Group) imageInspect() *cobra.Command {
	return &cobra.Command{
		Use: "inspect IMAGE", Short: "Show all details of an image", Args: cobra.ExactArgs(1), ValidArgsFunction: g.CompleteImages,
		RunE: g.Connected(func(ctx context.Context, c *client.Client, args []string) error {
			i, err := c.Images.Get(ctx, args[0])
			if err != nil {
				return err
			}
			return g.Show(i, imagePairs(i))
		}),
	}
}

func imagePairs(i *api.Image) func(io.Writer) error {
	var labels []string
	for _, name := range slices.Sorted(maps.Keys(i.Labels)) {
		labels = append(labels, name+"="+i.Labels[name])
	}
	health := ""
	if i.Healthcheck != nil {
		health = strings.Join(i.Healthcheck.Test, " ")
	}
	return console.Pairs(
		"id", i.ID, "names", strings.Join(i.Names, " "), "digest", i.Digest, "size", console.ByteSize(i.SizeBytes), "created", i.CreatedAt.Format(time.RFC3339),
		"source", i.Source, "env", strings.Join(i.Env, " "), "entrypoint", strings.Join(i.Entry, " "), "cmd", strings.Join(i.Cmd, " "),
		"cwd", i.Cwd, "user", i.User, "labels", strings.Join(labels, " "), "ports", strings.Join(i.Ports, " "),
		"volume paths", strings.Join(i.VolumePaths, " "), "stop signal", i.StopSignal, "healthcheck", health,
	)
}

// imageName derives the name of an image from the name of a file: debian-12.tar.gz becomes
// debian-12.
func imageName(path string) string {
	name := filepath.Base(path)
	for _, ext := range []string{".gz", ".xz", ".zst", ".tar", ".tgz", ".oci"} {
		name = strings.TrimSuffix(name, ext)
	}
	return strings.ToLower(name)
}
