package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"ramet.dev/ramet/internal/client"
	"ramet.dev/ramet/internal/sandbox"
)

// completeTimeout is how long a person waits for a completion.
const completeTimeout = 2 * time.Second

type completion = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective)

// completeFirst completes the first argument only.
func (a *app) completeFirst(next completion) completion {
	return func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveDefault
		}
		return next(cmd, args, prefix)
	}
}

func (a *app) completeSandboxes(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return a.complete(cmd, func(ctx context.Context, c *client.Client) (refs []string, err error) {
		all, err := c.List(ctx, sandbox.ListFilter{})
		for _, s := range all {
			refs = append(refs, candidate(s.ID, s.Name)...)
		}
		return refs, err
	})
}

func (a *app) completeSnapshots(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return a.complete(cmd, func(ctx context.Context, c *client.Client) (refs []string, err error) {
		all, err := c.Snapshots(ctx)
		for _, s := range all {
			refs = append(refs, candidate(s.ID, s.Name)...)
		}
		return refs, err
	})
}

// completeBoth completes sandboxes and snapshots.
func (a *app) completeBoth(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	sandboxes, _ := a.completeSandboxes(cmd, args, prefix)
	snapshots, directive := a.completeSnapshots(cmd, args, prefix)
	return append(sandboxes, snapshots...), directive
}

func (a *app) completeImages(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return a.complete(cmd, func(ctx context.Context, c *client.Client) (refs []string, err error) {
		all, err := c.Images(ctx)
		for _, i := range all {
			refs = append(append(refs, i.ID), i.Names...)
		}
		return refs, err
	})
}

func candidate(id, name string) []string {
	if name == "" {
		return []string{id}
	}
	return []string{id + "\t" + name, name + "\t" + id}
}

// complete asks the daemon that is running; a completion starts none.
func (a *app) complete(cmd *cobra.Command, list func(context.Context, *client.Client) ([]string, error)) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(cmd.Context(), completeTimeout)
	defer cancel()
	c, _, err := a.reach(ctx, false)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer c.Close()
	refs, err := list(ctx, c)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return refs, cobra.ShellCompDirectiveNoFileComp
}
