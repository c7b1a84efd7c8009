package node

import (
	"testing"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/node/freezes"
	"ramet.dev/ramet/internal/node/quota"
	"ramet.dev/ramet/internal/node/snapshots"
	"ramet.dev/ramet/internal/node/timer/timertest"
	"ramet.dev/ramet/internal/server/audit"
)

// spent returns a node with a sandbox whose processor time is used up.
func spent(t *testing.T) (*Node, *instance) {
	t.Helper()
	m, b := nodeOf(t, func(*wire.Call) (any, error) { return struct{}{}, nil })
	log, err := audit.Open(t.TempDir(), m.log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { log.Close() })
	m.cfg.Audit = log
	if err := m.ledger.Set(asOwner, b.Tenant(), api.TenantUpdate{Quota: &api.Quota{CPUSeconds: 1}}); err != nil {
		t.Fatal(err)
	}
	m.ledger.Spend(b.Tenant(), b.id, "key", 2)
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
		m.stopSpenders()
		if m.room.Make(asOwner) {
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
	m.stopSpenders()
	m.chores.Wait()
	if v := b.view(); v.State != api.StatePaused {
		t.Errorf("it is %s, and its processor time is used up", v.State)
	}
}

// TestSpendersAreNotWoken does what lets a sandbox run whose processor time is used up.
func TestSpendersAreNotWoken(t *testing.T) {
	ctx := asOwner
	m, b := spent(t)
	s := m.snapshots.Load(snapshots.Record{Ancestors: []string{b.id}, Snapshot: api.Snapshot{ID: api.NewID(api.KindSnapshot), Sandbox: b.id}})
	for name, try := range map[string]struct {
		state  api.State
		dozing bool
		do     func() error
	}{
		"wake":             {api.StateHibernated, false, func() error { _, err := m.Wake(ctx, b.id); return err }},
		"be woken":         {api.StateHibernated, false, func() error { return m.awaken(ctx, b) }},
		"be woken, dozing": {api.StatePaused, true, func() error { return m.awaken(ctx, b) }},
		"resume":           {api.StatePaused, false, func() error { _, err := m.Resume(ctx, b.id); return err }},
		"roll back":        {api.StatePaused, false, func() error { _, err := m.Rollback(ctx, b.id, s.ID); return err }},
	} {
		b.mu.Lock()
		b.rec.Sandbox.State, b.rec.Dozing = try.state, try.dozing
		b.mu.Unlock()
		if err := try.do(); api.CodeOf(err) != api.CodeLimit {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestNothingIsWokenWithoutMemory does what starts a sandbox that is on disk, while the
// host has no memory for one more.
func TestNothingIsWokenWithoutMemory(t *testing.T) {
	m, b := nodeOf(t, nil)
	free := int64(quota.PerSandbox)
	m.hostMemory = func() (int64, int64, error) { return free, 8 << 30, nil }
	m.Admission, m.room = m.newAdmission(), m.newRoom()
	b.rec.Sandbox.State = api.StateHibernated
	s := m.snapshots.Load(snapshots.Record{Ancestors: []string{b.id}, Snapshot: api.Snapshot{ID: api.NewID(api.KindSnapshot), Sandbox: b.id}})
	for name, try := range map[string]func() error{
		"wake":      func() error { _, err := m.Wake(asOwner, b.id); return err },
		"a request": func() error { _, _, err := m.use(asOwner, b, api.StateRunning); return err },
		"roll back": func() error { _, err := m.Rollback(asOwner, b.id, s.ID); return err },
	} {
		if err := try(); api.CodeOf(err) != api.CodeNoMemory {
			t.Errorf("%s: %v", name, err)
		}
		if v := b.view(); v.State != api.StateHibernated {
			t.Errorf("after %s it is %s", name, v.State)
		}
	}
	free = quota.Reserve(8<<30) + quota.PerSandbox
	if _, err := m.Wake(asOwner, b.id); api.CodeOf(err) != api.CodeCorrupt { // its snapshot is missing here
		t.Errorf("with just enough memory: %v", err)
	}
	if n := m.Promised(); n != 0 {
		t.Errorf("%d bytes stay promised", n)
	}
}

// TestOneThatDoesNotAnswerDoesNotHoldUpMakingRoom has the sandbox that was used longest
// ago never answer when it is to be frozen. When there is none left to try, it is waited
// for: it may only be large.
func TestOneThatDoesNotAnswerDoesNotHoldUpMakingRoom(t *testing.T) {
	asked, other := make(chan string, 9), make(chan string, 9)
	hang := make(chan struct{})
	m, _ := nodeOf(t, func(call *wire.Call) (any, error) {
		if call.Op == wire.OpFreeze {
			asked <- "stuck"
			<-hang
		}
		return struct{}{}, nil
	})
	clock := waits{timertest.New(time.Now()), make(chan time.Duration, 9)}
	m.clock = clock
	m.room = m.newRoom()
	next := boxIn(t, m, func(call *wire.Call) (any, error) {
		if call.Op == wire.OpFreeze {
			other <- "next"
			return nil, api.Errorf(api.CodeNoSpace, "no room")
		}
		return struct{}{}, nil
	})
	next.activity.at = clock.Now().Add(-time.Hour)
	done := make(chan bool, 1)
	go func() { done <- m.room.Make(asOwner) }()
	<-asked
	select {
	case <-other:
		t.Error("another one is put to disk at once")
	default:
	}
	clock.Advance(quota.OneTimeout)
	select {
	case <-other:
	case <-time.After(time.Minute):
		close(hang)
		t.Fatal("the next one's turn does not come")
	}
	for waiting := false; !waiting; {
		select {
		case d := <-clock.begun:
			waiting = d == quota.RoomTimeout
		case <-done:
			close(hang)
			t.Fatal("the one that has not answered yet is given up")
		}
	}
	if list := m.room.Candidates(); len(list) != 1 || list[0].ID != next.id {
		t.Errorf("%d could be put to disk while one of two does not answer", len(list))
	}
	clock.Advance(quota.RoomTimeout)
	if <-done {
		t.Error("none could be put to disk, and one is said to be")
	}
	close(hang)
	m.chores.Wait()
	if list := m.room.Candidates(); len(list) != 2 {
		t.Errorf("%d of two could be put to disk", len(list))
	}
}

// waits is a clock that says for how long it was begun to wait.
type waits struct {
	*timertest.Clock
	begun chan time.Duration
}

func (w waits) After(d time.Duration) (<-chan time.Time, func()) {
	ch, stop := w.Clock.After(d)
	w.begun <- d
	return ch, stop
}

// TestAFreezeHasADeadline freezes a sandbox that never answers, in each way.
func TestAFreezeHasADeadline(t *testing.T) {
	hang := make(chan struct{})
	m, b := nodeOf(t, func(call *wire.Call) (any, error) {
		if call.Op == wire.OpFreeze {
			<-hang
		}
		return struct{}{}, nil
	})
	t.Cleanup(func() { close(hang) })
	m.freezes, m.timeout = freezes.New(m.memFiles, m.store, m.log, time.Second, m.inUse), time.Second
	for what, do := range map[string]func() error{
		"hibernate": func() error { _, err := m.Hibernate(asOwner, b.id); return err },
		"snapshot":  func() error { _, _, err := m.capture(asOwner, b, api.SnapshotRequest{}); return err },
		"fork":      func() error { _, _, err := m.freezeShared(asOwner, b); return err },
	} {
		if err := do(); api.CodeOf(err) != api.CodeTimeout {
			t.Errorf("%s: %v", what, err)
		}
	}
}
