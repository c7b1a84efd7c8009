package network

import (
	"context"
	"io"
	"net"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/client"
	"ramet.dev/ramet/internal/cli/console"
	"ramet.dev/ramet/internal/cli/session"
)

// HeldCommand returns the held command.
func (g *Group) HeldCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "held", Short: "Show, send and drop the held requests of a sandbox", Args: cobra.NoArgs,
		Long: "Show, send and drop the held requests of a sandbox. Requests of children of 'ramet fork --hold writes' wait if they could change something. They are sent when the child is promoted or when they are released here, and dropped when the child is destroyed.",
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(g.heldLsCommand(), g.heldReleaseCommand(), g.heldDropCommand())
	return cmd
}

func (g *Group) heldLsCommand() *cobra.Command {
	return &cobra.Command{
		Use: "ls SBX", Short: "List the requests of a sandbox that are or were held", Args: cobra.ExactArgs(1), ValidArgsFunction: g.CompleteFirst(g.CompleteSandboxes),
		RunE: g.Connected(func(ctx context.Context, c *client.Client, args []string) error {
			all, err := c.Held.List(ctx, args[0])
			if err != nil {
				return err
			}
			return g.showHeld(all)
		}),
	}
}

func (g *Group) heldReleaseCommand() *cobra.Command {
	var again bool
	cmd := &cobra.Command{
		Use: "release SBX [ID]", Short: "Send one held request, or all that wait", Args: cobra.RangeArgs(1, 2), ValidArgsFunction: g.completeHeld,
		Long: "Send one held request, or all that wait in the order in which they came, and wait for the answers. The program in the sandbox gets the answer if it still waits.\n\n" +
			"With an ID, the exit code is 1 if the request was not sent: the note says why.",
		RunE: g.Connected(func(ctx context.Context, c *client.Client, args []string) error {
			req := api.HeldRelease{Again: again}
			if len(args) > 1 {
				req.ID = args[1]
			}
			if err := req.Valid(); err != nil {
				return err
			}
			all, err := c.Held.Release(ctx, args[0], req)
			if err != nil {
				return err
			}
			if err := g.showHeld(all); err != nil {
				return err
			}
			for _, r := range all {
				if r.ID == req.ID && r.State != api.HeldSent {
					return session.ExitError(1)
				}
			}
			return nil
		}),
	}
	cmd.Flags().BoolVar(&again, "again", false, "with an ID: send the request also if its state is unknown: the server may get it twice")
	return cmd
}

func (g *Group) heldDropCommand() *cobra.Command {
	return &cobra.Command{
		Use: "drop SBX [ID]", Short: "Drop one held request, or all that wait: they are never sent", Args: cobra.RangeArgs(1, 2), ValidArgsFunction: g.completeHeld,
		RunE: g.Connected(func(ctx context.Context, c *client.Client, args []string) error {
			var req api.HeldDrop
			if len(args) > 1 {
				req.ID = args[1]
			}
			all, err := c.Held.Drop(ctx, args[0], req)
			if err != nil {
				return err
			}
			return g.showHeld(all)
		}),
	}
}

// showHeld prints held requests.
func (g *Group) showHeld(all []api.HeldRequest) error {
	return g.Show(all, func(w io.Writer) error {
		rows := make([][]string, 0, len(all))
		for i := range all {
			r := &all[i]
			state := string(r.State)
			if r.Status != 0 {
				state += " " + strconv.Itoa(r.Status)
			}
			rows = append(rows, []string{r.ID, state, r.Method, urlOf(r), console.ByteSize(r.Size), console.Age(r.Created, time.Now()), r.Note})
		}
		return console.Table([]string{"ID", "STATE", "METHOD", "URL", "BODY", "AGE", "NOTE"}, rows)(w)
	})
}

// urlOf returns the URL of a request, without a port that its scheme says.
func urlOf(r *api.HeldRequest) string {
	scheme, usual := "http", uint16(80)
	if r.TLS {
		scheme, usual = "https", 443
	}
	host := r.Name
	if r.Port != usual {
		host = net.JoinHostPort(r.Name, strconv.Itoa(int(r.Port)))
	}
	return scheme + "://" + host + r.Target
}

// completeHeld completes a sandbox, and then its requests that wait.
func (g *Group) completeHeld(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	switch len(args) {
	case 0:
		return g.CompleteSandboxes(cmd, args, prefix)
	case 1:
		return g.Complete(cmd, func(ctx context.Context, c *client.Client) (ids []string, err error) {
			all, err := c.Held.List(ctx, args[0])
			for i := range all {
				if r := &all[i]; r.State == api.HeldWaiting || r.State == api.HeldUnknown {
					ids = append(ids, r.ID+"\t"+console.Printable(r.Method+" "+urlOf(r)))
				}
			}
			return ids, err
		})
	}
	return nil, cobra.ShellCompDirectiveNoFileComp
}
