package service

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/client"
)

// EventsCommand returns the events command.
func (g *Group) EventsCommand() *cobra.Command {
	var req api.EventRequest
	var kinds []string
	cmd := &cobra.Command{
		Use: "events [SBX]", Short: "Show the events of sandboxes",
		Long:              "Show the events of sandboxes, one line each: sequence number, which --since takes, time, kind and sandbox.",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: g.CompleteFirst(g.CompleteSandboxes),
		RunE: g.Connected(func(ctx context.Context, c *client.Client, args []string) error {
			if len(args) == 1 {
				req.Sandbox = args[0]
			}
			for _, k := range kinds {
				req.Kinds = append(req.Kinds, api.EventKind(k))
			}
			return c.Events(ctx, req, g.writeEvent)
		}),
	}
	f := cmd.Flags()
	f.BoolVarP(&req.Follow, "follow", "f", false, "follow new events")
	f.Int64Var(&req.Since, "since", 0, "sequence number of the last event that is known; -1 for new events only")
	f.StringSliceVar(&kinds, "kind", nil, "only events of this kind, such as created or failed; may be repeated")
	return cmd
}

// writeEvent prints one line. Its first word is the sequence number that --since takes.
func (g *Group) writeEvent(e api.Event) error {
	if g.JSON {
		return g.WriteJSON(e)
	}
	if e.Restarted {
		_, err := fmt.Fprintln(g.Err, "ramet: the number to go on from is none of this daemon's, which may have been started anew: here is all it knows")
		return err
	}
	if e.Lost > 0 {
		_, err := fmt.Fprintf(g.Err, "ramet: %d events up to %d are not kept any more\n", e.Lost, e.Seq)
		return err
	}
	_, err := fmt.Fprintln(g.Out, strings.TrimRight(fmt.Sprintf("%d  %s  %-16s  %s  %s", e.Seq, e.Time.UTC().Format(time.RFC3339), e.Kind, e.SandboxID, strings.Join(eventWords(&e), " ")), " "))
	return err
}

// eventWords returns the details of an event.
func eventWords(e *api.Event) (words []string) {
	add := func(key, value string) {
		if value != "" {
			words = append(words, key+"="+value)
		}
	}
	add("name", e.Name)
	add("parent", e.Parent)
	add("snapshot", e.Snapshot)
	add("child", e.Child)
	add("children", strings.Join(e.Children, ","))
	add("from", strings.Join(e.From, ","))
	add("image", e.Image)
	add("context", e.Context)
	if e.Paths > 0 {
		add("paths", fmt.Sprint(e.Paths))
	}
	if e.PID > 0 {
		add("pid", fmt.Sprint(e.PID))
	}
	if e.ExitCode != nil {
		add("exit_code", fmt.Sprint(*e.ExitCode))
	}
	if d := e.Decision; d != nil {
		add("verdict", string(d.Verdict))
		add("protocol", d.Protocol)
		add("method", d.Method)
		add("host", cmp.Or(d.Name, d.Address))
		if d.Port != 0 {
			add("port", fmt.Sprint(d.Port))
		}
		add("rule", fmt.Sprintf("%q", d.Rule))
		if d.Lost > 0 {
			add("more", fmt.Sprint(d.Lost))
		}
	}
	if e.Port != 0 {
		add("port", fmt.Sprint(e.Port))
		add("listen", e.Listen)
	}
	if e.Refused > 0 {
		add("refused", fmt.Sprint(e.Refused))
	}
	if e.Reason != "" {
		add("reason", fmt.Sprintf("%q", e.Reason))
	}
	return words
}
