package manager

import (
	"testing"
	"time"

	"ramet.dev/ramet/internal/audit"
	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/wire"
)

// spent returns a manager with a sandbox whose processor time is used up.
func spent(t *testing.T) (*Manager, *box) {
	t.Helper()
	m, b := managerOf(t, func(*wire.Call) (any, error) { return struct{}{}, nil })
	var err error
	if m.audit, err = audit.Open(t.TempDir(), m.log); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.audit.Close() })
	if err := m.ledger.Set(asOwner, b.tenant(), sandbox.TenantUpdate{Quota: &sandbox.Quota{CPUSeconds: 1}}); err != nil {
		t.Fatal(err)
	}
	m.ledger.Spend(b.tenant(), b.id, "key", 2)
	return m, b
}

// TestBusySandboxesAreNotWaitedFor has something done to a sandbox that does not end,
// as a fork whose children's hooks hang.
func TestBusySandboxesAreNotWaitedFor(t *testing.T) {
	m, b := spent(t)
	b.op.RLock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		m.stopSpenders(asOwner)
		if m.makeRoom(asOwner) {
			t.Error("it was put to disk")
		}
	}()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Error("it is waited for, and the sandboxes of others are not looked at")
	}
	b.op.RUnlock()
	<-done
	m.stopSpenders(asOwner)
	if v := b.view(); v.State != sandbox.StatePaused {
		t.Errorf("it is %s, and its processor time is used up", v.State)
	}
}

// TestSpendersAreNotWoken does what lets a sandbox run whose processor time is used up.
func TestSpendersAreNotWoken(t *testing.T) {
	ctx := asOwner
	m, b := spent(t)
	s := &snapshot{id: sandbox.NewID(sandbox.KindSnapshot)}
	s.rec.Ancestors, s.rec.Snapshot.Sandbox = []string{b.id}, b.id
	m.snaps[s.id] = s
	for name, try := range map[string]struct {
		state  sandbox.State
		dozing bool
		do     func() error
	}{
		"wake":             {sandbox.StateHibernated, false, func() error { _, err := m.Wake(ctx, b.id); return err }},
		"be woken":         {sandbox.StateHibernated, false, func() error { return m.awaken(ctx, b) }},
		"be woken, dozing": {sandbox.StatePaused, true, func() error { return m.awaken(ctx, b) }},
		"resume":           {sandbox.StatePaused, false, func() error { _, err := m.Resume(ctx, b.id); return err }},
		"roll back":        {sandbox.StatePaused, false, func() error { _, err := m.Rollback(ctx, b.id, s.id); return err }},
	} {
		b.mu.Lock()
		b.rec.Sandbox.State, b.rec.Dozing = try.state, try.dozing
		b.mu.Unlock()
		if err := try.do(); sandbox.CodeOf(err) != sandbox.CodeLimit {
			t.Errorf("%s: %v", name, err)
		}
	}
}
