package cli

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
)

func (a *app) imageCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "image", Short: "Build, import, pull, list and remove images", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.imageBuild(), a.imageImport(), a.imagePull(), a.imageLs(), a.imageRm(), a.imagePrune(), a.imageInspect())
	return cmd
}

func (a *app) imageBuild() *cobra.Command {
	build := &api.ImageBuild{}
	var quiet bool
	cmd := &cobra.Command{
		Use: "build NAME", Short: "Make an image of a distribution's packages",
		Long: "Make an image of a distribution's packages, from the mirrors that this machine uses. Packages are verified; their scripts run in a sandbox.", Args: cobra.ExactArgs(1),
		RunE: a.connected(func(ctx context.Context, c *client.Client, args []string) error {
			return a.makeImage(ctx, c, api.ImageRequest{Name: args[0], Build: build}, quiet)
		}),
	}
	f := cmd.Flags()
	f.StringVar(&build.From, "from", "debian", "distribution")
	f.StringVar(&build.Suite, "suite", "", "release of the distribution (default: this machine's)")
	f.StringSliceVar(&build.Include, "include", nil, "package to install; may be repeated")
	quietVar(f, &quiet)
	return cmd
}

func (a *app) imageImport() *cobra.Command {
	var name, choice string
	var quiet bool
	cmd := &cobra.Command{
		Use: "import [NAME] PATH", Short: "Make an image of a directory or an archive",
		Long: "Make an image of a directory, a tar archive, an archive of docker save, or an archive or directory of an OCI image layout.", Args: cobra.RangeArgs(1, 2),
		RunE: a.connected(func(ctx context.Context, c *client.Client, args []string) error {
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
			return a.makeImage(ctx, c, api.ImageRequest{Name: name, Path: path, Select: choice}, quiet)
		}),
	}
	nameVar(cmd.Flags(), &name, "name of the image (default: from the path)")
	cmd.Flags().StringVar(&choice, "select", "", "which image, of an archive that holds several")
	quietVar(cmd.Flags(), &quiet)
	return cmd
}

func (a *app) imagePull() *cobra.Command {
	var name string
	var quiet bool
	cmd := &cobra.Command{
		Use: "pull REF", Short: "Get an image from a registry", Args: cobra.ExactArgs(1),
		RunE: a.connected(func(ctx context.Context, c *client.Client, args []string) error {
			if name == "" {
				name = args[0]
			}
			return a.makeImage(ctx, c, api.ImageRequest{Name: name, Ref: args[0]}, quiet)
		}),
	}
	nameVar(cmd.Flags(), &name, "name of the image (default: the reference)")
	quietVar(cmd.Flags(), &quiet)
	return cmd
}

// makeImage makes an image and shows how far that is, unless JSON or the id alone is asked for.
func (a *app) makeImage(ctx context.Context, c *client.Client, req api.ImageRequest, quiet bool) error {
	p := a.progressUnless(ctx, quiet)
	img, err := c.Images.Create(ctx, req, p.update)
	p.end(err == nil)
	if err != nil {
		return err
	}
	return a.show(img, line(img.ID))
}

func (a *app) imageLs() *cobra.Command {
	var view tenantView
	var quiet bool
	cmd := &cobra.Command{
		Use: "ls", Short: "List images", Args: cobra.NoArgs,
		RunE: a.connected(func(ctx context.Context, c *client.Client, _ []string) error {
			images, err := c.Images.List(ctx, view.options()...)
			if err != nil {
				return err
			}
			ids := idsOf(images, func(i *api.Image) string { return i.ID })
			return a.showIDs(images, quiet, ids, table(view.row("TENANT", "ID", "NAMES", "SIZE", "AGE", "SOURCE"), imageRows(images, view)))
		}),
	}
	view.flag(cmd.Flags())
	quietVar(cmd.Flags(), &quiet)
	return cmd
}

// imageRows returns a row for each image, or for each tenant that has a name for it.
func imageRows(images []api.Image, view tenantView) (rows [][]string) {
	for _, i := range images {
		add := func(tenant string, names []string) {
			rows = append(rows, view.row(tenant, i.ID, strings.Join(names, " "), byteSize(i.SizeBytes), age(i.CreatedAt, time.Now()), i.Source))
		}
		if len(i.Names) > 0 {
			add(tenantName(""), i.Names)
		}
		for _, tenant := range slices.Sorted(maps.Keys(i.Tenants)) {
			add(tenant, i.Tenants[tenant])
		}
		if len(i.Names)+len(i.Tenants) == 0 {
			add("", nil) // nobody's
		}
	}
	return rows
}

func (a *app) imageRm() *cobra.Command {
	return &cobra.Command{
		Use: "rm IMAGE…", Short: "Remove images, or names of them", Args: cobra.MinimumNArgs(1), ValidArgsFunction: a.completeImages,
		RunE: a.connected(func(ctx context.Context, c *client.Client, args []string) error {
			return a.removeEach(args, func(ref string) error { return c.Images.Remove(ctx, ref) })
		}),
	}
}

func (a *app) imagePrune() *cobra.Command {
	var req api.PruneRequest
	var unused time.Duration
	var quiet bool
	cmd := &cobra.Command{
		Use: "prune", Short: "Remove images that have no name and that nothing needs", Args: cobra.NoArgs,
		RunE: a.connected(func(ctx context.Context, c *client.Client, _ []string) (err error) {
			if req.CacheUnusedMS, err = timeoutMS("unused-for", unused); err != nil {
				return err
			}
			if unused > 0 && !req.Cache {
				return api.Invalid("unused-for", "it is about cached packages: say --cache as well")
			}
			pruned, err := c.Images.Prune(ctx, req)
			if err != nil {
				return err
			}
			said := slices.Clone(pruned.Removed)
			if req.Cache {
				said = append(said, fmt.Sprintf("%d cached packages and lists of packages", pruned.Packages))
			}
			return a.showIDs(pruned, quiet, pruned.Removed, lines(append(said, byteSize(pruned.FreedBytes)+" freed")))
		}),
	}
	f := cmd.Flags()
	f.BoolVar(&req.Cache, "cache", false, "also the packages that builds have fetched and kept, for the next build")
	durationVar(f, &unused, "unused-for", "of those only what no build has used for so long, such as 168h")
	quietVar(f, &quiet)
	return cmd
}

func (a *app) imageInspect() *cobra.Command {
	return &cobra.Command{
		Use: "inspect IMAGE", Short: "Show all that is known of an image", Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeImages,
		RunE: a.connected(func(ctx context.Context, c *client.Client, args []string) error {
			i, err := c.Images.Get(ctx, args[0])
			if err != nil {
				return err
			}
			return a.show(i, imagePairs(i))
		}),
	}
}

func imagePairs(i *api.Image) func(io.Writer) error {
	return pairs(
		"id", i.ID, "names", strings.Join(i.Names, " "), "digest", i.Digest, "size", byteSize(i.SizeBytes), "created", i.CreatedAt.Format(time.RFC3339),
		"source", i.Source, "env", strings.Join(i.Env, " "), "entrypoint", strings.Join(i.Entry, " "), "cmd", strings.Join(i.Cmd, " "),
		"cwd", i.Cwd, "user", i.User,
	)
}
