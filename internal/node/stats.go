package node

import (
	"context"
	"fmt"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/launch"
	"ramet.dev/ramet/internal/engine/wire"
)

// Stats returns what a sandbox uses.
func (m *Node) Stats(ctx context.Context, ref string) (*api.Stats, error) {
	b, err := m.resolve(ctx, ref)
	if err != nil {
		return nil, err
	}
	if st := m.statsAtRest(b); st != nil {
		return st, nil
	}
	return m.stats(ctx, b)
}

// statsAtRest returns what a sandbox uses to which no process on the host belongs,
// or nil of all others.
func (m *Node) statsAtRest(b *instance) *api.Stats {
	b.mu.Lock()
	rec := b.rec
	b.mu.Unlock()
	st := &api.Stats{State: rec.Sandbox.State, Disk: api.Disk{UsedMiB: rec.DiskMiB, LimitMiB: rec.Sandbox.Limits.DiskMiB}}
	switch st.State {
	case api.StateHibernated:
		if s := m.hibernated(b); s != nil {
			st.Disk.PrivateMiB = float64(s.View().SizeBytes) / (1 << 20)
		}
		return st
	case api.StateCreating:
		return st
	}
	return nil
}

func (m *Node) stats(ctx context.Context, b *instance) (*api.Stats, error) {
	sentry, err := b.running(api.StateRunning, api.StatePaused)
	if err != nil {
		return nil, err
	}
	var info wire.Info
	if _, err := sentry.Call(ctx, &wire.Call{Op: wire.OpInfo}, &info); err != nil {
		return nil, fmt.Errorf("read statistics: %w", m.explain(b, sentry, err))
	}
	cpu, err := sentry.CPU()
	if err != nil {
		return nil, fmt.Errorf("read processor time: %w", m.explain(b, sentry, err))
	}
	st := &api.Stats{State: b.view().State, CPUSeconds: cpu.Seconds(), Processes: info.Processes}
	private, err := launch.PrivateBytes(sentry)
	if err != nil {
		return nil, fmt.Errorf("read memory use: %w", err)
	}
	const mib = 1 << 20
	st.Memory = api.Memory{
		PrivateMiB: float64(private) / mib,
		SharedMiB:  float64(info.SharedBytes) / mib,
	}
	st.Disk = api.Disk{
		UsedMiB:    float64(info.DiskBytes) / mib,
		LimitMiB:   b.view().Limits.DiskMiB,
		PrivateMiB: float64(launch.Allocated(sentry.Files())) / mib,
	}
	return st, nil
}
