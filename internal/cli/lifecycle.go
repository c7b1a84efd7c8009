package cli

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"ramet.dev/ramet/internal/client"
	"ramet.dev/ramet/internal/sandbox"
)

// lifecycleOptions say when a sandbox ends or rests by itself.
type lifecycleOptions struct {
	cmd       *cobra.Command
	ttl, idle time.Duration
	action    string
	autoWake  bool
}

func (o *lifecycleOptions) flags(cmd *cobra.Command) {
	o.cmd = cmd
	f := cmd.Flags()
	f.DurationVar(&o.ttl, "ttl", 0, "destroy it so long from now, such as 30m; 0 is never")
	f.DurationVar(&o.idle, "idle-timeout", 0, "let it rest when nobody has used it for so long: no command, cell, access to files, traffic of ports or input; 0 is never")
	f.StringVar(&o.action, "idle-action", "", "what that is: hibernate (to disk; the default), pause (in memory) or destroy")
	f.BoolVar(&o.autoWake, "auto-wake", true, "whether a request that needs it running wakes it then")
}

// request returns what was asked for, nil if nothing was.
func (o *lifecycleOptions) request() (*sandbox.LifecycleRequest, error) {
	r := &sandbox.LifecycleRequest{IdleAction: sandbox.IdleAction(o.action)}
	asked := o.action != ""
	for _, d := range []struct {
		option string
		value  time.Duration
		field  **int64
	}{{"ttl", o.ttl, &r.TTLMS}, {"idle-timeout", o.idle, &r.IdleTimeoutMS}} {
		if !o.cmd.Flags().Changed(d.option) {
			continue
		}
		ms, err := timeoutMS(d.option, d.value)
		if err != nil {
			return nil, err
		}
		*d.field, asked = &ms, true
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
	cmd := &cobra.Command{
		Use:   "update SBX [--ttl DURATION] [--idle-timeout DURATION] [--idle-action ACTION] [--auto-wake=false]",
		Short: "Change when a sandbox ends or rests by itself", Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeFirst(a.completeSandboxes),
		RunE: a.connected(func(ctx context.Context, c *client.Client, args []string) error {
			change, err := life.request()
			if err != nil {
				return err
			}
			if change == nil {
				return sandbox.Invalid("lifecycle", "nothing is to be changed: say --ttl, --idle-timeout, --idle-action or --auto-wake")
			}
			sb, err := c.Update(ctx, args[0], sandbox.UpdateRequest{Lifecycle: change})
			if err != nil {
				return err
			}
			return a.show(sb, line(sb.ID+"  "+lifecycle(sb.Lifecycle)))
		}),
	}
	life.flags(cmd)
	return cmd
}

func (a *app) hibernateCommand() *cobra.Command {
	return a.oneSandbox("hibernate SBX", "Put a sandbox on disk; the next request that needs it wakes it", (*client.Client).Hibernate)
}

func (a *app) wakeCommand() *cobra.Command {
	return a.oneSandbox("wake SBX", "Let a hibernated sandbox run again", (*client.Client).Wake)
}

// lifecycle describes when a sandbox ends or rests by itself.
func lifecycle(l *sandbox.Lifecycle) string {
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
	if len(parts) == 0 {
		return "without end"
	}
	return strings.Join(parts, ", ")
}
