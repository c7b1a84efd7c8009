package snapshot

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/node"
	"ramet.dev/ramet/test/harness"
)

// engined opens a node that keeps programs.
func engined(t *testing.T) *harness.Node {
	t.Helper()
	n := harness.NewClosedNode(t, filepath.Join(harness.NewDir(t), "data"))
	n.Configure = func(c *node.Config) { c.KeepEngines = true }
	n.Open()
	t.Cleanup(n.Finish)
	return n
}

// destroyBut destroys all sandboxes but one. Snapshots stay.
func destroyBut(n *harness.Node, name string) {
	n.T.Helper()
	list, err := n.Machine.List(harness.AsOwner, api.ListFilter{})
	if err != nil {
		n.T.Fatal(err)
	}
	for _, s := range list {
		if s.Name != name || name == "" {
			n.Destroy(s.ID)
		}
	}
}

// TestUpgradeKeepsSnapshots replaces the daemon by one of another engine: snapshots and
// hibernated sandboxes of the one before are restored, forked and frozen by the program that
// wrote them, also after that one is replaced again.
func TestUpgradeKeepsSnapshots(t *testing.T) {
	ctx := harness.AsOwner
	n := engined(t)
	n.Create("base")
	n.Hold("base", "-value", "one", "-only", held)
	if left, err := os.ReadDir(n.Paths.Engines()); err != nil || len(left) > 0 {
		t.Errorf("before a snapshot there are %v, %v", left, err)
	}
	first := n.Snapshot("base", api.SnapshotRequest{Name: "one"})
	n.ForkNamed("base", "rests")
	n.Hibernate("rests")
	for i := range 2 {
		n.Build = "upgraded-" + harness.RandomHex()
		n.Reopen()
		n.RestoredHolds("one", "one")
		r, err := n.Machine.Restore(ctx, "one", api.RestoreRequest{Names: []string{"kid"}})
		if err != nil {
			t.Fatal(err)
		}
		n.Children(r)
		n.MustHold("kid", "one")
		n.Change("kid", "one", "two")
		if second := n.Snapshot("kid", api.SnapshotRequest{}); second.Engine != first.Engine {
			t.Errorf("a snapshot of what engine %s runs is of engine %s", first.Engine, second.Engine)
		} else {
			n.RestoredHolds(second.ID, "two")
		}
		n.ForkNamed("kid", "grandkid")
		n.MustHold("grandkid", "two")
		n.Fork("kid", 17) // by a template
		if i == 0 {
			n.MustHold("rests", "one") // which wakes it
			n.Hibernate("rests")
			n.ForkNamed("rests", "of-rest")
			n.MustHold("of-rest", "one")
		}
		if _, err := n.Machine.Rollback(ctx, "kid", "one"); err != nil {
			t.Fatal(err)
		}
		n.MustHold("kid", "one")
		destroyBut(n, "rests")
		n.Create("new") // of the present engine
		if got := n.Snapshot("new", api.SnapshotRequest{}); got.Engine == first.Engine {
			t.Errorf("a new sandbox is of engine %s", got.Engine)
		}
		n.Destroy("new")
	}
	n.DestroyAll()
	n.Reopen()
	entries, err := os.ReadDir(n.Paths.Engines())
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) > 2 { // its own program
		t.Errorf("programs that nothing needs are left: %v", entries)
	}
}

// TestUpgradeWithoutTheProgram has lost the program that wrote a snapshot.
func TestUpgradeWithoutTheProgram(t *testing.T) {
	ctx := harness.AsOwner
	n := engined(t)
	n.Create("base")
	n.Snapshot("base", api.SnapshotRequest{Name: "one"})
	destroyBut(n, "")
	n.Close()
	for _, f := range harness.FilesBelow(t, n.Paths.Engines()) {
		if err := os.RemoveAll(f); err != nil {
			t.Fatal(err)
		}
	}
	n.Build = "upgraded-" + harness.RandomHex()
	n.Open()
	_, err := n.Machine.Restore(ctx, "one", api.RestoreRequest{})
	harness.WantCode(t, err, api.CodeUnsupported)
}

// TestPackWithEngine moves a snapshot to a daemon of another engine, which runs it with the
// program that came with it if its signer is trusted.
func TestPackWithEngine(t *testing.T) {
	ctx := harness.AsOwner
	from := harness.NewClosedNode(t, filepath.Join(harness.NewDir(t), "data"))
	from.Open()
	from.Create("base")
	from.Hold("base", "-value", "one", "-only", held)
	from.Snapshot("base", api.SnapshotRequest{Name: "s"})
	key, err := from.Machine.SigningKey(ctx)
	if err != nil {
		t.Fatal(err)
	}
	whole, bare := packed(t, from, "s", api.PackRequest{Sign: true, WithEngine: true}), packed(t, from, "s", api.PackRequest{Sign: true})
	from.Finish()
	n := engined(t)
	refused := func(who context.Context, b []byte, code api.Code, trust ...string) {
		t.Helper()
		_, err := n.Machine.Unpack(who, bytes.NewReader(b), api.UnpackRequest{Trust: trust})
		harness.WantCode(t, err, code)
	}
	refused(ctx, bare, api.CodeUnsupported, key.Key)
	refused(ctx, whole, api.CodeForbidden)
	refused(harness.AsTenant("acme"), whole, api.CodeForbidden, key.Key)
	if _, err := n.Machine.Unpack(ctx, bytes.NewReader(whole), api.UnpackRequest{Trust: []string{key.Key}}); err != nil {
		t.Fatal(err)
	}
	n.RestoredHolds("s", "one")
	if again := packed(t, n, "s", api.PackRequest{WithEngine: true}); len(again) < len(bare) {
		t.Errorf("packed again with the engine it has %d bytes", len(again))
	}
	n.Reopen()
	n.RestoredHolds("s", "one")
	if _, err := n.Machine.Unpack(ctx, bytes.NewReader(bare), api.UnpackRequest{Name: "second"}); err != nil {
		t.Error(err) // the engine is known by now
	}
}
