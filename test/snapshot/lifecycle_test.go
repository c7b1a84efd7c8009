package snapshot

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
	"ramet.dev/ramet/test/harness"
)

// held are the things that a sandbox in these tests has.
const held = "heap,bulk,files,child,tcp,pipe,memfd"

// mustRest waits until a sandbox is in a state.
func mustRest(n *harness.Node, ref string, want api.State) {
	n.T.Helper()
	harness.Eventually(n.T, fmt.Sprintf("%s is %s", ref, want), func() error {
		s, err := n.Machine.Get(harness.AsOwner, ref)
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
func mustBeGone(n *harness.Node, ref string) {
	n.T.Helper()
	harness.Eventually(n.T, ref+" is destroyed", func() error {
		if _, err := n.Machine.Get(harness.AsOwner, ref); api.CodeOf(err) != api.CodeNotFound {
			return fmt.Errorf("it is there, or %w", err)
		}
		return nil
	})
}

func TestHibernate(t *testing.T) {
	ctx := harness.AsOwner
	n := harness.NewNode(t)
	base := n.Create("base")
	n.Hold("base", "-value", "one", "-only", held)
	const bootID = "/proc/sys/kernel/random/boot_id"
	boot := n.Guest("base", "cat", bootID)
	n.Hibernate("base")
	harness.Eventually(t, "no sentries but those of the pool", func() error {
		if s := n.Sentries(); len(s) > n.Pool {
			return fmt.Errorf("%d sentries for no running sandbox", len(s))
		}
		return nil
	})
	if list, err := n.Machine.Snapshots(ctx); err != nil || len(list) != 0 {
		t.Errorf("the snapshots are %v, %v", list, err)
	}
	_, err := n.Machine.Hibernate(ctx, "base")
	harness.WantCode(t, err, api.CodeWrongState)
	_, err = n.Machine.Pause(ctx, "base")
	harness.WantCode(t, err, api.CodeWrongState)
	_, err = n.Machine.Processes(ctx, "base", false)
	harness.WantCode(t, err, api.CodeWrongState)

	// It is forked and compared as it lies there.
	kid := n.Fork("base", 1)[0]
	n.MustHold(kid.ID, "one")
	n.Change(kid.ID, "one", "two")
	d, err := n.Machine.Diff(ctx, "base", kid.ID, api.DiffRequest{})
	if err != nil || len(d.Changes) == 0 || d.From != base.ID {
		t.Errorf("the difference is %+v, %v", d, err)
	}
	if s := n.Get("base"); s.State != api.StateHibernated {
		t.Errorf("it is %s", s.State)
	}

	// It is there after a restart, and a command wakes it.
	n.Reopen()
	n.MustHold("base", "one")
	if s := n.Get("base"); s.State != api.StateRunning || s.ID != base.ID || s.Identity.MachineID != base.Identity.MachineID {
		t.Errorf("it woke as %+v", s)
	}
	if its := n.Guest("base", "cat", bootID); its != boot || its == n.Guest(kid.ID, "cat", bootID) {
		t.Errorf("its boot id was %q and is %q", boot, its)
	}
	n.MustHold(kid.ID, "two")
	n.Change("base", "one", "three")
	_, err = n.Machine.Wake(ctx, "base")
	harness.WantCode(t, err, api.CodeWrongState)

	// So does an access to files, after it was paused before.
	if _, err := n.Machine.Pause(ctx, "base"); err != nil {
		t.Fatal(err)
	}
	n.Hibernate("base")
	if _, err := n.Machine.StatFile(ctx, "base", api.FileRef{Path: "/etc"}); err != nil {
		t.Error(err)
	}
	n.MustHold("base", "three")

	// Not if it must not.
	no := false
	if _, err := n.Machine.Update(ctx, "base", api.UpdateRequest{Lifecycle: &api.LifecycleRequest{AutoWake: &no}}); err != nil {
		t.Fatal(err)
	}
	n.Hibernate("base")
	_, err = n.Exec("base", "true")
	harness.WantCode(t, err, api.CodeWrongState)
	if _, err := n.Machine.Wake(ctx, "base"); err != nil {
		t.Fatal(err)
	}
	n.MustHold("base", "three")
	n.Hibernate("base")
	n.Destroy("base") // its files go, which the end of the test looks at
	n.MustHold(kid.ID, "two")
}

func TestHibernatedIsPromotedToAndRolledBack(t *testing.T) {
	ctx := harness.AsOwner
	n := harness.NewNode(t)
	n.Create("base")
	n.Hold("base", "-value", "one", "-only", held)
	s, err := n.Machine.Snapshot(ctx, "base", api.SnapshotRequest{Name: "s"})
	if err != nil {
		t.Fatal(err)
	}
	kid := n.Fork("base", 1)[0]
	n.Change(kid.ID, "one", "two")
	n.Hibernate("base")
	if _, err := n.Machine.Promote(ctx, kid.ID); err != nil {
		t.Fatal(err)
	}
	n.MustHold("base", "two")
	n.Hibernate("base")
	if _, err := n.Machine.Rollback(ctx, "base", s.ID); err != nil {
		t.Fatal(err)
	}
	n.MustHold("base", "one")
	if err := n.Machine.DeleteSnapshot(ctx, s.ID, api.SnapshotDeletion{}); err != nil {
		t.Fatal(err)
	}
}

// newTimedNode opens a node whose clock the test moves.
func newTimedNode(t *testing.T) (*harness.Node, *timertest.Clock) {
	n := harness.NewClosedNode(t, harness.NewDir(t)+"/data")
	clock := timertest.New(time.Now())
	n.Clock = clock
	n.Open()
	t.Cleanup(n.Finish)
	return n, clock
}

func createWith(n *harness.Node, name string, life api.LifecycleRequest) {
	n.T.Helper()
	if _, err := n.Machine.Create(harness.AsOwner, api.CreateRequest{Image: "box", Name: name, Lifecycle: &life}); err != nil {
		n.T.Fatal(err)
	}
}

func ms(d time.Duration) *int64 {
	v := d.Milliseconds()
	return &v
}

func TestIdleSandboxesRest(t *testing.T) {
	ctx := harness.AsOwner
	n, clock := newTimedNode(t)
	createWith(n, "sleeper", api.LifecycleRequest{IdleTimeoutMS: ms(time.Minute)})
	createWith(n, "dozer", api.LifecycleRequest{IdleTimeoutMS: ms(time.Minute), IdleAction: api.IdlePause})
	createWith(n, "brief", api.LifecycleRequest{IdleTimeoutMS: ms(time.Minute), IdleAction: api.IdleDestroy})
	createWith(n, "mortal", api.LifecycleRequest{TTLMS: ms(time.Hour)})
	n.Create("plain")
	n.Hold("sleeper", "-value", "one", "-only", held)

	// A command that runs keeps its sandbox from being idle, however long it takes.
	out := make(chan error, 1)
	ready := &signalWriter{wrote: make(chan struct{})}
	stop, cancel := context.WithCancel(ctx)
	go func() {
		_, err := n.Machine.Exec(stop, "brief", api.ExecRequest{Argv: []string{"guest", "sleep", "1h"}}, api.ExecIO{Stdout: ready, Stderr: ready})
		out <- err
	}()
	<-ready.wrote
	clock.Advance(time.Minute)
	mustRest(n, "sleeper", api.StateHibernated)
	mustRest(n, "dozer", api.StatePaused)
	clock.Advance(10 * time.Minute)
	n.Guest("brief", "true")
	n.Guest("plain", "true")

	// Who needs them wakes them.
	n.MustHold("sleeper", "one")
	n.Guest("dozer", "true")
	mustRest(n, "dozer", api.StateRunning)

	// What was paused by somebody stays so.
	if _, err := n.Machine.Pause(ctx, "dozer"); err != nil {
		t.Fatal(err)
	}
	_, err := n.Exec("dozer", "true")
	harness.WantCode(t, err, api.CodeWrongState)

	cancel()
	<-out
	clock.Advance(59 * time.Second)
	n.Guest("sleeper", "true")
	clock.Advance(time.Second)
	mustBeGone(n, "brief")
	clock.Advance(58 * time.Second)
	n.Guest("sleeper", "true") // had it slept, the next line would not be
	if s := n.Get("sleeper"); s.ActiveAt == nil || !s.ActiveAt.Equal(clock.Now().UTC()) {
		t.Errorf("it was used at %v, not %v", s.ActiveAt, clock.Now())
	}

	// A ttl ends a sandbox whatever it does.
	clock.Advance(time.Hour)
	mustBeGone(n, "mortal")
	mustRest(n, "sleeper", api.StateHibernated)
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
	createWith(n, "sleeper", api.LifecycleRequest{IdleTimeoutMS: ms(time.Hour)})
	createWith(n, "mortal", api.LifecycleRequest{TTLMS: ms(time.Hour)})
	kid := n.Fork("sleeper", 1)[0]
	if kid.Lifecycle.IdleTimeout() != time.Hour {
		t.Errorf("a child has %+v", kid.Lifecycle)
	}
	clock.Advance(30 * time.Minute)
	n.Guest("sleeper", "true")
	n.Reopen()
	clock.Advance(45 * time.Minute)
	mustBeGone(n, "mortal")
	mustRest(n, kid.ID, api.StateHibernated)
	mustRest(n, "sleeper", api.StateRunning)
	clock.Advance(45 * time.Minute)
	mustRest(n, "sleeper", api.StateHibernated)
}

func TestHostRestart(t *testing.T) {
	ctx := harness.AsOwner
	n := harness.NewClosedNode(t, harness.NewDir(t)+"/data")
	n.BootID = "first"
	n.Open()
	t.Cleanup(n.Finish)
	n.Create("running")
	n.Create("asleep")
	n.Hold("asleep", "-value", "one", "-only", held)
	n.Hibernate("asleep")
	kept, err := n.Machine.Snapshot(ctx, "running", api.SnapshotRequest{Name: "kept"})
	if err != nil {
		t.Fatal(err)
	}
	n.BootID = "second" // the sentries of the first run are left over, as it were
	n.Reopen()
	if s := n.Get("running"); s.State != api.StateFailed || s.Reason != "host restarted" {
		t.Errorf("it is %s: %s", s.State, s.Reason)
	}
	_, err = n.Exec("running", "true")
	harness.WantCode(t, err, api.CodeSandboxDied)
	harness.Eventually(t, "sentries of the first run are collected", func() error {
		if s := n.Sentries(); len(s) > n.Pool {
			return fmt.Errorf("%d sentries", len(s))
		}
		return nil
	})
	n.MustHold("asleep", "one")
	r, err := n.Machine.Restore(ctx, kept.ID, api.RestoreRequest{Count: 1})
	if err != nil {
		t.Fatal(err)
	}
	n.Guest(n.Children(r)[0].ID, "true")
	if err := n.Machine.DeleteSnapshot(ctx, kept.ID, api.SnapshotDeletion{}); err != nil {
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
	rounds := harness.Kills(t, 12, 4)
	rng := harness.Seeded(t)
	n := harness.NewNode(t)
	n.Create("base")
	n.Hold("base", "-value", "zero", "-only", held)
	n.Close()
	states := map[api.State]int{}
	for range rounds {
		p := harness.StartVictim(t, harness.Victim{Runtime: n.Paths.RuntimeDir(), Data: n.Paths.DataDir(), Engine: n.Build, Seed: rng.Uint64(), Work: "sleep"})
		p.Next()
		harness.RandomPause(rng, 60*time.Millisecond)
		p.Kill()
		n.Open()
		states[n.Get("base").State]++
		n.MustHold("base", "zero")
		n.DestroyAllBut("base")
		n.Close()
	}
	t.Logf("found: %v", states)
	n.Open()
	n.Destroy("base")
	if files := harness.FilesBelow(t, n.Paths.Snapshots()); len(files) != 0 {
		t.Errorf("left over: %s", strings.Join(files, " "))
	}
}

// TestPausingIsNobodysState has the daemon end after a sandbox was paused and before
// that was written down. Nobody was told, and nobody would resume it.
func TestPausingIsNobodysState(t *testing.T) {
	n := harness.NewNode(t)
	base := n.Create("base")
	n.Hold("base", "-value", "one", "-only", "heap")
	if _, err := n.Machine.Pause(harness.AsOwner, base.ID); err != nil {
		t.Fatal(err)
	}
	if err := n.Machine.Close(); err != nil {
		t.Fatal(err)
	}
	rewrite(n, base.ID, `"state":"paused"`, `"state":"running"`)
	n.Open()
	if s := n.Get("base"); s.State != api.StateRunning {
		t.Errorf("it is %s", s.State)
	}
	n.MustHold("base", "one")
}

// rewrite changes the record of a sandbox while no daemon runs.
func rewrite(n *harness.Node, id, old, new string) {
	n.T.Helper()
	ctx := harness.AsOwner
	s, err := store.Open(ctx, n.Paths.Registry())
	if err != nil {
		n.T.Fatal(err)
	}
	var doc json.RawMessage
	found, err := s.Get(ctx, store.Sandboxes, id, &doc)
	if err != nil || !found || strings.Count(string(doc), old) != 1 {
		n.T.Fatalf("the record is %s, %v", doc, err)
	}
	doc = json.RawMessage(strings.Replace(string(doc), old, new, 1))
	if err := errors.Join(s.Apply(ctx, store.Change{Table: store.Sandboxes, ID: id, Doc: doc}), s.Close()); err != nil {
		n.T.Fatal(err)
	}
}
