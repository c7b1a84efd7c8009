package node

import (
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/node/timer/timertest"
	"ramet.dev/ramet/internal/server/audit"
)

// TestRetirementIsDueAtItsEnd gives a sandbox more time while its end has to wait for
// something else that is done to it.
func TestRetirementIsDueAtItsEnd(t *testing.T) {
	m, b := nodeOf(t, nil)
	log, err := audit.Open(t.TempDir(), m.log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { log.Close() })
	m.cfg.Audit = log
	clock := timertest.New(time.Now())
	m.clock = clock
	live := func(ms int64) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.rec.Sandbox.Lifecycle = b.rec.Sandbox.Lifecycle.Changed(&api.LifecycleRequest{TTLMS: &ms}, clock.Now())
	}
	live(10_000)
	clock.Advance(11 * time.Second)
	b.op.Lock()
	m.timeIsUp(b.id)
	live(10_000)
	b.op.Unlock()
	m.chores.Wait()
	if _, err := m.resolve(asOwner, b.id); err != nil {
		t.Errorf("it was destroyed, although it was given more time: %v", err)
	}
	if at, any := b.nextLook(clock.Now()); !any || !at.After(clock.Now()) {
		t.Errorf("it is looked at next at %v, %t", at, any)
	}
}

// TestOpenFilesAreUsed has a file open for longer than a sandbox may be idle.
func TestOpenFilesAreUsed(t *testing.T) {
	m, b := nodeOf(t, func(*wire.Call) (any, error) { return api.FileInfo{Size: 1 << 30}, nil })
	idle := int64(10_000)
	b.rec.Sandbox.Lifecycle = b.rec.Sandbox.Lifecycle.Changed(&api.LifecycleRequest{IdleTimeoutMS: &idle}, time.Now())
	later := func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.idle(time.Now().Add(time.Hour)) != ""
	}
	f, err := m.OpenFile(asOwner, b.id, api.FileRef{Path: "/large"})
	if err != nil {
		t.Fatal(err)
	}
	if later() {
		t.Error("it is idle while a file of it is being read")
	}
	for range 2 {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	if !later() || b.activity.uses != 0 {
		t.Errorf("it is used by %d although the file is closed", b.activity.uses)
	}
}

// TestWatchingIsNoUse follows the files and a process of a sandbox for longer than it
// may be idle, and then types something.
func TestWatchingIsNoUse(t *testing.T) {
	following, end := make(chan struct{}), make(chan struct{})
	m, b := nodeOf(t, func(*wire.Call) (any, error) {
		following <- struct{}{}
		<-end
		return struct{}{}, nil
	})
	clock := timertest.New(time.Now())
	m.clock = clock
	idle := int64(10_000)
	b.rec.Sandbox.Lifecycle = b.rec.Sandbox.Lifecycle.Changed(&api.LifecycleRequest{IdleTimeoutMS: &idle}, clock.Now())
	isIdle := func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.idle(clock.Now()) != ""
	}
	keys, typed := io.Pipe()
	for what, follow := range map[string]func() error{
		"watch": func() error {
			return m.WatchFiles(asOwner, b.id, api.WatchRequest{}, func(api.FileEvents) error { return nil })
		},
		"attach": func() error {
			_, err := m.Attach(asOwner, b.id, 7, api.AttachRequest{Follow: true}, api.AttachIO{Stdin: keys, Output: func(api.Chunk) error { return nil }})
			return err
		},
	} {
		over := make(chan error, 1)
		go func() { over <- follow() }()
		<-following
		if isIdle() {
			t.Errorf("%s: the sandbox is idle as soon as it begins", what)
		}
		clock.Advance(time.Minute)
		if !isIdle() {
			t.Errorf("%s: the sandbox is not idle although nobody uses it", what)
		}
		if what == "attach" {
			for range 2 { // the first was read, and noted, when the second is taken
				if _, err := typed.Write([]byte("x")); err != nil {
					t.Error(err)
				}
			}
			if isIdle() {
				t.Error("the sandbox is idle although somebody types")
			}
		}
		end <- struct{}{}
		<-over // how the fake ends it does not matter
	}
	typed.Close()
}

// TestRestIsTriedLessAndLessOften has a sandbox that cannot be paused, as it would be one
// that cannot be saved.
func TestRestIsTriedLessAndLessOften(t *testing.T) {
	var tries atomic.Int64
	m, b := nodeOf(t, func(c *wire.Call) (any, error) {
		if c.Op == wire.OpPause {
			tries.Add(1)
			return nil, api.Errorf(api.CodeUnsupported, "process 7 holds an object that cannot be saved")
		}
		return struct{}{}, nil
	})
	clock := timertest.New(time.Now())
	m.clock = clock
	idle := int64(1000)
	b.rec.Sandbox.Lifecycle = b.rec.Sandbox.Lifecycle.Changed(&api.LifecycleRequest{IdleTimeoutMS: &idle, IdleAction: api.IdlePause}, clock.Now())
	m.touch(b)
	pass := func(d time.Duration) {
		for end := clock.Now().Add(d); clock.Now().Before(end); {
			at, any := b.nextLook(clock.Now())
			if !any || !at.After(clock.Now()) {
				t.Fatalf("it is looked at next at %v, %t, and it is %v", at, any, clock.Now())
			}
			clock.Advance(at.Sub(clock.Now()))
			m.timeIsUp(b.id)
			m.chores.Wait()
		}
	}
	pass(time.Hour)
	before := tries.Load()
	if before < 8 || before > 14 {
		t.Errorf("it was tried %d times in an hour", before)
	}
	if m.begin(b, []api.State{api.StateRunning}) == nil {
		t.Fatal("it cannot be used")
	}
	m.endUse(b)
	pass(3 * time.Second)
	if n := tries.Load() - before; n != 1 {
		t.Errorf("after a use it was tried %d times, not once", n)
	}
	var told []api.Event
	err := m.Events(asOwner, api.EventRequest{Kinds: []api.EventKind{api.EventUnrested}}, func() {}, func(e api.Event) error {
		told = append(told, e)
		return nil
	})
	if err != nil || len(told) != 2 || !strings.Contains(told[0].Reason, "pause: ") || !strings.Contains(told[0].Reason, "process 7") {
		t.Errorf("told, once for the first hour and once after the use: %+v, %v", told, err)
	}
}
