package resting

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/node/capture"
	"ramet.dev/ramet/internal/node/inspect"
	"ramet.dev/ramet/internal/node/meter"
	"ramet.dev/ramet/internal/node/nodetest"
	"ramet.dev/ramet/internal/node/quota"
	"ramet.dev/ramet/internal/node/sandboxes"
	"ramet.dev/ramet/internal/node/snapshots"
	"ramet.dev/ramet/internal/node/swap"
	"ramet.dev/ramet/internal/node/timer/timertest"
)

// tested is the package above the lower parts of a node.
type tested struct {
	*Rester
	*Lifecycles
	parts *nodetest.Parts
}

// resterWith returns what rests sandboxes, and one running sandbox, whose sentry answers as
// the test says.
func resterWith(t *testing.T, o nodetest.Options, answers func(*wire.Call) (any, error)) (tested, *sandboxes.Instance) {
	t.Helper()
	p := nodetest.New(t, o)
	r := New(Config{
		Sandboxes: p.Sandboxes, Snapshots: p.Snapshots, Freezes: p.Freezes, Freezer: capture.NewFreezer(p.Freezes, p.Clock, nodetest.Engines(""), meter.Meter{}),
		Swapper:   swap.New(swap.Config{Sandboxes: p.Sandboxes, Snapshots: p.Snapshots, Freezes: p.Freezes, Admission: p.Admission}),
		Inspector: inspect.New(inspect.Config{Sandboxes: p.Sandboxes, Snapshots: p.Snapshots, Trees: p.Trees, Clock: p.Clock}),
		Admission: p.Admission, Timers: NewTimers(p.Alarms, p.Clock), Images: nodetest.Images{}, Store: p.Store, Clock: p.Clock, Timeout: p.Timeout,
	})
	return tested{r, NewLifecycles(r, p.Chores, nodetest.Audit{}, p.Log), p}, p.Add(t, answers)
}

// live changes the lifecycle of b.
func live(b *sandboxes.Instance, req api.LifecycleRequest, now time.Time) {
	b.Amend(func(rec *sandboxes.Record) { rec.Sandbox.Lifecycle = rec.Sandbox.Lifecycle.Changed(&req, now) })
}

// look returns when b is looked at next.
func look(b *sandboxes.Instance, now time.Time) (time.Time, bool) {
	s, a := b.Activity()
	return nextLook(&s, a, now)
}

// unrecordable makes a record that cannot be written.
func unrecordable(b *sandboxes.Instance) {
	b.Amend(func(rec *sandboxes.Record) { rec.Sandbox.Limits.CPUs = math.NaN() })
}

// TestPauseIsRecordedFirst pauses and resumes a sandbox whose record cannot be
// written.
func TestPauseIsRecordedFirst(t *testing.T) {
	var mu sync.Mutex
	var ops []wire.Op
	m, b := resterWith(t, nodetest.Options{}, func(call *wire.Call) (any, error) {
		mu.Lock()
		defer mu.Unlock()
		ops = append(ops, call.Op)
		return struct{}{}, nil
	})
	unrecordable(b)
	if _, err := m.Pause(nodetest.AsOwner, b.ID); err == nil {
		t.Error("it was paused without a record")
	}
	if v := b.View(); v.State != api.StateRunning {
		t.Errorf("it is %s and recorded as running", v.State)
	}
	mu.Lock()
	defer mu.Unlock()
	if !slices.Equal(ops, []wire.Op{wire.OpPause, wire.OpResume}) {
		t.Errorf("the sentry was told %v", ops)
	}
}

// TestStateIsNotReachedTwice asks for the state that a sandbox has: what to do first is no help
// then.
func TestStateIsNotReachedTwice(t *testing.T) {
	m, b := resterWith(t, nodetest.Options{}, func(*wire.Call) (any, error) { return struct{}{}, nil })
	for state, request := range map[api.State]func(context.Context, string) (*api.Sandbox, error){
		api.StateRunning: m.Resume, api.StatePaused: m.Pause, api.StateHibernated: m.Hibernate,
	} {
		b.Amend(func(rec *sandboxes.Record) { rec.Sandbox.State = state })
		_, err := request(nodetest.AsOwner, b.ID)
		if want := fmt.Sprintf("sandbox %s is %s already", b.ID, state); api.CodeOf(err) != api.CodeWrongState || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// TestPauseIsFinished has the caller go away while the sandbox is being paused.
func TestPauseIsFinished(t *testing.T) {
	ctx, cancel := context.WithCancel(nodetest.AsOwner)
	defer cancel()
	var paused atomic.Bool
	m, b := resterWith(t, nodetest.Options{}, func(call *wire.Call) (any, error) {
		paused.Store(call.Op == wire.OpPause)
		cancel()
		<-time.After(50 * time.Millisecond) // enough for a call that breaks off then
		return struct{}{}, nil
	})
	_, err := m.Pause(ctx, b.ID)
	if v := b.View(); paused.Load() != (v.State == api.StatePaused) {
		t.Errorf("it is paused: %t, and is said to be %s: %v", paused.Load(), v.State, err)
	}
	_, err = m.Resume(ctx, b.ID)
	if api.CodeOf(err) != api.CodeCanceled || !paused.Load() {
		t.Errorf("it was begun for one who had gone: %v", err)
	}
}

// TestRetirementIsDueAtItsEnd gives a sandbox more time while its end has to wait for
// something else that is done to it.
func TestRetirementIsDueAtItsEnd(t *testing.T) {
	clock := timertest.New(time.Now())
	m, b := resterWith(t, nodetest.Options{Clock: clock}, nil)
	live := func(ms int64) { live(b, api.LifecycleRequest{TTLMS: &ms}, clock.Now()) }
	live(10_000)
	clock.Advance(11 * time.Second)
	b.Op.Lock()
	m.TimeIsUp(b.ID)
	live(10_000)
	b.Op.Unlock()
	m.parts.Chores.Wait()
	if _, err := m.parts.Sandboxes.Find(nodetest.AsOwner, b.ID); err != nil {
		t.Errorf("it was destroyed, although it was given more time: %v", err)
	}
	if at, any := look(b, clock.Now()); !any || !at.After(clock.Now()) {
		t.Errorf("it is looked at next at %v, %t", at, any)
	}
}

// TestRestIsTriedLessAndLessOften has a sandbox that cannot be paused, as it would be one
// that cannot be saved.
func TestRestIsTriedLessAndLessOften(t *testing.T) {
	var tries atomic.Int64
	clock := timertest.New(time.Now())
	m, b := resterWith(t, nodetest.Options{Clock: clock}, func(c *wire.Call) (any, error) {
		if c.Op == wire.OpPause {
			tries.Add(1)
			return nil, api.Errorf(api.CodeUnsupported, "process 7 holds an object that cannot be saved")
		}
		return struct{}{}, nil
	})
	idle := int64(1000)
	live(b, api.LifecycleRequest{IdleTimeoutMS: &idle, IdleAction: api.IdlePause}, clock.Now())
	b.Touch(clock.Now())
	pass := func(d time.Duration) {
		for end := clock.Now().Add(d); clock.Now().Before(end); {
			at, any := look(b, clock.Now())
			if !any || !at.After(clock.Now()) {
				t.Fatalf("it is looked at next at %v, %t, and it is %v", at, any, clock.Now())
			}
			clock.Advance(at.Sub(clock.Now()))
			m.TimeIsUp(b.ID)
			m.parts.Chores.Wait()
		}
	}
	pass(time.Hour)
	before := tries.Load()
	if before < 8 || before > 14 {
		t.Errorf("it was tried %d times in an hour", before)
	}
	if b.BeginUse(clock.Now(), []api.State{api.StateRunning}) == nil {
		t.Fatal("it cannot be used")
	}
	b.EndUse(clock.Now())
	pass(3 * time.Second)
	if n := tries.Load() - before; n != 1 {
		t.Errorf("after a use it was tried %d times, not once", n)
	}
	var told []api.Event
	err := m.parts.Sandboxes.Events.Events(nodetest.AsOwner, api.EventRequest{Kinds: []api.EventKind{api.EventUnrested}}, func() {}, func(e api.Event) error {
		told = append(told, e)
		return nil
	})
	if err != nil || len(told) != 2 || !strings.Contains(told[0].Reason, "pause: ") || !strings.Contains(told[0].Reason, "process 7") {
		t.Errorf("told, once for the first hour and once after the use: %+v, %v", told, err)
	}
}

// TestSpendersAreNotWoken does what lets a sandbox run whose processor time is used up.
func TestSpendersAreNotWoken(t *testing.T) {
	ctx := nodetest.AsOwner
	m, b := resterWith(t, nodetest.Options{}, nodetest.Answer)
	nodetest.SpendAll(t, m.parts.Ledger, b)
	s := m.parts.Snapshots.Load(snapshots.Record{Ancestors: []string{b.ID}, Snapshot: api.Snapshot{ID: api.NewID(api.KindSnapshot), Sandbox: b.ID}})
	for name, try := range map[string]struct {
		state  api.State
		dozing bool
		do     func() error
	}{
		"wake":             {api.StateHibernated, false, func() error { _, err := m.Wake(ctx, b.ID); return err }},
		"be woken":         {api.StateHibernated, false, func() error { return m.awaken(ctx, b) }},
		"be woken, dozing": {api.StatePaused, true, func() error { return m.awaken(ctx, b) }},
		"resume":           {api.StatePaused, false, func() error { _, err := m.Resume(ctx, b.ID); return err }},
		"roll back":        {api.StatePaused, false, func() error { _, err := m.cfg.Swapper.Rollback(ctx, b.ID, s.ID); return err }},
	} {
		b.Amend(func(rec *sandboxes.Record) { rec.Sandbox.State, rec.Dozing = try.state, try.dozing })
		if err := try.do(); api.CodeOf(err) != api.CodeLimit {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestNothingIsWokenWithoutMemory does what starts a sandbox that is on disk, while the
// host has no memory for one more.
func TestNothingIsWokenWithoutMemory(t *testing.T) {
	free := int64(quota.PerSandbox)
	m, b := resterWith(t, nodetest.Options{HostMemory: func() (int64, int64, error) { return free, 8 << 30, nil }}, nil)
	b.Amend(func(rec *sandboxes.Record) { rec.Sandbox.State = api.StateHibernated })
	s := m.parts.Snapshots.Load(snapshots.Record{Ancestors: []string{b.ID}, Snapshot: api.Snapshot{ID: api.NewID(api.KindSnapshot), Sandbox: b.ID}})
	for name, try := range map[string]func() error{
		"wake":      func() error { _, err := m.Wake(nodetest.AsOwner, b.ID); return err },
		"a request": func() error { _, _, err := m.Use(nodetest.AsOwner, b, api.StateRunning); return err },
		"roll back": func() error { _, err := m.cfg.Swapper.Rollback(nodetest.AsOwner, b.ID, s.ID); return err },
	} {
		if err := try(); api.CodeOf(err) != api.CodeNoMemory {
			t.Errorf("%s: %v", name, err)
		}
		if v := b.View(); v.State != api.StateHibernated {
			t.Errorf("after %s it is %s", name, v.State)
		}
	}
	free = quota.Reserve(8<<30) + quota.PerSandbox
	if _, err := m.Wake(nodetest.AsOwner, b.ID); api.CodeOf(err) != api.CodeCorrupt { // its snapshot is missing here
		t.Errorf("with just enough memory: %v", err)
	}
	if n := m.cfg.Admission.Promised(); n != 0 {
		t.Errorf("%d bytes stay promised", n)
	}
}

// TestAHibernationHasADeadline hibernates a sandbox that never answers.
func TestAHibernationHasADeadline(t *testing.T) {
	hang := make(chan struct{})
	m, b := resterWith(t, nodetest.Options{Timeout: time.Second}, func(call *wire.Call) (any, error) {
		if call.Op == wire.OpFreeze {
			<-hang
		}
		return struct{}{}, nil
	})
	t.Cleanup(func() { close(hang) })
	if _, err := m.Hibernate(nodetest.AsOwner, b.ID); api.CodeOf(err) != api.CodeTimeout {
		t.Error(err)
	}
}
