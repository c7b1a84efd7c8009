package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/control"
	"ramet.dev/ramet/internal/engine/sentrybin"
	"ramet.dev/ramet/internal/machine"
	"ramet.dev/ramet/test/harness"
)

// newControlNode opens a node that has the command of sandboxes.
func newControlNode(t *testing.T) *harness.Node {
	t.Helper()
	command, err := sentrybin.OpenCommand()
	if errors.Is(err, sentrybin.ErrMissing) {
		t.Skip("make build was not run: there is no command for sandboxes")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { command.Close() })
	n := harness.NewNode(t)
	if err := n.Machine.Close(); err != nil {
		t.Fatal(err)
	}
	n.Command = command
	n.Open()
	return n
}

// createFree makes a sandbox that may control itself.
func createFree(n *harness.Node, name string, may api.SelfControl) *api.Sandbox {
	n.T.Helper()
	s, err := n.Machine.Create(harness.AsOwner, api.CreateRequest{Image: "box", Name: name, SelfControl: &may, Metadata: map[string]string{"outside": "1"}})
	if err != nil {
		n.T.Fatalf("create: %v", err)
	}
	return s
}

// say has a process say one request, and returns the answer.
func say(n *harness.Node, ref, line string) control.Reply {
	n.T.Helper()
	var r control.Reply
	if out := n.Guest(ref, "control", "say", line); json.Unmarshal([]byte(out), &r) != nil {
		n.T.Fatalf("%s: the answer to %s is %q", ref, line, out)
	}
	return r
}

func selfInfo(n *harness.Node, ref string) *control.Info {
	n.T.Helper()
	r := say(n, ref, `{"op":"info"}`)
	if r.Info == nil {
		n.T.Fatalf("%s: info is %+v", ref, r.Error)
	}
	return r.Info
}

// wantRefused checks for an error that has words in it.
func wantRefused(n *harness.Node, ref, line string, code api.Code, words string) {
	n.T.Helper()
	r := say(n, ref, line)
	if r.Error == nil || r.Error.Code != string(code) || !strings.Contains(r.Error.Error(), words) || r.Error.ExitCode != code.ExitCode() {
		n.T.Errorf("%s: the answer is %+v, want %s that says %q", line, r.Error, code, words)
	}
}

// tagged returns the sandboxes with metadata k=v.
func tagged(n *harness.Node, k, v string) []api.Sandbox {
	n.T.Helper()
	list, err := n.Machine.List(harness.AsOwner, api.ListFilter{Metadata: map[string]string{k: v}})
	if err != nil {
		n.T.Fatal(err)
	}
	return list
}

func TestControlIsOffByDefault(t *testing.T) {
	n := newControlNode(t)
	n.Create("plain")
	for _, args := range [][]string{{"control", "say", `{"op":"info"}`}, {"cat", control.CommandPath}, {"cat", control.SocketPath}} {
		out, err := n.Exec("plain", args...)
		if err != nil || out.ExitCode == 0 || !strings.Contains(out.Stderr.String(), "no such file") {
			t.Errorf("%v: %v %s", args, err, out.Stderr.String())
		}
	}
	for field, c := range map[string]api.SelfControl{
		"self_control.forks": {Depth: 1}, "self_control.depth": {Forks: 1}, "self_control.snapshots": {Forks: 1, Depth: 1, Snapshots: 101},
	} {
		_, err := n.Machine.Create(harness.AsOwner, api.CreateRequest{Image: "box", SelfControl: &c})
		if api.CodeOf(err) != api.CodeInvalid || api.AsError(err).Field != field {
			t.Errorf("%+v: %v, want an error about %s", c, err, field)
		}
	}
}

// TestControlAgent has an agent branch its sandbox from within.
func TestControlAgent(t *testing.T) {
	n := newControlNode(t)
	root := createFree(n, "root", api.SelfControl{Forks: 6, Depth: 2})
	if out := n.Guest("root", "control", "agent", "3"); !strings.HasPrefix(out, "parent sbx_") || len(strings.Fields(out)) != 4 {
		t.Errorf("the agent printed %q", out)
	}
	for branch, depth := range map[string]int{"0": 1, "1": 1, "2": 1, "0.0": 0} {
		harness.Eventually(t, "branch "+branch, func() error {
			if list := tagged(n, "branch", branch); len(list) != 1 {
				return fmt.Errorf("%d sandboxes", len(list))
			}
			return nil
		})
		s := tagged(n, "branch", branch)[0]
		if s.SelfControl == nil || s.SelfControl.Depth != depth || s.Metadata["outside"] != "1" {
			t.Errorf("branch %s has %+v and %v", branch, s.SelfControl, s.Metadata)
		}
	}
	harness.Eventually(t, "too deep", func() error {
		s := tagged(n, "branch", "0.0")[0]
		if s.Metadata["exit"] != "5" || !strings.Contains(s.Metadata["said"], "depth: ") {
			return fmt.Errorf("%v", s.Metadata)
		}
		return nil
	})
	if list := tagged(n, "wrong", ""); len(list) != 0 {
		t.Errorf("%+v", list)
	}
	info := selfInfo(n, "root")
	if info.ID != root.ID || len(info.Children) != 3 || info.Budget.Forks != (control.Left{Limit: 6, Left: 2}) || info.Budget.Depth.Left != 2 {
		t.Errorf("root is %+v", info)
	}
	// A child is compared with its parent, and nobody else's is.
	n.Edit(info.Children[1].ID, `"put /srv/odd\xff x"`)
	d := say(n, "root", `{"op":"diff","with":"`+info.Children[1].ID+`"}`).Diff
	want := []control.Change{{Kind: "added", Path: "/srv/branch-1"}, {Kind: "added", Path: "/srv/odd\uFFFD", Exact: []byte("/srv/odd\xff")}}
	if d == nil || !reflect.DeepEqual(d.Changes, want) {
		t.Errorf("diff %+v, want %+v", d, want)
	}
	wantRefused(n, info.Children[0].ID, `{"op":"diff","with":"`+info.Children[1].ID+`"}`, api.CodeNotFound, "no snapshot")
	wantRefused(n, "root", `{"op":"fork","count":0}`, api.CodeInvalid, "0 is not from 1 to")
	wantRefused(n, "root", `{"op":"fork","count":3}`, api.CodeLimit, "forks: 4 of 6")
	wantRefused(n, "root", `{"op":"snapshot"}`, api.CodeLimit, "snapshots: 0 of 0")
	wantRefused(n, "root", `{"op":"tag","set":{"outside":"2"}}`, api.CodeConflict, "set from outside")
	wantRefused(n, "root", `{"op":"fork","metadata":{"outside":"2"}}`, api.CodeConflict, "set from outside")
	wantRefused(n, "root", `{"op":"tag","set":{"a b":"2"}}`, api.CodeInvalid, "is not a key")
	if r := say(n, "root", `{"op":"tag","set":{"a":"1","b":"2"}}`); r.Tagged == nil || !maps.Equal(r.Tagged.Metadata, map[string]string{"outside": "1", "a": "1", "b": "2"}) {
		t.Errorf("tagged %+v", r)
	}
	if r := say(n, "root", `{"op":"tag","set":{"a":"2"},"remove":["b"]}`); r.Tagged == nil || !maps.Equal(r.Tagged.Metadata, map[string]string{"outside": "1", "a": "2"}) {
		t.Errorf("tagged %+v", r)
	}
	// What the sandbox says of itself is told apart, in what comes of it, too.
	claims := func(ref string) string {
		t.Helper()
		s, err := n.Machine.Get(harness.AsOwner, ref)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(s.Labels(), s.Claims())
	}
	if got := claims("root"); got != "map[outside:1] map[a:2]" {
		t.Errorf("the sandbox has %s", got)
	}
	if got := claims(info.Children[0].ID); !strings.HasPrefix(got, "map[outside:1] map[branch:0") {
		t.Errorf("a child of its own has %s", got)
	}
	// What was changed from outside meanwhile is not the sandbox's any more.
	mine := "mine"
	if _, err := n.Machine.Update(harness.AsOwner, "root", api.UpdateRequest{Metadata: map[string]*string{"a": &mine}}); err != nil {
		t.Fatal(err)
	}
	wantRefused(n, "root", `{"op":"tag","remove":["a"]}`, api.CodeConflict, "set from outside")
	// What is forked from outside shares the budget, and is nobody's own child.
	out := n.Fork("root", 1)[0]
	if i := selfInfo(n, out.ID); i.Budget != selfInfo(n, "root").Budget || len(selfInfo(n, "root").Children) != 3 {
		t.Errorf("a child made from outside has %+v", i.Budget)
	}
	if r := say(n, out.ID, `{"op":"fork","count":2}`); len(r.Children) != 2 {
		t.Errorf("%+v", r)
	}
	wantRefused(n, "root", `{"op":"fork"}`, api.CodeLimit, "forks: 6 of 6")
	// The budget goes with the last who has it.
	if grants := n.Count("grants"); grants != 1 {
		t.Errorf("%d grants are recorded", grants)
	}
	list, err := n.Machine.List(harness.AsOwner, api.ListFilter{})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range list {
		n.Destroy(s.ID)
	}
	if grants := n.Count("grants"); grants != 0 {
		t.Errorf("%d grants are left", grants)
	}
}

// TestControlRelatives has relatives fork at the same time: together they cannot
// make more than was granted.
func TestControlRelatives(t *testing.T) {
	harness.OnlyOnce(t, "what sandboxes may do to each other does not depend on who starts them")
	n := newControlNode(t)
	createFree(n, "root", api.SelfControl{Forks: 10, Depth: 3})
	for range 3 {
		n.Start("root", api.StartRequest{}, "control", "fork", "3")
	}
	harness.Eventually(t, "the budget", func() error {
		if i := selfInfo(n, "root"); i.Budget.Forks.Left != 0 {
			return fmt.Errorf("%d left", i.Budget.Forks.Left)
		}
		return nil
	})
	harness.Eventually(t, "all children", func() error {
		if made := len(tagged(n, "made", "1")); made != 10 {
			return fmt.Errorf("%d sandboxes were made, not 10", made)
		}
		return nil
	})
	for _, s := range tagged(n, "made", "1") {
		if r := say(n, s.ID, `{"op":"fork"}`); r.Error == nil || r.Error.Code != string(api.CodeLimit) {
			t.Errorf("%s could fork once more: %+v", s.ID, r)
		}
	}
	if made := len(tagged(n, "made", "1")); made != 10 {
		t.Errorf("%d sandboxes were made, not 10", made)
	}
}

// TestControlSnapshots rolls a sandbox back from within, and restores what it
// kept.
func TestControlSnapshots(t *testing.T) {
	n := newControlNode(t)
	ctx := harness.AsOwner
	root := createFree(n, "root", api.SelfControl{Forks: 5, Depth: 3, Snapshots: 3})
	wantRefused(n, "root", `{"op":"rollback"}`, api.CodeNotFound, "made no snapshot")
	before := say(n, "root", `{"op":"snapshot","name":"good","memory":true}`).Snapshot
	if before == nil || before.Name != "good" {
		t.Fatalf("snapshot %+v", before)
	}
	if s, err := n.Machine.GetSnapshot(ctx, before.ID); err != nil || s.Name != "" || s.Label != "good" || s.OnDisk || s.Sandbox != root.ID {
		t.Errorf("snapshot %+v, %v", s, err)
	}
	kid := say(n, "root", `{"op":"fork"}`).Children[0].ID
	n.Guest("root", "write", "/srv/after", "x")
	if d := say(n, "root", `{"op":"diff","with":"good"}`).Diff; d == nil || len(d.Changes) != 1 || d.Changes[0].Path != "/srv/after" {
		t.Errorf("diff %+v", d)
	}
	tree, err := n.Machine.Tree(harness.AsOwnerIn(t), "root")
	if err != nil || len(tree) != 1 || !slices.ContainsFunc(tree[0].Children, func(c *api.TreeNode) bool { return c.ID == before.ID && c.Label == "good" && c.Name == "" }) {
		t.Errorf("the tree is %+v, %v", tree, err)
	}
	// One that waits is told of the snapshot, and in what is made from it that it
	// was restored.
	n.Start("root", api.StartRequest{}, "control", "note", `{"op":"snapshot","name":"second"}`)
	harness.Eventually(t, "the snapshot", func() error {
		out, err := n.Exec("root", "cat", "/srv/note")
		if err != nil || !strings.Contains(out.Stdout.String(), `{"snapshot":{"id":"snap_`) {
			return fmt.Errorf("%v: %s", err, out.Stdout.String())
		}
		return nil
	})
	second := selfInfo(n, "root").Snapshots[1].ID
	restored, err := n.Machine.Restore(ctx, second, api.RestoreRequest{})
	if err != nil {
		t.Fatal(err)
	}
	other := n.Children(restored)[0].ID
	harness.Eventually(t, "the restored sandbox", func() error {
		out, err := n.Exec(other, "cat", "/srv/note")
		if err != nil || !strings.Contains(out.Stdout.String(), `{"restored":{"id":"`+other+`"`) {
			return fmt.Errorf("%v: %s", err, out.Stdout.String())
		}
		return nil
	})
	// A child knows what its parent kept before it was made, and nothing later.
	if s := selfInfo(n, kid).Snapshots; len(s) != 1 || s[0] != *before {
		t.Errorf("the child knows %+v", s)
	}
	wantRefused(n, kid, `{"op":"rollback","snapshot":"`+second+`"}`, api.CodeNotFound, "no snapshot")
	foreign, err := n.Machine.Snapshot(ctx, "root", api.SnapshotRequest{Name: "outside", Memory: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, ref := range []string{foreign.ID, "outside"} {
		wantRefused(n, "root", `{"op":"rollback","snapshot":"`+ref+`"}`, api.CodeNotFound, "no snapshot")
	}

	n.Start("root", api.StartRequest{}, "control", "note", `{"op":"rollback","snapshot":"good"}`)
	harness.Eventually(t, "the rollback", func() error {
		out, err := n.Exec("root", "cat", "/srv/after")
		if err != nil || out.ExitCode == 0 {
			return fmt.Errorf("it is not rolled back: %v", err)
		}
		return nil
	})
	info := selfInfo(n, "root")
	if info.ID != root.ID || len(info.Snapshots) != 2 || info.Budget.Snapshots.Left != 1 || info.Budget.Forks.Left != 4 {
		t.Errorf("after the rollback %+v", info)
	}
}

// TestControlHostile has guests say what they should not, and not listen.
func TestControlHostile(t *testing.T) {
	n := newControlNode(t)
	createFree(n, "root", api.SelfControl{Forks: 5, Depth: 3})
	n.Guest("root", "control", "garbage")
	pid := n.Start("root", api.StartRequest{}, "control", "deaf")
	f := n.Follow("root", pid, 0)
	f.Await("deaf\n")
	selfInfo(n, "root")
	kid := say(n, "root", `{"op":"fork"}`).Children[0].ID
	selfInfo(n, kid) // although the deaf connections are there, too
	f.Detach()
}

// TestControlAskAgain forks a sandbox from outside while its processes wait for
// answers: those in the child are told to ask again, and can.
func TestControlAskAgain(t *testing.T) {
	n := newControlNode(t)
	createFree(n, "root", api.SelfControl{Forks: 5, Depth: 3})
	for range 4 { // more than are answered at once
		n.Start("root", api.StartRequest{}, "control", "storm")
	}
	var seen []string
	harness.Eventually(t, "a request that waited", func() error {
		kid := n.Fork("root", 1)[0].ID
		selfInfo(n, kid)
		out := n.Guest(kid, "cat", "/srv/storm")
		seen = append(seen, strings.Fields(out)...)
		n.Destroy(kid)
		if !slices.Contains(seen, string(api.CodeCanceled)) {
			return errors.New("none")
		}
		return nil
	})
	if others := slices.DeleteFunc(seen, func(s string) bool { return s == string(api.CodeCanceled) }); len(others) > 0 {
		t.Errorf("processes were told %v", others)
	}
	if out := n.Guest("root", "cat", "/srv/storm"); out != "" {
		t.Errorf("in the parent they were told %q", out)
	}
}

// openAfterDeath opens the node after its daemon was killed. A process that the
// daemon was just starting may hold its lock a moment longer.
func openAfterDeath(n *harness.Node) {
	n.T.Helper()
	harness.Eventually(n.T, "the lock of the records", func() (err error) {
		n.Machine, err = machine.Open(harness.AsOwner, n.Config())
		return err
	})
}

// TestControlDaemonDies kills daemons while a tree of sandboxes forks itself. Each
// that was made is counted and none that was not, and the sandboxes can ask the
// next daemon.
func TestControlDaemonDies(t *testing.T) {
	const forks = 12
	rng := harness.Seeded(t)
	n := newControlNode(t)
	createFree(n, "base", api.SelfControl{Forks: forks, Depth: 3})
	n.Close()
	for range 6 {
		openAfterDeath(n)
		n.Start("base", api.StartRequest{}, "control", "fork", "2")
		n.Close()
		p := harness.StartVictim(t, harness.Victim{Runtime: n.Paths.RuntimeDir(), Data: n.Paths.DataDir(), Engine: n.Build, Seed: rng.Uint64(), Work: "use"})
		p.Next()
		harness.RandomPause(rng, 200*time.Millisecond)
		p.Kill()
	}
	openAfterDeath(n)
	// Who asked the daemon before asks this one again, and may be answered now.
	var left, made int
	harness.Eventually(t, "a moment at which nobody forks", func() error {
		left = selfInfo(n, "base").Budget.Forks.Left
		made = len(tagged(n, "made", "1"))
		if now := selfInfo(n, "base").Budget.Forks.Left; now != left {
			return fmt.Errorf("%d were left, and now %d", left, now)
		}
		return nil
	})
	t.Logf("%d were made, %d are left", made, left)
	if left < 0 || made != forks-left {
		t.Errorf("%d were made, and of %d %d are left", made, forks, left)
	}
	for _, s := range tagged(n, "made", "1") {
		if s.State == api.StateRunning {
			selfInfo(n, s.ID)
		}
	}
	harness.Eventually(t, "the end of the budget", func() error {
		if r := say(n, "base", `{"op":"fork"}`); r.Error == nil || r.Error.Code != string(api.CodeLimit) {
			return fmt.Errorf("%+v", r)
		}
		return nil
	})
}
