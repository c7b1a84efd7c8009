package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/client"
)

// lifecycleOptions say when a sandbox ends or rests by itself.
type lifecycleOptions struct {
	cmd       *cobra.Command
	ttl, idle time.Duration
	action    string
	autoWake  bool
	keep      int
	maxAge    time.Duration
}

func (o *lifecycleOptions) flags(cmd *cobra.Command) {
	o.cmd = cmd
	f := cmd.Flags()
	durationVar(f, &o.ttl, "ttl", "destroy it so long from now, such as 30m; 0 is never")
	durationVar(f, &o.idle, "idle-timeout", "let it rest when nobody has used it for so long: no command, cell, access to files, traffic of ports or input; 0 is never")
	f.StringVar(&o.action, "idle-action", "", "what that is: hibernate (to disk; the default), pause (in memory) or destroy")
	completeValues(cmd, "idle-action", "hibernate", "pause", "destroy")
	f.IntVar(&o.keep, "keep-snapshots", 0, "how many snapshots without a name its tree keeps, the latest; 0 is all")
	durationVar(f, &o.maxAge, "snapshot-max-age", "how long its snapshots without a name are kept, such as 48h; 0 is without end")
	f.BoolVar(&o.autoWake, "auto-wake", true, "whether a request that needs it running wakes it then")
}

// request returns what was asked for, nil if nothing was.
func (o *lifecycleOptions) request() (*api.LifecycleRequest, error) {
	r := &api.LifecycleRequest{IdleAction: api.IdleAction(o.action)}
	asked := o.action != ""
	for _, d := range []struct {
		option string
		value  time.Duration
		field  **int64
	}{{"ttl", o.ttl, &r.TTLMS}, {"idle-timeout", o.idle, &r.IdleTimeoutMS}, {"snapshot-max-age", o.maxAge, &r.SnapshotMaxAgeMS}} {
		if !o.cmd.Flags().Changed(d.option) { // 0 is not the same as nothing
			continue
		}
		ms, err := timeoutMS(d.option, d.value)
		if err != nil {
			return nil, err
		}
		*d.field, asked = &ms, true
	}
	if o.cmd.Flags().Changed("keep-snapshots") {
		r.KeepSnapshots, asked = &o.keep, true
	}
	if o.cmd.Flags().Changed("auto-wake") {
		r.AutoWake, asked = &o.autoWake, true
	}
	if !asked {
		return nil, nil
	}
	return r, r.Valid()
}

func (a *app) updateCommand() *cobra.Command {
	var life lifecycleOptions
	var quiet bool
	cmd := &cobra.Command{
		Use:   "update SBX",
		Short: "Change when a sandbox ends or rests by itself", Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeFirst(a.completeSandboxes),
		RunE: a.connected(func(ctx context.Context, c *client.Client, args []string) error {
			change, err := life.request()
			if err != nil {
				return err
			}
			if change == nil {
				return api.Errorf(api.CodeInvalid, "nothing is to be changed: say --ttl, --idle-timeout, --idle-action, --auto-wake, --keep-snapshots or --snapshot-max-age")
			}
			sb, err := c.Sandboxes.Update(ctx, args[0], api.UpdateRequest{Lifecycle: change})
			if err != nil {
				return err
			}
			return a.showIDs(sb, quiet, []string{sb.ID}, line(sb.ID+"  "+lifecycle(sb.Lifecycle)))
		}),
	}
	life.flags(cmd)
	quietVar(cmd.Flags(), &quiet)
	return cmd
}

func (a *app) hibernateCommand() *cobra.Command {
	return a.oneSandbox("hibernate SBX", "Put a sandbox on disk until it is needed again", (*client.Sandboxes).Hibernate)
}

func (a *app) wakeCommand() *cobra.Command {
	return a.oneSandbox("wake SBX", "Let a hibernated sandbox run again", (*client.Sandboxes).Wake)
}

// lifecycle describes when a sandbox ends or rests by itself.
func lifecycle(l *api.Lifecycle) string {
	if l == nil {
		return ""
	}
	var parts []string
	if at, ok := l.Expiry(); ok {
		parts = append(parts, "destroyed at "+at.Format(time.RFC3339))
	}
	if d := l.IdleTimeout(); d > 0 {
		parts = append(parts, string(l.IdleAction)+" after "+d.String()+" without use")
	}
	if !l.AutoWake {
		parts = append(parts, "woken only by wake and resume")
	}
	if l.KeepSnapshots > 0 {
		parts = append(parts, fmt.Sprintf("its tree keeps %d snapshots without a name", l.KeepSnapshots))
	}
	if l.SnapshotMaxAgeMS > 0 {
		parts = append(parts, "snapshots without a name are kept "+(time.Duration(l.SnapshotMaxAgeMS)*time.Millisecond).String())
	}
	if len(parts) == 0 {
		return "without end"
	}
	return strings.Join(parts, ", ")
}
