package node

import (
	"context"
	"slices"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/launch"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/node/freezes"
)

// freezeInstance freezes a running sandbox, or one that is to rest from then on and may be
// paused. The caller holds b.op and owns a reference on the result.
func (m *Node) freezeInstance(ctx context.Context, b *instance, rest bool) (*freezes.Freeze, *wire.Frozen, error) {
	states := []api.State{api.StateRunning, api.StatePaused}
	if !rest {
		states = states[:1]
	}
	sentry, err := b.running(states...)
	if err != nil {
		return nil, nil, err
	}
	if err := m.canFreeze(b); err != nil {
		return nil, nil, err
	}
	f, frozen, err := m.freezes.Freeze(ctx, sentry, m.holdOrigin(b), rest)
	if err != nil {
		return nil, nil, err
	}
	m.metric(MetricPause, frozen.PauseMS)
	return f, frozen, nil
}

// holdOrigin returns the freeze that b was made from, if any. The caller owns a
// reference: should b end in the middle of being frozen, the pages it inherited
// must stay as they are.
func (m *Node) holdOrigin(b *instance) *freezes.Freeze {
	b.mu.Lock()
	defer b.mu.Unlock()
	m.freezes.Hold(b.freeze, 1)
	return b.freeze
}

// freezeShared is freezeInstance, perhaps together with other forks. The caller holds b.op
// and owns a reference on the result.
func (m *Node) freezeShared(ctx context.Context, b *instance) (*freezes.Freeze, *wire.Frozen, error) {
	return b.freezeGroup.Freeze(ctx, m.freezes, errDefect, func(ctx context.Context) (*freezes.Freeze, *wire.Frozen, error) {
		return m.freezeInstance(ctx, b, false)
	})
}

// callTimeout bounds calls that freeze, stop or clean up: a sentry that hangs must not
// keep its sandbox from being destroyed, nor others waiting. What it did not give back
// goes when it ends.
const callTimeout = 30 * time.Second

// inUse reports whether a sandbox runs in s. One that was removed or replaced is
// about to end, if it has not, and all its memory goes with it.
func (m *Node) inUse(s *launch.Sentry) bool {
	select {
	case <-s.Done():
		return false
	default:
	}
	return slices.ContainsFunc(m.all(), func(b *instance) bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.sentry == s
	})
}
