package service

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/client"
	"ramet.dev/ramet/internal/cli/console"
	"ramet.dev/ramet/internal/cli/session"
)

// AuditCommand returns the audit command.
func (g *Group) AuditCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "audit", Short: "Show who did what, and verify the audit log", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(g.auditLsCommand(), g.auditVerifyCommand())
	return cmd
}

func (g *Group) auditLsCommand() *cobra.Command {
	var since int64
	cmd := &cobra.Command{
		Use: "ls", Short: "List the entries of the audit log, the oldest first", Args: cobra.NoArgs,
		RunE: g.Connected(func(ctx context.Context, c *client.Client, _ []string) error {
			var rows [][]string
			err := c.Audit.Entries(ctx, since, func(e api.AuditEntry) error {
				if g.JSON {
					return g.WriteJSON(e)
				}
				rows = append(rows, []string{strconv.FormatInt(e.Seq, 10), e.Time.Format(time.RFC3339), actor(e), e.Action, e.Object, e.Result, detailsText(e.Details)})
				return nil
			})
			if err != nil || g.JSON {
				return err
			}
			return g.Show(nil, console.Table([]string{"SEQ", "TIME", "WHO", "ACTION", "OBJECT", "RESULT", "DETAILS"}, rows))
		}),
	}
	cmd.Flags().Int64Var(&since, "since", 0, "sequence number of the last entry that is known")
	return cmd
}

// actor names the user, the token or the daemon that caused an entry.
func actor(e api.AuditEntry) string {
	switch {
	case e.By != "":
		return e.By
	case e.Token != "":
		return e.Tenant + "/" + e.Token
	case e.UID != nil:
		return "uid " + strconv.FormatUint(uint64(*e.UID), 10)
	}
	return "daemon"
}

func detailsText(d *api.AuditDetails) string {
	if d == nil {
		return ""
	}
	var words []string
	add := func(name, value string) {
		if value != "" && value != "0" {
			words = append(words, name+"="+value)
		}
	}
	add("parent", d.Parent)
	add("children", strings.Join(d.Children, ","))
	add("failed", strconv.Itoa(d.Failed))
	add("snapshot", d.Snapshot)
	add("image", d.Image)
	add("token", d.Token)
	add("from", strings.Join(d.From, ","))
	add("changes", strconv.Itoa(d.Changes))
	add("conflicts", strconv.Itoa(d.Conflicts))
	add("missing", d.Missing)
	return strings.Join(words, " ")
}

func (g *Group) auditVerifyCommand() *cobra.Command {
	var head string
	cmd := &cobra.Command{
		Use: "verify", Short: "Find entries that were changed, removed or moved", Args: cobra.NoArgs,
		Long: "Find entries of the audit log that were changed, removed or moved. The exit code is 1 if there are any.\n\n" +
			"A user who can write to the data directory can rewrite the whole log. Keep the head that this command prints in another place: with --head, the command checks that the log still has it.",
		RunE: g.Connected(func(ctx context.Context, c *client.Client, _ []string) error {
			r, err := c.Audit.Verify(ctx, head)
			if err != nil {
				return err
			}
			err = g.Show(r, func(w io.Writer) error {
				for _, f := range r.Faults {
					at := f.File
					if f.Line > 0 {
						at += ":" + strconv.Itoa(f.Line)
					}
					if _, err := fmt.Fprintln(w, console.Printable(at+": "+f.Detail)); err != nil {
						return err
					}
				}
				_, err := fmt.Fprintf(w, "%d lines in %d files, from number %d, %d faults\nhead %s\n", r.Entries, r.Files, r.First, len(r.Faults), r.Head)
				return err
			})
			if err == nil && !r.OK {
				return session.ExitError(1)
			}
			return err
		}),
	}
	cmd.Flags().StringVar(&head, "head", "", "head that an earlier verification printed")
	return cmd
}
