package compare

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"ramet.dev/ramet/api"
)

// processes compares the processes of two running sandboxes.
func (c *Comparer) processes(ctx context.Context, fromRef, toRef string) ([]api.ProcessChange, error) {
	from, err := c.processesOf(ctx, fromRef)
	if err != nil {
		return nil, err
	}
	to, err := c.processesOf(ctx, toRef)
	if err != nil {
		return nil, err
	}
	return compareProcesses(from, to), nil
}

// processesOf lists the processes of a running sandbox.
func (c *Comparer) processesOf(ctx context.Context, ref string) ([]api.Process, error) {
	list, err := c.cfg.Guests.Processes(ctx, ref, false)
	if api.CodeOf(err) == api.CodeNotFound {
		return nil, api.Invalid("processes", "%q is not a running sandbox: only those have processes", ref)
	}
	if err != nil {
		return nil, fmt.Errorf("processes of %s: %w", ref, err)
	}
	return list, nil
}

// processKey identifies a process in a sandbox and its forks: ids alone are used again.
type processKey struct {
	pid     int
	started time.Time
}

// compareProcesses returns the differences, sorted by process id. A process that is on
// both sides differs if its command does, because it has executed another program. Its
// state and its use of resources change by themselves and are no difference.
func compareProcesses(from, to []api.Process) []api.ProcessChange {
	before := map[processKey]api.Process{}
	for _, p := range from {
		before[processKey{p.PID, p.StartedAt.UTC()}] = p
	}
	changes := []api.ProcessChange{}
	add := func(kind api.ChangeKind, p api.Process, old string) {
		changes = append(changes, api.ProcessChange{PID: p.PID, PPID: p.PPID, UID: p.UID, Kind: kind, Command: p.Command, OldCommand: old})
	}
	for _, p := range to {
		key := processKey{p.PID, p.StartedAt.UTC()}
		old, both := before[key]
		delete(before, key)
		switch {
		case !both:
			add(api.Added, p, "")
		case old.Command != p.Command:
			add(api.Modified, p, old.Command)
		}
	}
	for _, p := range before {
		add(api.Deleted, p, "")
	}
	slices.SortFunc(changes, func(a, b api.ProcessChange) int {
		return cmp.Or(cmp.Compare(a.PID, b.PID), cmp.Compare(b.Kind, a.Kind)) // deleted before added
	})
	return changes
}
