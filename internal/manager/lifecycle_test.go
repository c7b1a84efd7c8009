package manager

import (
	"context"
	"testing"
	"time"

	"ramet.dev/ramet/internal/alarm/alarmtest"
	"ramet.dev/ramet/internal/audit"
	"ramet.dev/ramet/internal/sandbox"
)

// TestRetirementIsDueAtItsEnd gives a sandbox more time while its end has to wait for
// something else that is done to it.
func TestRetirementIsDueAtItsEnd(t *testing.T) {
	m, b := managerOf(t, nil)
	var err error
	if m.audit, err = audit.Open(t.TempDir(), m.log); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.audit.Close() })
	clock := alarmtest.New(time.Now())
	m.clock = clock
	live := func(ms int64) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.rec.Sandbox.Lifecycle = b.rec.Sandbox.Lifecycle.Changed(&sandbox.LifecycleRequest{TTLMS: &ms}, clock.Now())
	}
	live(10_000)
	clock.Advance(11 * time.Second)
	b.op.Lock()
	m.ring(b.id)
	live(10_000)
	b.op.Unlock()
	m.chores.Wait()
	if _, err := m.resolve(context.Background(), b.id); err != nil {
		t.Errorf("it was destroyed, although it was given more time: %v", err)
	}
	if at, any := b.nextLook(clock.Now()); !any || !at.After(clock.Now()) {
		t.Errorf("it is looked at next at %v, %t", at, any)
	}
}
