package sandboxes

import (
	"context"

	"github.com/spf13/cobra"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/client"
	"ramet.dev/ramet/internal/cli/console"
	"ramet.dev/ramet/internal/cli/values"
)

// CreateCommand returns the create command.
func (g *Group) CreateCommand() *cobra.Command {
	var req api.CreateRequest
	var memory, disk string
	var env, secretEnv, meta, volumes []string
	var self string
	var life values.LifecycleFlags
	var network values.NetworkFlags
	var secret values.SecretFlags
	var keep int
	var pull string
	var quiet, trust bool
	var cmd *cobra.Command
	cmd = &cobra.Command{
		SuggestFor: []string{"new", "run", "start"},
		Use:        "create IMAGE",
		Short:      "Create a sandbox from an image or a snapshot",
		Long: "Create a sandbox from an image or a snapshot. If both have the name, the image is used. The sandbox has the environment, working directory and user of the image. The command of the image is not started.\n\n" +
			"An image that is not there is pulled from its registry if IMAGE has a registry, path, tag or digest, as in registry.example.com/team/tool:v1. The image python is built of Debian packages when it is missing.\n\n" +
			"Without an option for a limit, only the machine and the quota of the tenant bound the sandbox. --ttl destroys the sandbox after a time, and --idle-timeout hibernates, pauses or destroys it when it is not used.\n\n" +
			"A sandbox reaches nothing of the network unless --net or --allow says so. With a network it trusts the certificate authorities that this host trusts and the image does not, such as that of a proxy that inspects TLS, unless --trust-host-ca=false says otherwise.",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: g.CompleteImages,
		RunE: g.Connected(func(ctx context.Context, c *client.Client, args []string) (err error) {
			req.Image = args[0]
			if err := values.ValidCPUs(req.Limits.CPUs); err != nil {
				return err
			}
			if req.Limits.MemoryMiB, err = values.ParseMiB("memory", memory); err != nil {
				return err
			}
			if req.Limits.DiskMiB, err = values.ParseMiB("disk", disk); err != nil {
				return err
			}
			if req.SecretEnv, err = values.ParseEnv(secretEnv); err != nil {
				return err
			}
			if req.Env, err = values.ParseEnv(env); err != nil {
				return err
			}
			if req.Metadata, err = values.ParsePairs("meta", meta); err != nil {
				return err
			}
			if req.Volumes, err = values.ParseVolumes("volume", volumes); err != nil {
				return err
			}
			if cmd.Flags().Changed("self-control") {
				if req.SelfControl, err = values.ParseSelfControl(self); err != nil {
					return err
				}
			}
			if cmd.Flags().Changed("auto-checkpoint") {
				req.AutoCheckpoint = &api.AutoCheckpoint{Keep: keep}
			}
			if err := req.AutoCheckpoint.Valid(); err != nil {
				return err
			}
			if req.Lifecycle, err = life.Request(); err != nil {
				return err
			}
			if req.Network, err = network.Request(g.In); err != nil {
				return err
			}
			if err := secret.Add(&req); err != nil {
				return err
			}
			if cmd.Flags().Changed("trust-host-ca") {
				req.TrustHostCA = &trust
			}
			req.Pull = api.PullPolicy(pull)
			sb, err := g.CreateSandbox(ctx, ctx, c, req, quiet)
			if err != nil {
				return err
			}
			return g.ShowIDs(sb, quiet, []string{sb.ID}, console.Line(sb.ID))
		}),
	}
	f := cmd.Flags()
	values.NameVar(f, &req.Name, "name, accepted wherever an id is")
	f.StringVar(&req.Hostname, "hostname", "", "host name (default the name or id of the sandbox, or the host name that a snapshot has)")
	f.Float64Var(&req.Limits.CPUs, "cpus", 0, "processors, such as 0.5 or 2")
	values.SizeVar(f, &memory, "memory", "memory of the sandbox, such as 512M or 2G")
	values.SizeVar(f, &disk, "disk", "size of written files, such as 512M or 2G")
	f.Int64Var(&req.Limits.Pids, "pids", 0, "number of processes and threads")
	f.Int64Var(&req.Limits.OpenFiles, "open-files", 0, "number of files that each process may have open")
	f.StringArrayVarP(&env, "env", "e", nil, "variable K=V for all commands, or K with its value here; may be repeated")
	f.StringArrayVar(&secretEnv, "secret-env", nil, "like --env, but shown nowhere, in no snapshot, and in children only if fork asks for it")
	f.StringArrayVar(&volumes, "volume", nil, "NAME:PATH: have the volume NAME at PATH, or NAME:PATH:ro without changing it; see 'ramet volume'; may be repeated")
	f.StringArrayVar(&meta, "meta", nil, "metadata K=V; may be repeated")
	network.Flags(cmd, " (default none)")
	secret.Flags(cmd, "")
	f.BoolVar(&trust, "trust-host-ca", true, "with a network, trust the certificate authorities of this host that the image lacks")
	life.Flags(cmd)
	values.QuietVar(f, &quiet)
	f.StringVar(&pull, "pull", "", "when to get the image from its registry: missing, always or never (default missing for references with a registry, path, tag or digest, and never for other names)")
	f.IntVar(&keep, "auto-checkpoint", 0, "keep the state after every command and cell: the last N, from 2 to 1000; see 'ramet timeline'")
	f.StringVar(&self, "self-control", "", "let processes in the sandbox fork, snapshot, roll back and tag it with the command ramet there, within a budget for the tree: forks=N,depth=N[,snapshots=N]")
	values.RequireVar(f, &req.Require, "isolation layer that the sandbox needs to start: sentry, systrap, seccomp, no_new_privs, capabilities_dropped, user_namespace, own_user, namespaces, empty_root, landlock, rlimits or cgroup; may be repeated")
	return cmd
}
