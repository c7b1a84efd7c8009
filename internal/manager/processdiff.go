package manager

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"ramet.dev/ramet/internal/sandbox"
)

// processChanges compares the processes of two running sandboxes.
func (m *Manager) processChanges(ctx context.Context, fromRef, toRef string) ([]sandbox.ProcessChange, error) {
	from, err := m.processesOf(ctx, fromRef)
	if err != nil {
		return nil, err
	}
	to, err := m.processesOf(ctx, toRef)
	if err != nil {
		return nil, err
	}
	return compareProcesses(from, to), nil
}

// processesOf lists the processes of what has some.
func (m *Manager) processesOf(ctx context.Context, ref string) ([]sandbox.Process, error) {
	list, err := m.Processes(ctx, ref, false)
	if sandbox.CodeOf(err) == sandbox.CodeNotFound {
		return nil, sandbox.Invalid("processes", "%q is not a running sandbox: only those have processes", ref)
	}
	if err != nil {
		return nil, fmt.Errorf("processes of %s: %w", ref, err)
	}
	return list, nil
}

// processKey is what two copies of a process have in common, and two others of
// one id have not.
type processKey struct {
	pid     int
	started time.Time
}

// compareProcesses returns what differs, by process id. Of one that is in both, the
// command may differ: it has executed another program. What changes by itself, such
// as its state and what it uses, is no difference.
func compareProcesses(from, to []sandbox.Process) []sandbox.ProcessChange {
	before := map[processKey]sandbox.Process{}
	for _, p := range from {
		before[processKey{p.PID, p.StartedAt.UTC()}] = p
	}
	changes := []sandbox.ProcessChange{}
	add := func(kind sandbox.ChangeKind, p sandbox.Process, old string) {
		changes = append(changes, sandbox.ProcessChange{PID: p.PID, PPID: p.PPID, UID: p.UID, Kind: kind, Command: p.Command, OldCommand: old})
	}
	for _, p := range to {
		key := processKey{p.PID, p.StartedAt.UTC()}
		old, both := before[key]
		delete(before, key)
		switch {
		case !both:
			add(sandbox.Added, p, "")
		case old.Command != p.Command:
			add(sandbox.Modified, p, old.Command)
		}
	}
	for _, p := range before {
		add(sandbox.Deleted, p, "")
	}
	slices.SortFunc(changes, func(a, b sandbox.ProcessChange) int {
		return cmp.Or(cmp.Compare(a.PID, b.PID), cmp.Compare(b.Kind, a.Kind)) // deleted before added
	})
	return changes
}
