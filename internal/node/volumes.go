package node

import (
	"context"
	"slices"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/launch"
	"ramet.dev/ramet/internal/node/volumes"
)

// openVolumes returns the volumes of the node's sandboxes.
func (m *Node) openVolumes(ctx context.Context) (*volumes.Volumes, error) {
	return volumes.Open(ctx, volumes.Config{
		Dir: m.cfg.Paths.Volumes(), Store: m.cfg.Store, Having: shared{m}.having, Log: m.cfg.Log,
		DiskQuota: func(tenant string) int64 {
			all, _ := m.ledger.Quotas(tenant)
			return all.DiskMiB
		},
	})
}

// shared is what sandboxes have of volumes.
type shared struct{ m *Node }

// Serve implements spawn.Volumes.
func (x shared) Serve(s *launch.Sentry, mounts []api.VolumeMount) {
	x.m.volumes.Serve(x.m.chores.Context(), s, mounts)
}

// having returns the ids of the sandboxes that have a volume, in their order.
func (x shared) having(id string) (ids []string) {
	for _, b := range x.m.sandboxes.All() {
		if slices.ContainsFunc(b.View().Volumes, func(m api.VolumeMount) bool { return m.Volume == id }) {
			ids = append(ids, b.ID)
		}
	}
	slices.Sort(ids)
	return ids
}
