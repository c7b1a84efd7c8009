package node

import (
	"context"
	"strings"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/launch"
	"ramet.dev/ramet/internal/node/freezes"
	"ramet.dev/ramet/internal/node/quota"
)

// newAdmission puts the admission together. Room is made by m.room.
func (m *Node) newAdmission() *quota.Admission {
	return quota.NewAdmission(quota.Config{
		Ledger: m.ledger, HostMemory: m.hostMemory, Holdings: m.holdings, Owners: m.owners,
		MakeRoom: func(ctx context.Context) bool { return m.room.Make(ctx) },
	})
}

// newRoom puts together what frees memory.
func (m *Node) newRoom() *quota.Room {
	return quota.NewRoom(quota.RoomConfig{HostMemory: m.hostMemory, Idle: m.idle, After: m.clock.After, Background: m.chore})
}

// mayRun refuses to do anything in a sandbox whose processor time is used up.
func (m *Node) mayRun(b *instance) error {
	b.mu.Lock()
	tenant, tree := b.rec.tenant(), quota.Tree(b.rec.lineage())
	b.mu.Unlock()
	return m.MayRun(tenant, tree)
}

// holdings adds up what a tenant has, or one tree of it, except processor time. It asks
// no sandbox: memory files say themselves how large they are.
func (m *Node) holdings(tenant, tree string) api.Consumption {
	var c api.Consumption
	sizes := map[string]int64{} // of files, by name: what several share counts once
	shared := m.memFiles.Sizes()
	add := func(f *freezes.Freeze) {
		if f == nil {
			return
		}
		for _, name := range f.Generations {
			sizes[name] = shared[name]
		}
	}
	for _, b := range m.all() {
		b.mu.Lock()
		if b.rec.tenant() == tenant && (tree == "" || quota.Tree(b.rec.lineage()) == tree) {
			c.Sandboxes++
			c.Depth = max(c.Depth, int64(b.rec.Sandbox.Depth))
			if s := b.sentry; s != nil {
				sizes[s.Key()], sizes[s.FilesName()] = launch.Allocated(s.Memory()), launch.Allocated(s.Files()) // 0 if they are closed by now
			}
			add(b.freeze)
		}
		b.mu.Unlock()
	}
	const mib = 1 << 20
	for _, s := range m.snapshots.All() {
		rec := s.Record()
		if rec.Tenant() == tenant && (tree == "" || quota.Tree(rec.Ancestors) == tree) {
			c.DiskMiB += float64(rec.Snapshot.SizeBytes) / mib
			if !rec.Snapshot.OnDisk {
				add(s.Frozen())
			}
		}
	}
	for name, bytes := range sizes {
		if strings.Contains(name, "/") {
			c.DiskMiB += float64(bytes) / mib
		} else {
			c.MemoryMiB += float64(bytes) / mib
		}
	}
	return c
}

// owners returns the tenants that have a token, a sandbox or an image.
func (m *Node) owners(ctx context.Context) (map[string]bool, error) {
	owners, err := m.ImageOwners()
	if err != nil {
		return nil, err
	}
	for _, t := range m.cfg.TokenTenants(ctx) {
		owners[t] = true
	}
	for _, b := range m.all() {
		owners[b.Tenant()] = true
	}
	return owners, nil
}

// restAfter is for how long nobody may have used what is put to disk because memory is
// short.
const restAfter = 15 * time.Second

// unused is the idleness of what may be put to disk because memory is short.
func unused(b *instance, now time.Time) bool {
	s := &b.rec.Sandbox
	return s.State == api.StateRunning && b.activity.uses == 0 && !b.activity.resting && b.activity.at.Before(now.Add(-restAfter)) && s.Lifecycle.WakesByItself()
}

// idle returns the sandboxes that may be put to disk because memory is short.
func (m *Node) idle() []quota.Idle {
	var list []quota.Idle
	now := m.clock.Now()
	for _, b := range m.all() {
		b.mu.Lock()
		if b.sentry != nil && unused(b, now) {
			list = append(list, quota.Idle{ID: b.id, UsedAt: b.activity.at, Stubborn: b.activity.stubborn, Sandbox: idleInstance{m, b}})
		}
		b.mu.Unlock()
	}
	return list
}

// idleInstance is a sandbox that nobody uses.
type idleInstance struct {
	m *Node
	b *instance
}

// TryLock implements quota.Idle.
func (i idleInstance) TryLock() bool { return i.b.op.TryLock() }

// Unlock implements quota.Idle.
func (i idleInstance) Unlock() { i.b.op.Unlock() }

// Hibernate implements quota.Idle.
func (i idleInstance) Hibernate(ctx context.Context) bool {
	m, b := i.m, i.b
	switch v, err := m.hibernateLocked(ctx, b, unused); {
	case api.CodeOf(err) == api.CodeCanceled: // it is used again, or room is no longer wanted
	case err != nil:
		i.MarkStubborn()
		m.restFailed(b, api.IdleHibernate, err)
	case v != nil:
		m.log.Info("memory is short: a sandbox was put to disk that nobody used", "id", b.id)
		m.cfg.Audit.AppendAudit(api.AuditEntry{Time: time.Now().UTC(), Tenant: b.Tenant(), Action: "hibernate-for-memory", Object: b.id, Result: "ok"})
		return true
	}
	return false
}

// MarkStubborn implements quota.Idle.
func (i idleInstance) MarkStubborn() {
	b := i.b
	b.mu.Lock()
	defer b.mu.Unlock()
	b.activity.stubborn = true
}
