package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/machine"
	"ramet.dev/ramet/internal/node/timer/timertest"
	"ramet.dev/ramet/internal/storage/store"
)

// held are the things that a sandbox in these tests has.
const held = "heap,bulk,files,child,tcp,pipe,memfd"

func (n *testNode) get(ref string) *api.Sandbox {
	n.t.Helper()
	s, err := n.m.Get(asOwner, ref)
	if err != nil {
		n.t.Fatal(err)
	}
	return s
}

func (n *testNode) hibernate(ref string) {
	n.t.Helper()
	s, err := n.m.Hibernate(asOwner, ref)
	if err != nil {
		n.t.Fatal(err)
	}
	if s.State != api.StateHibernated || s.Memory != nil {
		n.t.Fatalf("%s is %s", ref, s.State)
	}
}

// mustRest waits until a sandbox is in a state.
func (n *testNode) mustRest(ref string, want api.State) {
	n.t.Helper()
	eventually(n.t, fmt.Sprintf("%s is %s", ref, want), func() error {
		s, err := n.m.Get(asOwner, ref)
		if err != nil {
			return err
		}
		if s.State != want {
			return fmt.Errorf("it is %s: %s", s.State, s.Reason)
		}
		return nil
	})
}

// mustBeGone waits until a sandbox is destroyed.
func (n *testNode) mustBeGone(ref string) {
	n.t.Helper()
	eventually(n.t, ref+" is destroyed", func() error {
		if _, err := n.m.Get(asOwner, ref); api.CodeOf(err) != api.CodeNotFound {
			return fmt.Errorf("it is there, or %w", err)
		}
		return nil
	})
}

func TestHibernate(t *testing.T) {
	ctx := asOwner
	n := newNode(t)
	base := n.create("base")
	n.hold("base", "-value", "one", "-only", held)
	n.hibernate("base")
	if s := n.sentries(); len(s) > n.pool {
		t.Errorf("%d sentries for no running sandbox", len(s))
	}
	if list, err := n.m.Snapshots(ctx); err != nil || len(list) != 0 {
		t.Errorf("the snapshots are %v, %v", list, err)
	}
	_, err := n.m.Hibernate(ctx, "base")
	wantCode(t, err, api.CodeWrongState)
	_, err = n.m.Pause(ctx, "base")
	wantCode(t, err, api.CodeWrongState)
	_, err = n.m.Processes(ctx, "base", false)
	wantCode(t, err, api.CodeWrongState)

	// It is forked and compared as it lies there.
	kid := n.fork("base", 1)[0]
	n.mustHold(kid.ID, "one")
	n.change(kid.ID, "one", "two")
	d, err := n.m.Diff(ctx, "base", kid.ID, api.DiffRequest{})
	if err != nil || len(d.Changes) == 0 || d.From != base.ID {
		t.Errorf("the difference is %+v, %v", d, err)
	}
	if s := n.get("base"); s.State != api.StateHibernated {
		t.Errorf("it is %s", s.State)
	}

	// It is there after a restart, and a command wakes it.
	n.reopen()
	n.mustHold("base", "one")
	if s := n.get("base"); s.State != api.StateRunning || s.ID != base.ID || s.Identity.MachineID != base.Identity.MachineID {
		t.Errorf("it woke as %+v", s)
	}
	n.mustHold(kid.ID, "two")
	n.change("base", "one", "three")
	_, err = n.m.Wake(ctx, "base")
	wantCode(t, err, api.CodeWrongState)

	// So does an access to files, after it was paused before.
	if _, err := n.m.Pause(ctx, "base"); err != nil {
		t.Fatal(err)
	}
	n.hibernate("base")
	if _, err := n.m.StatFile(ctx, "base", api.FileRef{Path: "/etc"}); err != nil {
		t.Error(err)
	}
	n.mustHold("base", "three")

	// Not if it must not.
	no := false
	if _, err := n.m.Update(ctx, "base", api.UpdateRequest{Lifecycle: &api.LifecycleRequest{AutoWake: &no}}); err != nil {
		t.Fatal(err)
	}
	n.hibernate("base")
	_, err = n.exec("base", "true")
	wantCode(t, err, api.CodeWrongState)
	if _, err := n.m.Wake(ctx, "base"); err != nil {
		t.Fatal(err)
	}
	n.mustHold("base", "three")
	n.hibernate("base")
	n.destroy("base") // its files go, which the end of the test looks at
	n.mustHold(kid.ID, "two")
}

func TestHibernatedIsPromotedToAndRolledBack(t *testing.T) {
	ctx := asOwner
	n := newNode(t)
	n.create("base")
	n.hold("base", "-value", "one", "-only", held)
	s, err := n.m.Snapshot(ctx, "base", api.SnapshotRequest{Name: "s"})
	if err != nil {
		t.Fatal(err)
	}
	kid := n.fork("base", 1)[0]
	n.change(kid.ID, "one", "two")
	n.hibernate("base")
	if _, err := n.m.Promote(ctx, kid.ID); err != nil {
		t.Fatal(err)
	}
	n.mustHold("base", "two")
	n.hibernate("base")
	if _, err := n.m.Rollback(ctx, "base", s.ID); err != nil {
		t.Fatal(err)
	}
	n.mustHold("base", "one")
	if err := n.m.DeleteSnapshot(ctx, s.ID, api.SnapshotDeletion{}); err != nil {
		t.Fatal(err)
	}
}

// newTimedNode opens a node whose clock the test moves.
func newTimedNode(t *testing.T) (*testNode, *timertest.Clock) {
	n := newClosedNode(t, newDir(t)+"/data")
	clock := timertest.New(time.Now())
	n.clock = clock
	n.open()
	t.Cleanup(n.finish)
	return n, clock
}

func (n *testNode) createWith(name string, life api.LifecycleRequest) {
	n.t.Helper()
	if _, err := n.m.Create(asOwner, api.CreateRequest{Image: "box", Name: name, Lifecycle: &life}); err != nil {
		n.t.Fatal(err)
	}
}

func ms(d time.Duration) *int64 {
	v := d.Milliseconds()
	return &v
}

func TestIdleSandboxesRest(t *testing.T) {
	ctx := asOwner
	n, clock := newTimedNode(t)
	n.createWith("sleeper", api.LifecycleRequest{IdleTimeoutMS: ms(time.Minute)})
	n.createWith("dozer", api.LifecycleRequest{IdleTimeoutMS: ms(time.Minute), IdleAction: api.IdlePause})
	n.createWith("brief", api.LifecycleRequest{IdleTimeoutMS: ms(time.Minute), IdleAction: api.IdleDestroy})
	n.createWith("mortal", api.LifecycleRequest{TTLMS: ms(time.Hour)})
	n.create("plain")
	n.hold("sleeper", "-value", "one", "-only", held)

	// A command that runs keeps its sandbox from being idle, however long it takes.
	out := make(chan error, 1)
	ready := &signalWriter{wrote: make(chan struct{})}
	stop, cancel := context.WithCancel(ctx)
	go func() {
		_, err := n.m.Exec(stop, "brief", api.ExecRequest{Argv: []string{"guest", "sleep", "1h"}}, api.ExecIO{Stdout: ready, Stderr: ready})
		out <- err
	}()
	<-ready.wrote
	clock.Advance(time.Minute)
	n.mustRest("sleeper", api.StateHibernated)
	n.mustRest("dozer", api.StatePaused)
	clock.Advance(10 * time.Minute)
	n.guest("brief", "true")
	n.guest("plain", "true")

	// Who needs them wakes them.
	n.mustHold("sleeper", "one")
	n.guest("dozer", "true")
	n.mustRest("dozer", api.StateRunning)

	// What was paused by somebody stays so.
	if _, err := n.m.Pause(ctx, "dozer"); err != nil {
		t.Fatal(err)
	}
	_, err := n.exec("dozer", "true")
	wantCode(t, err, api.CodeWrongState)

	cancel()
	<-out
	clock.Advance(59 * time.Second)
	n.guest("sleeper", "true")
	clock.Advance(time.Second)
	n.mustBeGone("brief")
	clock.Advance(58 * time.Second)
	n.guest("sleeper", "true") // had it slept, the next line would not be
	if s := n.get("sleeper"); s.ActiveAt == nil || !s.ActiveAt.Equal(clock.Now().UTC()) {
		t.Errorf("it was used at %v, not %v", s.ActiveAt, clock.Now())
	}

	// A ttl ends a sandbox whatever it does.
	clock.Advance(time.Hour)
	n.mustBeGone("mortal")
	n.mustRest("sleeper", api.StateHibernated)
}

// signalWriter says when it was written to.
type signalWriter struct {
	wrote chan struct{}
	done  bool
}

func (w *signalWriter) Write(p []byte) (int, error) {
	if !w.done {
		w.done = true
		close(w.wrote)
	}
	return len(p), nil
}

func TestTimersGoOnAfterARestart(t *testing.T) {
	n, clock := newTimedNode(t)
	n.createWith("sleeper", api.LifecycleRequest{IdleTimeoutMS: ms(time.Hour)})
	n.createWith("mortal", api.LifecycleRequest{TTLMS: ms(time.Hour)})
	kid := n.fork("sleeper", 1)[0]
	if kid.Lifecycle.IdleTimeout() != time.Hour {
		t.Errorf("a child has %+v", kid.Lifecycle)
	}
	clock.Advance(30 * time.Minute)
	n.guest("sleeper", "true")
	n.reopen()
	clock.Advance(45 * time.Minute)
	n.mustBeGone("mortal")
	n.mustRest(kid.ID, api.StateHibernated)
	n.mustRest("sleeper", api.StateRunning)
	clock.Advance(45 * time.Minute)
	n.mustRest("sleeper", api.StateHibernated)
}

func TestHostRestart(t *testing.T) {
	ctx := asOwner
	n := newClosedNode(t, newDir(t)+"/data")
	n.boot = "first"
	n.open()
	t.Cleanup(n.finish)
	n.create("running")
	n.create("asleep")
	n.hold("asleep", "-value", "one", "-only", held)
	n.hibernate("asleep")
	kept, err := n.m.Snapshot(ctx, "running", api.SnapshotRequest{Name: "kept"})
	if err != nil {
		t.Fatal(err)
	}
	n.boot = "second" // the sentries of the first run are left over, as it were
	n.reopen()
	if s := n.get("running"); s.State != api.StateFailed || s.Reason != "host restarted" {
		t.Errorf("it is %s: %s", s.State, s.Reason)
	}
	_, err = n.exec("running", "true")
	wantCode(t, err, api.CodeSandboxDied)
	eventually(t, "sentries of the first run are collected", func() error {
		if s := n.sentries(); len(s) > n.pool {
			return fmt.Errorf("%d sentries", len(s))
		}
		return nil
	})
	n.mustHold("asleep", "one")
	r, err := n.m.Restore(ctx, kept.ID, api.RestoreRequest{Count: 1})
	if err != nil {
		t.Fatal(err)
	}
	n.guest(n.children(r)[0].ID, "true")
	if err := n.m.DeleteSnapshot(ctx, kept.ID, api.SnapshotDeletion{}); err != nil {
		t.Fatal(err)
	}
}

// sleepOnce hibernates "base" and wakes it.
func sleepOnce(ctx context.Context, m *machine.Machine, rng *rand.Rand) error {
	fmt.Println("hibernate")
	if _, err := m.Hibernate(ctx, "base"); api.CodeOf(err) != "" && api.CodeOf(err) != api.CodeWrongState {
		return err
	}
	fmt.Println("wake")
	if rng.IntN(2) == 0 {
		_, err := m.Fork(ctx, "base", api.ForkRequest{})
		if err != nil {
			return err
		}
	}
	_, err := m.Wake(ctx, "base")
	return err
}

// TestHibernationSurvivesKills kills a daemon at random moments in which it
// hibernates a sandbox and wakes it.
func TestHibernationSurvivesKills(t *testing.T) {
	rounds := kills(t, 12, 4)
	rng := seeded(t)
	n := newNode(t)
	n.create("base")
	n.hold("base", "-value", "zero", "-only", held)
	n.close()
	states := map[api.State]int{}
	for range rounds {
		p := startVictim(t, victim{Runtime: n.paths.RuntimeDir(), Data: n.paths.DataDir(), Engine: n.build, Seed: rng.Uint64(), Sleeps: true})
		p.next()
		moment(rng, 60*time.Millisecond)
		p.kill()
		n.open()
		states[n.get("base").State]++
		n.mustHold("base", "zero")
		n.destroyAllBut("base")
		n.close()
	}
	t.Logf("found: %v", states)
	n.open()
	n.destroy("base")
	if files := filesBelow(t, n.paths.Snapshots()); len(files) != 0 {
		t.Errorf("left over: %s", strings.Join(files, " "))
	}
}

// TestPausingIsNobodysState has the daemon end after a sandbox was paused and before
// that was written down. Nobody was told, and nobody would resume it.
func TestPausingIsNobodysState(t *testing.T) {
	n := newNode(t)
	base := n.create("base")
	n.hold("base", "-value", "one", "-only", "heap")
	if _, err := n.m.Pause(asOwner, base.ID); err != nil {
		t.Fatal(err)
	}
	if err := n.m.Close(); err != nil {
		t.Fatal(err)
	}
	n.rewrite(base.ID, `"state":"paused"`, `"state":"running"`)
	n.open()
	if s := n.get("base"); s.State != api.StateRunning {
		t.Errorf("it is %s", s.State)
	}
	n.mustHold("base", "one")
}

// rewrite changes the record of a sandbox while no daemon runs.
func (n *testNode) rewrite(id, old, new string) {
	n.t.Helper()
	ctx := asOwner
	s, err := store.Open(ctx, n.paths.Registry())
	if err != nil {
		n.t.Fatal(err)
	}
	var doc json.RawMessage
	found, err := s.Get(ctx, store.Sandboxes, id, &doc)
	if err != nil || !found || strings.Count(string(doc), old) != 1 {
		n.t.Fatalf("the record is %s, %v", doc, err)
	}
	doc = json.RawMessage(strings.Replace(string(doc), old, new, 1))
	if err := errors.Join(s.Apply(ctx, store.Change{Table: store.Sandboxes, ID: id, Doc: doc}), s.Close()); err != nil {
		n.t.Fatal(err)
	}
}
