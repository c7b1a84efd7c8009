package node

import (
	"context"
	"os"

	"ramet.dev/ramet/internal/engine/launch"
	"ramet.dev/ramet/internal/node/sandboxes"
	"ramet.dev/ramet/internal/storage/store"
)

// listener does what becomes of sandboxes brings about in the other parts of the node.
type listener struct{ m *Node }

// Began implements sandboxes.Listener.
func (l listener) Began(b *sandboxes.Instance, s *launch.Sentry, channel *os.File) {
	l.m.networks.Began(b, s, channel)
	if b.Record().Control != nil {
		l.m.selfControl.Serve(l.m.chores.Context(), s)
	}
	shared(l).Serve(s, b.View().Volumes)
	l.m.timers.Arm(b)
}

// Ending implements sandboxes.Listener.
func (l listener) Ending(b *sandboxes.Instance, s *launch.Sentry) {
	l.m.books.Book(b, s)
	l.m.networks.Ended(b, s)
}

// Failed implements sandboxes.Listener.
func (l listener) Failed(b *sandboxes.Instance, s *launch.Sentry) { l.m.networks.Ended(b, s) }

// Replaced implements sandboxes.Listener.
func (l listener) Replaced() { l.m.snapshots.Collect() }

// Removing implements sandboxes.Listener.
func (l listener) Removing(b *sandboxes.Instance) []store.Change {
	l.m.timers.Clear(b)
	return append(l.m.remains.SandboxGone(b), l.m.publisher.Remove(b.ID))
}

// Removed implements sandboxes.Listener.
func (l listener) Removed(b *sandboxes.Instance) {
	l.m.remains.DropBudget(b.Record().Control)
	l.m.networks.Removed(b)
	l.m.snapshots.Collect()
	l.endExplorations(b)
}

// endExplorations ends the explorations of a sandbox that is gone. There are none while the node
// still opens: those of an earlier daemon are ended afterwards.
func (l listener) endExplorations(b *sandboxes.Instance) {
	if l.m.explorer != nil {
		l.m.explorer.SandboxGone(b.ID)
	}
}

// Forgotten implements sandboxes.Listener.
func (l listener) Forgotten(b *sandboxes.Instance) {
	// A record that stays is dropped by the next daemon.
	if err := l.m.cfg.Store.Apply(context.Background(), l.m.publisher.Remove(b.ID)); err != nil {
		l.m.cfg.Log.Error("forget the published ports of a promoted sandbox", "id", b.ID, "error", err)
	}
	l.endExplorations(b)
}
