package node

import (
	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/launch"
)

// Usage counts what there is. It asks no sandbox.
func (m *Node) Usage() api.Usage {
	u := api.Usage{Sandboxes: map[api.State]int{}, Snapshots: m.snapshots.Count(), PoolReady: m.pool.Ready()}
	own := map[string]int64{} // memory files, by name
	for _, b := range m.sandboxes.All() {
		u.Sandboxes[b.View().State]++
		if s := b.Sentry(); s != nil {
			own[s.Key()] = launch.Allocated(s.Memory()) // 0 if it is closed by now
		}
	}
	u.Pins = m.freezes.Pinned()
	shared := m.memFiles.MemorySizes()
	for name, bytes := range shared {
		u.SharedBytes += bytes
		delete(own, name)
	}
	for _, bytes := range own {
		u.PrivateBytes += bytes
	}
	u.Gateway, u.GatewayRestarts = m.networks.Usage()
	u.Published = m.publisher.Usage()
	return u
}
