package cli

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"ramet.dev/ramet/internal/client"
	"ramet.dev/ramet/internal/sandbox"
)

func (a *app) tenantCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "tenant", Short: "Say what tenants may have, and look at what they use", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.tenantLsCommand(), a.tenantShowCommand(), a.tenantQuotaCommand(), a.tenantGiveCommand())
	return cmd
}

func (a *app) tenantLsCommand() *cobra.Command {
	return &cobra.Command{
		Use: "ls", Short: "List tenants, with what they use of what they may have", Args: cobra.NoArgs,
		RunE: a.connected(func(ctx context.Context, c *client.Client, _ []string) error {
			tenants, err := c.Tenants(ctx)
			if err != nil {
				return err
			}
			return a.show(tenants, tenantTable(tenants...))
		}),
	}
}

func (a *app) tenantShowCommand() *cobra.Command {
	return &cobra.Command{
		Use: "show TENANT", Short: "Show what a tenant uses of what it may have", Args: cobra.ExactArgs(1),
		RunE: a.connected(func(ctx context.Context, c *client.Client, args []string) error {
			t, err := c.GetTenant(ctx, args[0])
			if err != nil {
				return err
			}
			return a.show(t, tenantTable(*t))
		}),
	}
}

func tenantTable(tenants ...sandbox.Tenant) func(io.Writer) error {
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
	return table([]string{"TENANT", "SANDBOXES", "DEPTH", "MEMORY MiB", "DISK MiB", "CPU s", "EACH TREE"}, rows)
}

func quotaText(q sandbox.Quota) string {
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

func (a *app) tenantQuotaCommand() *cobra.Command {
	var q sandbox.Quota
	var memory, disk string
	var tree bool
	cmd := &cobra.Command{
		Use: "quota TENANT [--tree] [--sandboxes N] [--depth N] [--memory SIZE] [--disk SIZE] [--cpu-seconds N]", Short: "Set what a tenant, or each of its trees, may have; what is not given has no limit", Args: cobra.ExactArgs(1),
		RunE: a.connected(func(ctx context.Context, c *client.Client, args []string) (err error) {
			if q.MemoryMiB, err = parseMiB("memory", memory); err != nil {
				return err
			}
			if q.DiskMiB, err = parseMiB("disk", disk); err != nil {
				return err
			}
			req := sandbox.TenantUpdate{Quota: &q}
			if tree {
				req = sandbox.TenantUpdate{Tree: &q}
			}
			t, err := c.UpdateTenant(ctx, args[0], req)
			if err != nil {
				return err
			}
			return a.show(t, tenantTable(*t))
		}),
	}
	f := cmd.Flags()
	f.BoolVar(&tree, "tree", false, "what each tree of sandboxes may have, and not all of them together")
	f.Int64Var(&q.Sandboxes, "sandboxes", 0, "sandboxes at a time")
	f.Int64Var(&q.Depth, "depth", 0, "generations below the first sandbox")
	f.StringVar(&memory, "memory", "", "memory of sandboxes, such as 8G; what several share counts once")
	f.StringVar(&disk, "disk", "", "written files and snapshots, such as 20G")
	f.Int64Var(&q.CPUSeconds, "cpu-seconds", 0, "processor time in all")
	return cmd
}

func (a *app) tenantGiveCommand() *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use: "give TENANT IMAGE [--name NAME]", Short: "Let a tenant use an image", Args: cobra.ExactArgs(2),
		RunE: a.connected(func(ctx context.Context, c *client.Client, args []string) error {
			img, err := c.GiveImage(ctx, args[0], sandbox.GiveRequest{Image: args[1], Name: name})
			if err != nil {
				return err
			}
			return a.show(img, line(printable(img.ID+"  "+strings.Join(img.Names, ", "))))
		}),
	}
	cmd.Flags().StringVar(&name, "name", "", "what the image is called there; as here if absent")
	return cmd
}
