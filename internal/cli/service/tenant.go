package service

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/client"
	"ramet.dev/ramet/internal/cli/console"
	"ramet.dev/ramet/internal/cli/describe"
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
		if 0 < used && used < 0.5 {
			text = "<1"
		}
		if limit > 0 {
			text += "/" + strconv.FormatInt(limit, 10)
		}
		return text
	}
	var rows [][]string
	for _, t := range tenants {
		u, q, max := t.Usage, t.Quota, ""
		if t.NetworkMax != nil {
			max = describe.Network(t.NetworkMax)
		}
		rows = append(rows, []string{
			t.Name, of(float64(u.Sandboxes), q.Sandboxes), of(float64(u.Depth), q.Depth), of(u.MemoryMiB, q.MemoryMiB), of(u.DiskMiB, q.DiskMiB), of(u.CPUSeconds, q.CPUSeconds),
			of(float64(u.NetworkConnections), q.NetworkConnections), of(u.NetworkMbit, q.NetworkMbit), of(u.NetworkDNSPerS, q.NetworkDNSPerS), quotaText(t.Tree), max,
		})
	}
	return console.Table([]string{"TENANT", "SANDBOXES", "DEPTH", "MEMORY MiB", "DISK MiB", "CPU s", "CONNS", "Mbit/s", "DNS/s", "EACH TREE", "NETWORK MAX"}, rows)
}

func quotaText(q api.Quota) string {
	var words []string
	for _, v := range []struct {
		name string
		n    int64
	}{{"sandboxes", q.Sandboxes}, {"depth", q.Depth}, {"memory", q.MemoryMiB}, {"disk", q.DiskMiB}, {"cpu", q.CPUSeconds}, {"connections", q.NetworkConnections}, {"mbit", q.NetworkMbit}, {"dns", q.NetworkDNSPerS}} {
		if v.n > 0 {
			words = append(words, fmt.Sprintf("%s=%d", v.name, v.n))
		}
	}
	return strings.Join(words, " ")
}

// quotaFlags are the options of ramet tenant quota.
type quotaFlags struct {
	flags        *pflag.FlagSet
	given        api.Quota
	memory, disk string
	tree         bool
	max          string
	noMax        bool
}

// quotaOptions are the options of limits, in the order of the limits of quotaFlags.limits.
var quotaOptions = []string{"sandboxes", "depth", "memory", "disk", "cpu-seconds", "network-connections", "network-mbit", "network-dns"}

func limitsOf(q *api.Quota) []*int64 {
	return []*int64{&q.Sandboxes, &q.Depth, &q.MemoryMiB, &q.DiskMiB, &q.CPUSeconds, &q.NetworkConnections, &q.NetworkMbit, &q.NetworkDNSPerS}
}

func (o *quotaFlags) add(f *pflag.FlagSet) {
	o.flags = f
	f.BoolVar(&o.tree, "tree", false, "set the quota of each tree of sandboxes in place of that of the tenant")
	f.Int64Var(&o.given.Sandboxes, "sandboxes", 0, "number of sandboxes at a time; 0 is no limit, as with all options here")
	f.Int64Var(&o.given.Depth, "depth", 0, "number of generations below the first sandbox")
	values.SizeVar(f, &o.memory, "memory", "memory of sandboxes, such as 8G; shared memory counts once")
	values.SizeVar(f, &o.disk, "disk", "size of written files and snapshots, such as 20G")
	f.Int64Var(&o.given.CPUSeconds, "cpu-seconds", 0, "total processor time in seconds")
	f.Int64Var(&o.given.NetworkConnections, "network-connections", 0, "number of connections that are open at a time")
	f.Int64Var(&o.given.NetworkMbit, "network-mbit", 0, "megabits per second in each direction")
	f.Int64Var(&o.given.NetworkDNSPerS, "network-dns", 0, "look-ups of names per second")
	f.StringVar(&o.max, "network-max", "", "profile or file with a document, as for --net of create, that bounds what sandboxes of the tenant may reach")
	f.BoolVar(&o.noMax, "no-network-max", false, "remove the bound that --network-max has set")
}

// check refuses options of which no change is made.
func (o *quotaFlags) check(tenant string) error {
	limits, max := slices.ContainsFunc(quotaOptions, o.flags.Changed), o.flags.Changed("network-max")
	switch {
	case !limits && !max && !o.noMax:
		return api.Errorf(api.CodeInvalid, "nothing is to be changed: say --%s, --network-max or --no-network-max; ramet tenant show %s shows what is set", strings.Join(quotaOptions, ", --"), tenant)
	case max && o.noMax:
		return api.Errorf(api.CodeInvalid, "--network-max and --no-network-max exclude each other")
	case o.tree && (max || o.noMax):
		return api.Errorf(api.CodeInvalid, "--tree has no --network-max: the bound is of all trees of a tenant")
	}
	return nil
}

// update returns the change of a tenant that is asked for.
func (o *quotaFlags) update(t *api.Tenant, in io.Reader) (req api.TenantUpdate, err error) {
	if o.given.MemoryMiB, err = parseLimit("memory", o.memory); err != nil {
		return req, err
	}
	if o.given.DiskMiB, err = parseLimit("disk", o.disk); err != nil {
		return req, err
	}
	if o.flags.Changed("network-max") {
		if req.NetworkMax, err = values.ParseNetwork("network-max", o.max, in); err != nil {
			return req, err
		}
	}
	req.NoNetworkMax = o.noMax
	if !slices.ContainsFunc(quotaOptions, o.flags.Changed) {
		return req, nil
	}
	q := &t.Quota
	req.Quota = q
	if o.tree {
		q = &t.Tree
		req.Quota, req.Tree = nil, q
	}
	from := limitsOf(&o.given)
	for i, to := range limitsOf(q) {
		if o.flags.Changed(quotaOptions[i]) {
			*to = *from[i]
		}
	}
	return req, nil
}

func (g *Group) tenantQuotaCommand() *cobra.Command {
	var opts quotaFlags
	cmd := &cobra.Command{
		Use:   "quota TENANT",
		Short: "Change the quota of a tenant or of each of its trees",
		Long: "Change the quota of a tenant, or of each of its trees. Limits without an option stay as they are. 0 removes a limit.\n\n" +
			"The tenant need not exist yet: the quota applies from its first token or sandbox on. 'ramet tenant show TENANT' shows it.\n\n" +
			"--network-max bounds what all sandboxes of the tenant may reach, those that run included: connections that it does not allow are cut when the command returns.",
		Args: cobra.ExactArgs(1),
	}
	opts.add(cmd.Flags())
	// An error says that there is no such option. Files are completed as well.
	_ = cmd.RegisterFlagCompletionFunc("network-max", cobra.FixedCompletions([]string{"none", "open", "host-registries"}, cobra.ShellCompDirectiveDefault))
	cmd.RunE = g.Connected(func(ctx context.Context, c *client.Client, args []string) error {
		if err := opts.check(args[0]); err != nil {
			return err
		}
		t, err := c.Tenants.Get(ctx, args[0])
		if api.CodeOf(err) == api.CodeNotFound { // the quota makes the tenant
			t, err = &api.Tenant{Name: args[0]}, nil
		}
		if err != nil {
			return err
		}
		req, err := opts.update(t, g.In)
		if err != nil {
			return err
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
