package session

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/client"
	"ramet.dev/ramet/internal/cli/console"
	"ramet.dev/ramet/internal/cli/describe"
)

// completeTimeout bounds the time that a user waits for a completion.
const completeTimeout = 2 * time.Second

type completion = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective)

// CompleteFirst completes the first argument only.
func (s *Session) CompleteFirst(next completion) completion {
	return func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveDefault
		}
		return next(cmd, args, prefix)
	}
}

// CompleteSandboxes completes ids and names of sandboxes.
func (s *Session) CompleteSandboxes(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return s.Complete(cmd, func(ctx context.Context, c *client.Client) (refs []string, err error) {
		all, err := c.Sandboxes.List(ctx, api.ListFilter{})
		for _, of := range all {
			refs = append(refs, candidate(of.ID, of.Name)...)
		}
		return refs, err
	})
}

// CompleteSnapshots completes ids and names of snapshots.
func (s *Session) CompleteSnapshots(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return s.Complete(cmd, func(ctx context.Context, c *client.Client) (refs []string, err error) {
		all, err := c.Snapshots.List(ctx)
		for _, of := range all {
			refs = append(refs, candidate(of.ID, of.Name)...)
		}
		return refs, err
	})
}

// CompleteBoth completes sandboxes and snapshots.
func (s *Session) CompleteBoth(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	sandboxes, _ := s.CompleteSandboxes(cmd, args, prefix)
	snapshots, directive := s.CompleteSnapshots(cmd, args, prefix)
	return append(sandboxes, snapshots...), directive
}

// CompleteImages completes ids and names of images.
func (s *Session) CompleteImages(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return s.Complete(cmd, func(ctx context.Context, c *client.Client) (refs []string, err error) {
		all, err := c.Images.List(ctx)
		for _, i := range all {
			refs = append(append(refs, i.ID), i.Names...)
		}
		return refs, err
	})
}

// CompleteProcesses completes a sandbox and then up to most processes in it: those whose output is
// kept, or all that run.
func (s *Session) CompleteProcesses(most int, kept bool) completion {
	return func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		switch {
		case len(args) == 0:
			return s.CompleteSandboxes(cmd, args, prefix)
		case len(args) > most:
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return s.Complete(cmd, func(ctx context.Context, c *client.Client) (refs []string, err error) {
			all, err := c.Processes.List(ctx, args[0], kept)
			for _, p := range all {
				if p.Kept != nil || !kept {
					refs = append(refs, strconv.Itoa(p.PID)+"\t"+console.Printable(describe.ShortCommand(p.Command)))
				}
			}
			return refs, err
		})
	}
}

// CompleteTokens completes ids of tokens.
func (s *Session) CompleteTokens(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return s.Complete(cmd, func(ctx context.Context, c *client.Client) (refs []string, err error) {
		all, err := c.Tokens.List(ctx, "")
		for _, t := range all {
			refs = append(refs, t.ID+"\t"+strings.TrimSpace(string(t.Scope)+" "+t.Name))
		}
		return refs, err
	})
}

// CompleteOption completes the values of an option of cmd with next.
func (s *Session) CompleteOption(cmd *cobra.Command, option string, next completion) {
	// An error says that there is no such option.
	_ = cmd.RegisterFlagCompletionFunc(option, next)
}

func candidate(id, name string) []string {
	if name == "" {
		return []string{id}
	}
	return []string{id + "\t" + name, name + "\t" + id}
}

// Complete lists candidates from a running daemon. It never starts one.
func (s *Session) Complete(cmd *cobra.Command, list func(context.Context, *client.Client) ([]string, error)) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(cmd.Context(), completeTimeout)
	defer cancel()
	c, _, err := s.Reach(ctx, false)
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
