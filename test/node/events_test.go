package node

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/test/harness"
)

// events returns the kinds of what happened, in order.
func events(n *harness.Node, req api.EventRequest) (kinds []api.EventKind, all []api.Event) {
	n.T.Helper()
	err := n.Machine.Events(harness.AsOwnerIn(n.T), req, func() {}, func(e api.Event) error {
		kinds, all = append(kinds, e.Kind), append(all, e)
		return nil
	})
	if err != nil {
		n.T.Fatal(err)
	}
	return kinds, all
}

// TestEvents follows a sandbox from its creation to its end.
func TestEvents(t *testing.T) {
	n := harness.NewNode(t)
	began, ended := make(chan struct{}), make(chan error, 1)
	var followed []api.EventKind
	ctx, cancel := context.WithCancel(harness.AsOwnerIn(t))
	defer cancel()
	go func() {
		ended <- n.Machine.Events(ctx, api.EventRequest{Since: -1, Follow: true}, func() { close(began) }, func(e api.Event) error {
			followed = append(followed, e.Kind)
			if e.Kind == api.EventDestroyed {
				return errStop
			}
			return nil
		})
	}()
	<-began
	base := n.Create("base")
	n.Guest("base", "true")
	p, err := n.Machine.StartProcess(harness.AsOwnerIn(t), "base", api.StartRequest{Argv: []string{"guest", "true"}})
	if err != nil {
		t.Fatal(err)
	}
	snap, err := n.Machine.Snapshot(harness.AsOwnerIn(t), "base", api.SnapshotRequest{Name: "s"})
	if err != nil {
		t.Fatal(err)
	}
	children := n.Fork("base", 2)
	for _, do := range []func(context.Context, string) (*api.Sandbox, error){n.Machine.Pause, n.Machine.Resume} {
		if _, err := do(harness.AsOwnerIn(t), "base"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := n.Machine.Rollback(harness.AsOwnerIn(t), "base", "s"); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Machine.Promote(harness.AsOwnerIn(t), children[0].ID); err != nil {
		t.Fatal(err)
	}
	killSentry(n, sentryOf(n, children[1].ID))
	mustFail(n, children[1].ID)
	n.Destroy("base")
	if err := <-ended; !errors.Is(err, errStop) {
		t.Errorf("following ended with %v", err)
	}

	of := func(id string) (kinds []api.EventKind) {
		_, all := events(n, api.EventRequest{})
		for _, e := range all {
			if e.SandboxID == id {
				kinds = append(kinds, e.Kind)
			}
		}
		return kinds
	}
	want := []api.EventKind{
		api.EventCreated, api.EventExecuted, api.EventStarted, api.EventSnapshotted, api.EventForked, api.EventPaused,
		api.EventResumed, api.EventRolledBack, api.EventPromoted, api.EventDestroyed,
	}
	if got := of(base.ID); !slices.Equal(got, want) {
		t.Errorf("of the parent:\n%v\nand not\n%v", got, want)
	}
	if got := of(children[0].ID); !slices.Equal(got, []api.EventKind{api.EventCreated, api.EventDestroyed}) {
		t.Errorf("of the child that was promoted: %v", got)
	}
	kinds, failed := events(n, api.EventRequest{Sandbox: children[1].ID})
	if !slices.Equal(kinds, []api.EventKind{api.EventCreated, api.EventFailed}) || failed[1].Reason == "" || failed[0].Parent != base.ID {
		t.Errorf("of the child that was killed: %+v", failed)
	}
	_, some := events(n, api.EventRequest{Kinds: []api.EventKind{api.EventForked, api.EventSnapshotted, api.EventStarted}})
	if len(some) != 3 || some[0].PID != p.PID || some[1].Snapshot != snap.ID || !slices.Equal(some[2].Children, []string{children[0].ID, children[1].ID}) {
		t.Errorf("selected: %+v", some)
	}
	if last := followed[len(followed)-1]; last != api.EventDestroyed || followed[0] != api.EventCreated {
		t.Errorf("followed: %v", followed)
	}
	kinds, _ = events(n, api.EventRequest{Since: some[0].Seq, Kinds: []api.EventKind{api.EventStarted, api.EventSnapshotted}})
	if !slices.Equal(kinds, []api.EventKind{api.EventSnapshotted}) {
		t.Errorf("since the start: %v", kinds)
	}
	n.Destroy(children[1].ID)
	if err := n.Machine.DeleteSnapshot(harness.AsOwnerIn(t), "s", api.SnapshotDeletion{}); err != nil {
		t.Fatal(err)
	}
}

var errStop = errors.New("enough")

// TestEventsOfOneSandboxEnd follows one sandbox, which ends it.
func TestEventsOfOneSandboxEnd(t *testing.T) {
	n := harness.NewNode(t)
	n.Create("base")
	began, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- n.Machine.Events(harness.AsOwnerIn(t), api.EventRequest{Sandbox: "base", Follow: true, Since: -1}, func() { close(began) }, func(api.Event) error { return nil })
	}()
	<-began
	n.Destroy("base")
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("the events of a sandbox that is destroyed do not end")
	}
	for name, req := range map[string]api.EventRequest{"since": {Since: -2}, "kind": {Kinds: []api.EventKind{"x"}}, "sandbox": {Sandbox: "base"}} {
		if err := n.Machine.Events(harness.AsOwnerIn(t), req, func() { t.Error("it begins") }, nil); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
