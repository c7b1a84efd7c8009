package node

import (
	"context"
	"os"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/launch"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/node/compare"
	"ramet.dev/ramet/internal/node/dataplane"
	"ramet.dev/ramet/internal/node/fsview"
	"ramet.dev/ramet/internal/node/meter"
	"ramet.dev/ramet/internal/node/sandboxes"
)

// newComparer puts the comparer together.
func (m *Node) newComparer() *compare.Comparer {
	return compare.New(compare.Config{
		NewFile: func() (*os.File, error) { return launch.NewPageFile(m.cfg.Paths.Files()) },
		View:    m.views.Open, MergeBase: m.views.MergeBase, Guests: guests{m.plane, m.sandboxes}, Turn: m.heavyTurn, Observe: m.meter.Observe,
		Target: func(ctx context.Context, ref string) (compare.Target, error) {
			b, err := m.sandboxes.Find(ctx, ref)
			if err != nil {
				return nil, err
			}
			return &mergeTarget{m, b}, nil
		},
		MergePaused: func(ms float64) { m.meter.Millis(meter.MergePause, ms) },
	})
}

// guests is what comparisons ask running sandboxes.
type guests struct {
	*dataplane.Plane
	sandboxes *sandboxes.Registry
}

// Contexts implements compare.Guests. It refuses a sandbox that is paused, because its
// interpreters cannot describe their variables.
func (g guests) Contexts(ctx context.Context, ref string) ([]api.Context, error) {
	list, err := g.Plane.Contexts(ctx, ref)
	if err != nil {
		return nil, err
	}
	b, err := g.sandboxes.Find(ctx, ref)
	if err != nil {
		return nil, err
	}
	_, err = b.Running(api.StateRunning)
	return list, err
}

// mergeTarget is a sandbox that is merged into.
type mergeTarget struct {
	m *Node
	b *sandboxes.Instance
}

// ID implements compare.Target.
func (t *mergeTarget) ID() string { return t.b.ID }

// Hold implements compare.Target.
func (t *mergeTarget) Hold(ctx context.Context) (release func(), err error) {
	_, done, err := t.m.rester.Use(ctx, t.b, api.StateRunning, api.StatePaused)
	if err != nil {
		return nil, err
	}
	t.b.Op.RLock()
	return func() {
		t.b.Op.RUnlock()
		done()
	}, nil
}

// View implements compare.Target.
func (t *mergeTarget) View(ctx context.Context) (*fsview.View, error) {
	return t.m.views.OfSandbox(ctx, t.b)
}

// Patch implements compare.Target.
func (t *mergeTarget) Patch(ctx context.Context, patch *wire.Patch, file *os.File) (*wire.Patched, error) {
	sentry, err := t.b.Running(api.StateRunning, api.StatePaused)
	if err != nil {
		return nil, err
	}
	var patched wire.Patched
	if _, err := sentry.Call(ctx, &wire.Call{Op: wire.OpPatch, Patch: patch}, &patched, file); err != nil {
		return nil, t.m.sandboxes.Explain(t.b, sentry, err)
	}
	return &patched, nil
}

// Merged implements compare.Target.
func (t *mergeTarget) Merged(from []string, paths int) {
	t.m.sandboxes.Events.Publish(api.EventMerged, t.b, api.Event{From: from, Paths: paths})
}
