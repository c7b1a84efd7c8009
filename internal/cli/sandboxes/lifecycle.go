package sandboxes

import (
	"context"

	"github.com/spf13/cobra"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/client"
	"ramet.dev/ramet/internal/cli/console"
	"ramet.dev/ramet/internal/cli/describe"
	"ramet.dev/ramet/internal/cli/values"
)

// UpdateCommand returns the update command.
func (g *Group) UpdateCommand() *cobra.Command {
	var life values.LifecycleFlags
	var quiet bool
	cmd := &cobra.Command{
		Use:   "update SBX",
		Short: "Change when a sandbox is destroyed, hibernated or paused", Args: cobra.ExactArgs(1), ValidArgsFunction: g.CompleteFirst(g.CompleteSandboxes),
		RunE: g.Connected(func(ctx context.Context, c *client.Client, args []string) error {
			change, err := life.Request()
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
			return g.ShowIDs(sb, quiet, []string{sb.ID}, console.Line(sb.ID+"  "+describe.Lifecycle(sb.Lifecycle)))
		}),
	}
	life.Flags(cmd)
	values.QuietVar(cmd.Flags(), &quiet)
	return cmd
}

// HibernateCommand returns the hibernate command.
func (g *Group) HibernateCommand() *cobra.Command {
	return g.OneSandbox("hibernate SBX", "Write a sandbox to disk and free its memory until it is used", (*client.Sandboxes).Hibernate)
}

// WakeCommand returns the wake command.
func (g *Group) WakeCommand() *cobra.Command {
	return g.OneSandbox("wake SBX", "Resume a hibernated sandbox", (*client.Sandboxes).Wake)
}

// PauseCommand returns the pause command.
func (g *Group) PauseCommand() *cobra.Command {
	return g.OneSandbox("pause SBX", "Stop all processes of a sandbox; its memory stays", (*client.Sandboxes).Pause)
}

// ResumeCommand returns the resume command.
func (g *Group) ResumeCommand() *cobra.Command {
	return g.OneSandbox("resume SBX", "Resume the processes of a paused sandbox", (*client.Sandboxes).Resume)
}
