package cli

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/client"
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
		all, err := c.Sandboxes.List(ctx, api.ListFilter{})
		for _, s := range all {
			refs = append(refs, candidate(s.ID, s.Name)...)
		}
		return refs, err
	})
}

func (a *app) completeSnapshots(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return a.complete(cmd, func(ctx context.Context, c *client.Client) (refs []string, err error) {
		all, err := c.Snapshots.List(ctx)
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
		all, err := c.Images.List(ctx)
		for _, i := range all {
			refs = append(append(refs, i.ID), i.Names...)
		}
		return refs, err
	})
}

// completePlaces completes the sandboxes that cp copies from or to. Paths here are
// the shell's, where there may be one.
func (a *app) completePlaces(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 1 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	directive := cobra.ShellCompDirectiveNoSpace
	if len(args) == 1 {
		if src, err := parsePlace(args[0]); err != nil || src.ref != "" {
			return nil, cobra.ShellCompDirectiveDefault
		}
		directive |= cobra.ShellCompDirectiveNoFileComp
	}
	refs, _ := a.completeSandboxes(cmd, nil, prefix)
	for i, ref := range refs {
		ref, about, _ := strings.Cut(ref, "\t")
		refs[i] = ref + ":/\t" + about
	}
	return refs, directive
}

// completeProcesses completes a sandbox, and then as many processes in it as there
// may be: those whose output is kept, or those that run.
func (a *app) completeProcesses(most int, kept bool) completion {
	return func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		switch {
		case len(args) == 0:
			return a.completeSandboxes(cmd, args, prefix)
		case len(args) > most:
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return a.complete(cmd, func(ctx context.Context, c *client.Client) (refs []string, err error) {
			all, err := c.Processes.List(ctx, args[0], kept)
			for _, p := range all {
				if p.Kept != nil || !kept {
					refs = append(refs, strconv.Itoa(p.PID)+"\t"+printable(shortCommand(p.Command)))
				}
			}
			return refs, err
		})
	}
}

func (a *app) completeTokens(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return a.complete(cmd, func(ctx context.Context, c *client.Client) (refs []string, err error) {
		all, err := c.Tokens.List(ctx, "")
		for _, t := range all {
			refs = append(refs, t.ID+"\t"+strings.TrimSpace(string(t.Scope)+" "+t.Name))
		}
		return refs, err
	})
}

// completeValues completes the values of an option of cmd.
func completeValues(cmd *cobra.Command, option string, values ...string) {
	// An error says that there is no such option.
	_ = cmd.RegisterFlagCompletionFunc(option, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

// completeStates completes the option of the state of a sandbox.
func completeStates(cmd *cobra.Command) {
	completeValues(cmd, "state", string(api.StateCreating), string(api.StateRunning), string(api.StatePaused), string(api.StateHibernated), string(api.StateFailed))
}

// completeOption completes what an option of cmd names.
func (a *app) completeOption(cmd *cobra.Command, option string, next completion) {
	// An error says that there is no such option.
	_ = cmd.RegisterFlagCompletionFunc(option, next)
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
