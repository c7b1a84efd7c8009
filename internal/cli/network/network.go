package network

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/client"
	"ramet.dev/ramet/internal/cli/console"
	"ramet.dev/ramet/internal/cli/describe"
	"ramet.dev/ramet/internal/cli/values"
	"ramet.dev/ramet/internal/network/document"
)

// Command returns the network command.
func (g *Group) Command() *cobra.Command {
	cmd := &cobra.Command{
		SuggestFor: []string{"net", "firewall", "egress"},
		Use:        "network", Short: "Show and change what a sandbox may reach", Args: cobra.NoArgs,
		Long: "Show and change what a sandbox may reach. A sandbox has no network unless it is created with one: --net, --allow and --deny of 'ramet create' say what it may reach.",
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(g.showCommand(), g.setCommand(), g.testCommand(), g.logCommand(), g.profilesCommand())
	return cmd
}

func (g *Group) showCommand() *cobra.Command {
	return &cobra.Command{
		Use: "show SBX", Short: "Show what a sandbox may reach", Args: cobra.ExactArgs(1), ValidArgsFunction: g.CompleteFirst(g.CompleteSandboxes),
		Long: "Show what a sandbox may reach, as a document that --net reads. Profiles that it names, and documents that bound it, are comments.",
		RunE: g.Connected(func(ctx context.Context, c *client.Client, args []string) error {
			n, err := c.Networks.Get(ctx, args[0])
			if err != nil {
				return err
			}
			return g.Show(n, func(w io.Writer) error { return writeNetwork(w, n) })
		}),
	}
}

// writeNetwork writes a document, with comments about what else counts.
func writeNetwork(w io.Writer, n *api.SandboxNetwork) error {
	var b bytes.Buffer
	if n.Closed() {
		b.WriteString("# it reaches nothing\n")
	}
	if n.Hold != "" {
		fmt.Fprintf(&b, "# held: %s wait until they are released; 'ramet network set --release-hold' ends this\n", n.Hold)
	}
	for _, name := range slices.Sorted(maps.Keys(n.Profiles)) {
		p := n.Profiles[name]
		fmt.Fprintf(&b, "# profile %s: %s\n", name, console.Printable(describe.Network(&p)))
	}
	for _, bound := range n.Bounds {
		fmt.Fprintf(&b, "# %s allows at most: %s\n", console.Printable(bound.Of), console.Printable(describe.Network(&bound.Policy)))
	}
	text, err := document.Format(&n.NetworkPolicy)
	if err != nil {
		return err
	}
	b.Write(text)
	_, err = w.Write(b.Bytes())
	return err
}

func (g *Group) setCommand() *cobra.Command {
	var network values.NetworkFlags
	var release bool
	cmd := &cobra.Command{
		Use: "set SBX", Short: "Replace what a sandbox may reach", Args: cobra.ExactArgs(1), ValidArgsFunction: g.CompleteFirst(g.CompleteSandboxes),
		Long: "Replace what a sandbox may reach, while it runs. With --net the new network is the one that the options say, and nothing of the old one. Without it, --allow and --deny add rules to what the sandbox has. To take a rule away, save the document that 'ramet network show' prints, and set it without the rule.\n\n" +
			"Connections that the new network does not allow are cut when the command returns.\n\n" +
			"A sandbox that was made with --hold stays held. --release-hold ends the hold: later requests are sent, and those that wait keep waiting for 'ramet held'. Rules for addresses and sandboxes, which a hold removes, have to be given again.",
		RunE: g.Connected(func(ctx context.Context, c *client.Client, args []string) error {
			req, err := network.Request(g.In)
			if err != nil {
				return err
			}
			if req == nil && !release {
				return api.Errorf(api.CodeInvalid, "nothing is to be changed: say --net, --allow, --deny or --release-hold")
			}
			if req == nil {
				req = &api.NetworkRequest{}
			}
			if req.ReleaseHold = release; network.Given() != "--net" {
				had, err := c.Networks.Get(ctx, args[0])
				if err != nil {
					return err
				}
				if release {
					withoutHold(had)
				}
				addRules(&req.NetworkPolicy, had.NetworkPolicy)
			}
			n, err := c.Networks.Set(ctx, args[0], *req)
			if err != nil {
				return err
			}
			return g.Show(n, console.Line(describe.Held(describe.Network(&n.NetworkPolicy), n.Hold)))
		}),
	}
	network.Flags(cmd, "")
	cmd.Flags().BoolVar(&release, "release-hold", false, "end the hold of a sandbox that was made with --hold")
	return cmd
}

// withoutHold removes the treatments that a hold has added to a document.
func withoutHold(n *api.SandboxNetwork) {
	if n.Hold == "" {
		return
	}
	for name, t := range n.Rules {
		if t.Hold == n.Hold {
			t.Hold = ""
		}
		n.Rules[name] = t
	}
	if all, has := n.Rules["*"]; has && !all.Restricts() && len(all.Inserted()) == 0 && !all.Record {
		delete(n.Rules, "*")
	}
}

// addRules makes p, which has rules alone, a document with those of another one before them. A rule that the
// other one has is not repeated.
func addRules(p *api.NetworkPolicy, had api.NetworkPolicy) {
	merge := func(had, more []api.NetworkRule) []api.NetworkRule {
		return append(slices.Clone(had), slices.DeleteFunc(more, func(r api.NetworkRule) bool {
			return slices.ContainsFunc(had, func(h api.NetworkRule) bool { return h.String() == r.String() })
		})...)
	}
	had.Allow, had.Deny = merge(had.Allow, p.Allow), merge(had.Deny, p.Deny)
	*p = had
}

func (g *Group) profilesCommand() *cobra.Command {
	return &cobra.Command{
		Use: "profiles", Short: "List the documents that --net takes by name", Args: cobra.NoArgs,
		Long: "List the documents that --net takes by name: those that are built in, host-registries, which is derived from what this host is set up with, and the files NAME.yaml of the daemon's configuration, in ~/.config/ramet/network.",
		RunE: g.Connected(func(ctx context.Context, c *client.Client, _ []string) error {
			all, err := c.Networks.Profiles(ctx)
			if err != nil {
				return err
			}
			var rows [][]string
			for _, p := range all {
				says := p.Error
				if p.Policy != nil {
					says = describe.Network(p.Policy)
				}
				rows = append(rows, []string{p.Name, p.Source, describe.Shortened(says)})
			}
			return g.Show(all, console.Table([]string{"NAME", "SOURCE", "SAYS"}, rows))
		}),
	}
}
