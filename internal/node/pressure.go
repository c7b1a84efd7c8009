package node

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/launch"
	"ramet.dev/ramet/internal/observe/procfs"
)

// The machine is looked at every few seconds: how much memory is free, and how much
// processor time each sandbox used. When memory runs short, sandboxes that nobody uses
// are put to disk, the one first that was used longest ago: that is better than that
// the kernel ends one.

const (
	// perSandbox is what a new sandbox needs at least, in bytes: its processes on the
	// host, and the first pages that it writes.
	perSandbox = 12 << 20
	// lookEvery is how often the machine is looked at, and saveEvery how often what
	// was booked is written down, in looks.
	lookEvery = 3 * time.Second
	saveEvery = 20
	// restAfter is for how long nobody may have used what is put to disk.
	restAfter = 15 * time.Second
	// patienceForRoom bounds how long a request waits until room was made, and how
	// long all sandboxes are waited for of which none is on disk yet.
	patienceForRoom = 20 * time.Second
	// patienceForOne is after what time the next sandbox is put to disk, too, because
	// the one before is not there yet: it may be large, or never answer.
	patienceForOne = 5 * time.Second
)

// HostMemory says how many bytes of memory the host has, and how many are free for
// something new.
type HostMemory func() (free, total int64, err error)

// readHostMemory is the HostMemory of this machine.
func readHostMemory() (free, total int64, err error) {
	m, err := procfs.ReadMemory()
	return m.Available, m.Total, err
}

// reserve is what is to stay free of a machine's memory: a fiftieth, within bounds.
func reserve(total int64) int64 { return min(max(total/50, 96<<20), 1<<30) }

// fits refuses what needs more memory than is free. pending is what others were
// promised.
func (m *Node) fits(need, pending int64) error {
	free, total, err := m.hostMemory()
	if err != nil || need == 0 { // nothing is known, and so nothing is refused
		return nil
	}
	const mib = 1 << 20
	if keep := reserve(total); free-need-pending < keep {
		return api.Errorf(api.CodeNoMemory, "this needs %d MiB of memory and %d MiB are to stay free, but %d MiB of %d MiB are free, of which %d MiB are promised: remove or hibernate sandboxes",
			need/mib, keep/mib, free/mib, total/mib, pending/mib)
	}
	return nil
}

// unused is the idleness of what may be put to disk because memory is short.
func unused(b *instance, now time.Time) bool {
	s := &b.rec.Sandbox
	return s.State == api.StateRunning && b.activity.uses == 0 && !b.activity.resting && b.activity.at.Before(now.Add(-restAfter)) && s.Lifecycle.WakesByItself()
}

// makeRoom puts the sandbox to disk that was used longest ago, if there is one that
// nobody uses, and reports whether there was. One to which something is being done is
// passed over: that may take as long as its tenant likes. So may what is begun here:
// the next one's turn comes after a while, and at last all are waited for.
func (m *Node) makeRoom(ctx context.Context) bool {
	type outcome struct {
		b    *instance
		made bool
	}
	list := m.idlest()
	outcomes := make(chan outcome, len(list))
	begun := map[*instance]bool{} // and not ended
	// wait waits for b, or for all that have begun if that is nil, until one of them
	// was put to disk, or patience is over.
	wait := func(b *instance, over <-chan time.Time) (made, late bool) {
		for begun[b] || b == nil && len(begun) > 0 {
			select {
			case o := <-outcomes:
				if o.made {
					return true, false
				}
				delete(begun, o.b)
			case <-over:
				return false, true
			case <-ctx.Done():
				return false, false
			}
		}
		return false, false
	}
	for _, b := range list {
		if ctx.Err() != nil {
			return false
		}
		if !b.op.TryLock() {
			continue
		}
		begun[b] = true
		over, stop := m.clock.After(patienceForOne)
		m.chore(func(context.Context) {
			made := m.putAway(ctx, b)
			b.op.Unlock()
			outcomes <- outcome{b, made}
		})
		made, late := wait(b, over)
		stop()
		if made {
			return true
		}
		if late {
			b.setStubborn()
		}
	}
	over, stop := m.clock.After(patienceForRoom)
	defer stop()
	made, _ := wait(nil, over)
	return made
}

// idlest returns what nobody uses: first what was used longest ago, and last what could
// not be put to disk before.
func (m *Node) idlest() []*instance {
	type idle struct {
		b        *instance
		stubborn bool
		at       time.Time
	}
	var list []idle
	now := m.clock.Now()
	for _, b := range m.all() {
		b.mu.Lock()
		if b.sentry != nil && unused(b, now) {
			list = append(list, idle{b, b.activity.stubborn, b.activity.at})
		}
		b.mu.Unlock()
	}
	slices.SortFunc(list, func(x, y idle) int {
		switch {
		case x.stubborn == y.stubborn:
			return cmp.Or(x.at.Compare(y.at), strings.Compare(x.b.id, y.b.id))
		case x.stubborn:
			return 1
		}
		return -1
	})
	boxes := make([]*instance, len(list))
	for i, x := range list {
		boxes[i] = x.b
	}
	return boxes
}

// putAway puts b to disk because memory is short, and reports whether it did. The
// caller holds b.op.
func (m *Node) putAway(ctx context.Context, b *instance) bool {
	switch v, err := m.hibernateLocked(ctx, b, unused); {
	case api.CodeOf(err) == api.CodeCanceled: // it is used again, or room is no longer wanted
	case err != nil:
		b.setStubborn()
		m.unrested(b, api.IdleHibernate, err)
	case v != nil:
		m.log.Info("memory is short: a sandbox was put to disk that nobody used", "id", b.id)
		m.AppendAudit(api.AuditEntry{Time: time.Now().UTC(), Tenant: b.tenant(), Action: "hibernate-for-memory", Object: b.id, Result: "ok"})
		return true
	}
	return false
}

func (b *instance) setStubborn() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.activity.stubborn = true
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

// keepRoom makes room when memory is short, until ctx ends. It has a goroutine of its
// own: to put a sandbox to disk takes long.
func (m *Node) keepRoom(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if free, total, err := m.hostMemory(); err == nil && free < reserve(total) {
			m.makeRoom(ctx)
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
	tenant, tree := b.rec.tenant(), root(b.rec.lineage())
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
		if seconds, ok := m.book(b, s); ok && m.tellCosts(b, s, seconds, asked < mostCosts) {
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
			m.AppendAudit(api.AuditEntry{Time: time.Now().UTC(), Tenant: b.tenant(), Action: "pause-for-quota", Object: b.id, Result: "ok"})
		})
	}
}

// saveLedger writes down what was booked.
func (m *Node) saveLedger(ctx context.Context) {
	trees, processes := map[string]bool{}, map[string]bool{}
	for _, b := range m.all() {
		b.mu.Lock()
		trees[root(b.rec.lineage())] = true
		processes[b.rec.Key] = true
		b.mu.Unlock()
	}
	for _, s := range m.allSnapshots() {
		trees[root(s.rec.Ancestors)] = true
	}
	if err := m.ledger.Save(ctx, func(id string) bool { return trees[id] }, func(key string) bool { return processes[key] }); err != nil {
		m.log.Error("write down what tenants used", "error", err)
	}
}
