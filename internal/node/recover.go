package node

import (
	"context"
	"fmt"

	"ramet.dev/ramet/internal/node/resting"
	"ramet.dev/ramet/internal/node/sandboxes"
	"ramet.dev/ramet/internal/storage/store"
)

// recover finds the sandboxes and snapshots of an earlier daemon, and collects
// what it left half made. It returns the sandboxes that run, to be watched.
func (m *Node) recover(ctx context.Context) (*sandboxes.Recovery, error) {
	frozen, err := m.freezes.Recover(ctx)
	if err != nil {
		return nil, fmt.Errorf("recover: %w", err)
	}
	found, err := m.sandboxes.Recover(ctx, sandboxes.RecoveryConfig{Launcher: m.launcher, Freezes: frozen, MemFiles: m.memFiles, BootID: m.cfg.BootID})
	if err != nil {
		return nil, fmt.Errorf("recover: %w", err)
	}
	changes := frozen.ReleasePins(ctx) // what the old daemon pinned and nobody needs
	for _, read := range []func() ([]store.Change, error){
		func() ([]store.Change, error) { return m.snapshots.Recover(ctx) },
		func() ([]store.Change, error) { found.FailUnusable(m.snapshots.Usable); return nil, nil },
		func() ([]store.Change, error) {
			return resting.ReadActivity(ctx, m.cfg.Store, m.sandboxes, m.cfg.Clock.Now())
		},
		func() ([]store.Change, error) { return nil, found.ReadTimelines() },
		func() ([]store.Change, error) { return m.remains.ReadNames(ctx) },
		func() ([]store.Change, error) { return m.remains.ReadBudgets(ctx) },
	} {
		more, err := read()
		if err != nil {
			return nil, fmt.Errorf("recover: %w", err)
		}
		changes = append(changes, more...)
	}
	if err := m.sweep(ctx, frozen.IsAdopted); err != nil {
		return nil, fmt.Errorf("recover: %w", err)
	}
	return found, m.cfg.Store.Apply(ctx, append(found.Changes, changes...)...)
}

// sweep ends sentries and removes files that belong to nothing.
func (m *Node) sweep(ctx context.Context, keep func(key string) bool) error {
	if err := m.launcher.Sweep(ctx, keep); err != nil {
		m.cfg.Log.Warn("end sentries that nobody needs", "error", err)
	}
	if m.cgroups != nil {
		if _, err := m.cgroups.Sweep(ctx, keep); err != nil {
			m.cfg.Log.Warn("collect control groups", "error", err)
		}
	}
	if err := m.keepEngines(); err != nil {
		m.cfg.Log.Warn("remove engines that nothing needs", "error", err)
	}
	return m.snapshots.Sweep()
}
