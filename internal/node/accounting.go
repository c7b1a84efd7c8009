package node

import (
	"context"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/launch"
	"ramet.dev/ramet/internal/node/quota"
	"ramet.dev/ramet/internal/observe/procfs"
)

const (
	// lookEvery is how often the machine is asked how much processor time each sandbox
	// used, and saveEvery how often what was booked is written down, in looks.
	lookEvery = 3 * time.Second
	saveEvery = 20
)

// readHostMemory is the quota.HostMemory of this machine.
func readHostMemory() (free, total int64, err error) {
	m, err := procfs.ReadMemory()
	return m.Available, m.Total, err
}

// attend looks at what sandboxes use until ctx ends.
func (m *Node) attend(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for looks := 1; ; looks++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		m.bookAll()
		m.stopSpenders()
		if looks%saveEvery == 0 {
			m.saveLedger(ctx)
		}
	}
}

// book books the processor time that a sandbox has used, and returns it. ok is false
// if there is no sentry, or it has ended.
func (m *Node) book(b *instance, s *launch.Sentry) (seconds float64, ok bool) {
	if s == nil {
		return 0, false
	}
	used, err := s.CPU()
	if err != nil {
		return 0, false
	}
	seconds = used.Seconds()
	b.mu.Lock()
	tenant, tree := b.rec.tenant(), quota.Tree(b.rec.lineage())
	b.mu.Unlock()
	m.ledger.Spend(tenant, tree, s.Key(), seconds)
	return seconds, true
}

// bookAll books what all sandboxes have used, and tells what they cost.
func (m *Node) bookAll() {
	asked := 0
	for _, b := range m.all() {
		b.mu.Lock()
		s := b.sentry
		b.mu.Unlock()
		if seconds, ok := m.book(b, s); ok && m.reportCosts(b, s, seconds, asked < mostCosts) {
			asked++
		}
	}
}

// stopSpenders pauses what runs although its processor time is used up. One to which
// something is being done has its turn at another look, and one that does not answer
// is not waited for, so that no tenant keeps the others' from being looked at.
func (m *Node) stopSpenders() {
	for _, b := range m.all() {
		v := b.view()
		if v.State != api.StateRunning {
			continue
		}
		reason := m.mayRun(b)
		if reason == nil {
			continue
		}
		if !b.op.TryLock() {
			continue
		}
		m.chore(func(ctx context.Context) {
			defer b.op.Unlock()
			if err := m.setPaused(ctx, b, true); err != nil {
				m.log.Warn("pause a sandbox whose processor time is used up", "id", b.id, "error", err)
				return
			}
			m.log.Info("a sandbox was paused", "id", b.id, "reason", reason)
			m.cfg.Audit.AppendAudit(api.AuditEntry{Time: time.Now().UTC(), Tenant: b.Tenant(), Action: "pause-for-quota", Object: b.id, Result: "ok"})
		})
	}
}

// saveLedger writes down what was booked.
func (m *Node) saveLedger(ctx context.Context) {
	trees, processes := map[string]bool{}, map[string]bool{}
	for _, b := range m.all() {
		b.mu.Lock()
		trees[quota.Tree(b.rec.lineage())] = true
		processes[b.rec.Key] = true
		b.mu.Unlock()
	}
	for _, s := range m.snapshots.All() {
		trees[quota.Tree(s.Ancestors())] = true
	}
	if err := m.ledger.Save(ctx, func(id string) bool { return trees[id] }, func(key string) bool { return processes[key] }); err != nil {
		m.log.Error("write down what tenants used", "error", err)
	}
}
