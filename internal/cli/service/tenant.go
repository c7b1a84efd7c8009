package service

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/client"
	"ramet.dev/ramet/internal/cli/console"
	"ramet.dev/ramet/internal/cli/values"
)

// TenantCommand returns the tenant command.
func (g *Group) TenantCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "tenant", Short: "Show the usage of tenants and set their quotas", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(g.tenantLsCommand(), g.tenantShowCommand(), g.tenantQuotaCommand(), g.tenantGiveCommand())
	return cmd
}

func (g *Group) tenantLsCommand() *cobra.Command {
	var quiet bool
	cmd := &cobra.Command{
		Use: "ls", Short: "List tenants with their usage and quotas", Args: cobra.NoArgs,
		RunE: g.Connected(func(ctx context.Context, c *client.Client, _ []string) error {
			tenants, err := c.Tenants.List(ctx)
			if err != nil {
				return err
			}
			names := console.IDsOf(tenants, func(t *api.Tenant) string { return t.Name })
			return g.ShowIDs(tenants, quiet, names, tenantTable(tenants...))
		}),
	}
	values.QuietOf(cmd.Flags(), &quiet, "names")
	return cmd
}

func (g *Group) tenantShowCommand() *cobra.Command {
	return &cobra.Command{
		Use: "show TENANT", Short: "Show the usage and quotas of a tenant", Args: cobra.ExactArgs(1),
		RunE: g.Connected(func(ctx context.Context, c *client.Client, args []string) error {
			t, err := c.Tenants.Get(ctx, args[0])
			if err != nil {
				return err
			}
			return g.Show(t, tenantTable(*t))
		}),
	}
}

func tenantTable(tenants ...api.Tenant) func(io.Writer) error {
	of := func(used float64, limit int64) string {
		text := strconv.FormatFloat(used, 'f', 0, 64)
		if limit > 0 {
			text += "/" + strconv.FormatInt(limit, 10)
		}
		return text
	}
	var rows [][]string
	for _, t := range tenants {
		u, q := t.Usage, t.Quota
		rows = append(rows, []string{
			t.Name, of(float64(u.Sandboxes), q.Sandboxes), of(float64(u.Depth), q.Depth), of(u.MemoryMiB, q.MemoryMiB), of(u.DiskMiB, q.DiskMiB), of(u.CPUSeconds, q.CPUSeconds), quotaText(t.Tree),
		})
	}
	return console.Table([]string{"TENANT", "SANDBOXES", "DEPTH", "MEMORY MiB", "DISK MiB", "CPU s", "EACH TREE"}, rows)
}

func quotaText(q api.Quota) string {
	var words []string
	for _, v := range []struct {
		name string
		n    int64
	}{{"sandboxes", q.Sandboxes}, {"depth", q.Depth}, {"memory", q.MemoryMiB}, {"disk", q.DiskMiB}, {"cpu", q.CPUSeconds}} {
		if v.n > 0 {
			words = append(words, fmt.Sprintf("%s=%d", v.name, v.n))
		}
	}
	return strings.Join(words, " ")
}

func (g *Group) tenantQuotaCommand() *cobra.Command {
	var given api.Quota
	var memory, disk string
	var tree bool
	cmd := &cobra.Command{
		Use:   "quota TENANT",
		Short: "Change the quota of a tenant or of each of its trees",
		Long: "Change the quota of a tenant, or of each of its trees. Limits without an option stay as they are. 0 removes a limit.\n\n" +
			"The tenant need not exist yet: the quota applies from its first token or sandbox on. 'ramet tenant show TENANT' shows it.",
		Args: cobra.ExactArgs(1),
	}
	f := cmd.Flags()
	f.BoolVar(&tree, "tree", false, "set the quota of each tree of sandboxes in place of that of the tenant")
	f.Int64Var(&given.Sandboxes, "sandboxes", 0, "number of sandboxes at a time; 0 is no limit, as with all options here")
	f.Int64Var(&given.Depth, "depth", 0, "number of generations below the first sandbox")
	values.SizeVar(f, &memory, "memory", "memory of sandboxes, such as 8G; shared memory counts once")
	values.SizeVar(f, &disk, "disk", "size of written files and snapshots, such as 20G")
	f.Int64Var(&given.CPUSeconds, "cpu-seconds", 0, "total processor time in seconds")
	cmd.RunE = g.Connected(func(ctx context.Context, c *client.Client, args []string) (err error) {
		if given.MemoryMiB, err = parseLimit("memory", memory); err != nil {
			return err
		}
		if given.DiskMiB, err = parseLimit("disk", disk); err != nil {
			return err
		}
		limits := []string{"sandboxes", "depth", "memory", "disk", "cpu-seconds"}
		if !slices.ContainsFunc(limits, f.Changed) {
			return api.Errorf(api.CodeInvalid, "nothing is to be changed: say --sandboxes, --depth, --memory, --disk or --cpu-seconds; ramet tenant show %s shows what is set", args[0])
		}
		t, err := c.Tenants.Get(ctx, args[0])
		if api.CodeOf(err) == api.CodeNotFound { // the quota makes the tenant
			t, err = &api.Tenant{Name: args[0]}, nil
		}
		if err != nil {
			return err
		}
		q, req := &t.Quota, api.TenantUpdate{Quota: &t.Quota}
		if tree {
			q, req = &t.Tree, api.TenantUpdate{Tree: &t.Tree}
		}
		for i, at := range []struct{ to, from *int64 }{
			{&q.Sandboxes, &given.Sandboxes}, {&q.Depth, &given.Depth}, {&q.MemoryMiB, &given.MemoryMiB}, {&q.DiskMiB, &given.DiskMiB}, {&q.CPUSeconds, &given.CPUSeconds},
		} {
			if f.Changed(limits[i]) {
				*at.to = *at.from
			}
		}
		if t, err = c.Tenants.Update(ctx, args[0], req); err != nil {
			return err
		}
		return g.Show(t, tenantTable(*t))
	})
	return cmd
}

// parseLimit parses a size, or 0 for no limit.
func parseLimit(option, s string) (int64, error) {
	if s == "0" {
		return 0, nil
	}
	return values.ParseMiB(option, s)
}

func (g *Group) tenantGiveCommand() *cobra.Command {
	var name string
	var quiet bool
	var force bool
	cmd := &cobra.Command{
		Use: "give TENANT IMAGE", Short: "Give a tenant access to an image", Args: cobra.ExactArgs(2),
		RunE: g.Connected(func(ctx context.Context, c *client.Client, args []string) error {
			img, err := c.Tenants.GiveImage(ctx, args[0], api.GiveRequest{Image: args[1], Name: name, Replace: force})
			if err != nil {
				return err
			}
			return g.ShowIDs(img, quiet, []string{img.ID}, console.Line(console.Printable(img.ID+"  "+strings.Join(img.Names, ", "))))
		}),
	}
	values.NameVar(cmd.Flags(), &name, "name of the image for the tenant (default the same name)")
	values.QuietVar(cmd.Flags(), &quiet)
	cmd.Flags().BoolVar(&force, "force", false, "take the name from the other image of the tenant that has it")
	return cmd
}
