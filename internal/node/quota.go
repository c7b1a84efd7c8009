package node

import (
	"context"
	"time"

	"ramet.dev/ramet/internal/node/networks"
	"ramet.dev/ramet/internal/node/quota"
	"ramet.dev/ramet/internal/observe/procfs"
	"ramet.dev/ramet/internal/service/access"
)

// Operations under way at once. Heavy ones keep lists of what changed in the daemon's
// memory, and take a processor each; archives have buffers only. Each takes as long as its
// client does to read it.
const (
	heavyPerTenant    = 4
	heavyAtOnce       = 8
	archivesPerTenant = 16
	archivesAtOnce    = 64
	// turnTimeout is how long one waits for its turn.
	turnTimeout = 30 * time.Second
)

// heavyTurn waits until a heavy operation of the caller may begin.
func (m *Node) heavyTurn(ctx context.Context) (done func(), err error) {
	return m.heavy.Take(ctx, access.From(ctx).Tenant)
}

func newHeavyTurns() *quota.Turns {
	return quota.NewTurns("exports, commits, comparisons and merges", heavyPerTenant, heavyAtOnce, turnTimeout)
}

func newArchiveTurns() *quota.Turns {
	return quota.NewTurns("archives", archivesPerTenant, archivesAtOnce, turnTimeout)
}

// newAdmission puts the admission together. Room is made by m.room.
func (m *Node) newAdmission() *quota.Admission {
	return quota.NewAdmission(quota.Config{
		Ledger: m.ledger, HostMemory: m.cfg.HostMemory, Holdings: m.books.Holdings, Owners: m.owners, Networks: networks.NewTenants(m.networks),
		MakeRoom: func(ctx context.Context) bool { return m.room.Make(ctx) },
	})
}

// readHostMemory is the quota.HostMemory of this machine.
func readHostMemory() (free, total int64, err error) {
	m, err := procfs.ReadMemory()
	return m.Available, m.Total, err
}

// owners returns the tenants that have a token, a sandbox or an image.
func (m *Node) owners(ctx context.Context) (map[string]bool, error) {
	owners, err := m.images.ImageOwners()
	if err != nil {
		return nil, err
	}
	for _, t := range m.cfg.TokenTenants(ctx) {
		owners[t] = true
	}
	for _, b := range m.sandboxes.All() {
		owners[b.Tenant()] = true
	}
	return owners, nil
}
