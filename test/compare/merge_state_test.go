package compare

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/machine"
	"ramet.dev/ramet/test/harness"
)

// TestMergeBases merges sandboxes and snapshots that parted in all the ways there
// are, before and after a restart of the daemon.
func TestMergeBases(t *testing.T) {
	ctx := harness.AsOwner
	n := harness.NewNode(t)
	n.Create("p")
	n.Edit("p", "mkdir /m", "put /m/text "+mergeText, "put /m/p0 x")
	n.ForkNamed("p", "early")
	n.Edit("p", "put /m/p1 x", "put /m/early x") // early has neither
	n.ForkNamed("p", "late", "gone")
	n.ForkNamed("late", "grand")
	n.Edit("early", "put /m/from-early x")
	n.Edit("late", "put /m/from-late x", "rm /m/p1")
	n.Edit("grand", "put /m/from-grand x")
	for name, memory := range map[string]bool{"mem": true, "disk": false} {
		if _, err := n.Machine.Snapshot(ctx, "late", api.SnapshotRequest{Name: name, Memory: memory}); err != nil {
			t.Fatal(err)
		}
	}
	n.Edit("late", "put /m/later x")
	r, err := n.Machine.Restore(ctx, "disk", api.RestoreRequest{Names: []string{"restored"}})
	if err != nil {
		t.Fatal(err)
	}
	n.Children(r)
	n.Edit("restored", "put /m/from-restored x")
	n.Create("stranger")
	n.Edit("stranger", "mkdir /m", "put /m/strange x")
	n.Edit("p", "put /m/p2 x") // nobody has it, so nobody deleted it

	merged := func(into string, want map[string]string, from ...string) {
		t.Helper()
		r := merge(n, into, api.MergeRequest{From: from, DryRun: true})
		t.Helper()
		mustOutcome(t, r, want)
	}
	all := func() {
		t.Helper()
		late := map[string]string{"/m/from-late": "added", "/m/p1": "deleted"}
		merged("p", map[string]string{"/m/from-early": "added"}, "early")
		merged("p", map[string]string{"/m/from-late": "added", "/m/p1": "deleted", "/m/later": "added"}, "late")
		merged("p", map[string]string{"/m/from-grand": "added"}, "grand")
		merged("p", late, "disk")
		merged("p", map[string]string{"/m/from-late": "added", "/m/p1": "deleted", "/m/from-restored": "added"}, "restored")
		merged("late", map[string]string{"/m/from-grand": "added"}, "grand")
		merged("late", map[string]string{"/m/from-restored": "added"}, "restored")
		merged("late", map[string]string{}, "disk")                                                                              // it is what it was
		merged("early", map[string]string{"/m/from-late": "added", "/m/later": "added", "/m/early": "added"}, "late")            // p1 came and went
		merged("early", map[string]string{"/m/p1": "added", "/m/early": "added", "/m/p2": "added"}, "p")                         // from the parent
		merged("grand", map[string]string{"/m/from-early": "added"}, "early")                                                    // an aunt
		merged("grand", map[string]string{"/m/from-late": "added", "/m/p1": "deleted", "/m/from-restored": "added"}, "restored") // by a snapshot
		merged("p", map[string]string{"/m/from-late": "added", "/m/p1": "deleted", "/m/later": "added", "/m/from-grand": "added", "/m/from-early": "added"},
			"late", "grand", "early")
		merged("stranger", map[string]string{"/m/p0": "added", "/m/text": "added", "/m/from-early": "added"}, "early")
	}
	all()
	merged("p", map[string]string{"/m/from-late": "added", "/m/p1": "deleted"}, "mem")
	n.Reopen()
	all()

	// A state swap takes its history along.
	if _, err := n.Machine.Rollback(ctx, "late", "disk"); err != nil {
		t.Fatal(err)
	}
	merged("late", map[string]string{"/m/from-restored": "added"}, "restored")
	merged("p", map[string]string{"/m/from-late": "added", "/m/p1": "deleted"}, "late")
	if _, err := n.Machine.Promote(ctx, "gone"); err != nil { // p is what it was when they parted
		t.Fatal(err)
	}
	merged("p", map[string]string{"/m/from-late": "added", "/m/p1": "deleted"}, "late")
	merged("p", map[string]string{"/m/from-early": "added"}, "early")

	// Of the moment at which p and early parted nothing is left but in early's past.
	n.Destroy("early")
	merged("p", map[string]string{"/m/from-restored": "added", "/m/from-late": "added", "/m/p1": "deleted"}, "restored")
}

// TestMergeBaseGone asks for a moment that nobody keeps.
func TestMergeBaseGone(t *testing.T) {
	ctx := harness.AsOwner
	n := harness.NewNode(t)
	n.Create("p")
	n.Edit("p", "mkdir /m")
	n.ForkNamed("p", "kid")
	n.Edit("kid", "put /m/kid x")
	if _, err := n.Machine.Snapshot(ctx, "kid", api.SnapshotRequest{Name: "disk"}); err != nil {
		t.Fatal(err)
	}
	mustOutcome(t, merge(n, "p", api.MergeRequest{From: []string{"disk"}, DryRun: true}), map[string]string{"/m/kid": "added"})
	n.Destroy("kid")
	_, err := n.Machine.Merge(ctx, "p", api.MergeRequest{From: []string{"disk"}})
	harness.WantCode(t, err, api.CodeConflict)
	if err == nil || !strings.Contains(err.Error(), "are gone") {
		t.Errorf("it says: %v", err)
	}
}

// TestMergePaths names paths that are only at some side, and one that is at none.
func TestMergePaths(t *testing.T) {
	n := harness.NewNode(t)
	n.Create("box")
	n.Edit("box", "mkdir /m", "put /m/gone x", "put /m/kept x")
	n.ForkNamed("box", "child")
	n.Edit("box", "put /m/ours x", "rm /m/gone")
	n.Edit("child", "put /m/theirs x", "rm /m/gone")
	for _, path := range []string{"/m/ours", "/m/gone", "/m/kept", "/m", "/"} {
		merge(n, "box", api.MergeRequest{From: []string{"child"}, Paths: []string{path}, DryRun: true})
	}
	for _, path := range []string{"/nosuch", "/m/kept/below", "/m/theirs2"} {
		_, err := n.Machine.Merge(harness.AsOwner, "box", api.MergeRequest{From: []string{"child"}, Paths: []string{"/m/theirs", path}})
		if harness.WantCode(t, err, api.CodeNotFound); !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", path, err)
		}
	}
	n.MustRead("child", "/m/theirs", "x")
	if _, err := n.Read("box", harness.At("/m/theirs")); api.CodeOf(err) != api.CodeNotFound {
		t.Errorf("a merge that was refused brought a file: %v", err)
	}
	r := merge(n, "box", api.MergeRequest{From: []string{"child"}, Paths: []string{"/m/theirs"}})
	mustOutcome(t, r, map[string]string{"/m/theirs": "added"})
}

// TestMergeFullDisk has no room for the changes: nothing of them is there.
func TestMergeFullDisk(t *testing.T) {
	ctx := harness.AsOwner
	n := harness.NewNode(t)
	if _, err := n.Machine.Create(ctx, api.CreateRequest{Image: "box", Name: "p", Limits: api.Limits{DiskMiB: 8}}); err != nil {
		t.Fatal(err)
	}
	n.Edit("p", "mkdir /m", "put /m/old x", "put /m/text "+mergeText)
	n.ForkNamed("p", "kid")
	n.Edit("kid", "rm /m/old", "put /m/new x", "chmod /m/text 600")
	n.Guest("kid", "fill", "/m/large", "3")
	n.Guest("p", "fill", "/root/own", "5")
	before := n.Guest("p", "list", "/m")
	_, err := n.Machine.Merge(ctx, "p", api.MergeRequest{From: []string{"kid"}})
	harness.WantCode(t, err, api.CodeNoSpace)
	if after := n.Guest("p", "list", "/m"); after != before {
		t.Errorf("something happened:\n%s\nwas\n%s", after, before)
	}
	n.Guest("p", "rm", "/root/own")
	if r := merge(n, "p", api.MergeRequest{From: []string{"kid"}}); len(r.Applied) != 4 {
		t.Errorf("with room: %v", outcome(r))
	}
	for range 30 { // what was written before it failed was given back
		merge(n, "p", api.MergeRequest{From: []string{"kid"}})
	}
}

// TestMergeTakesBack fails in the middle, at a mount point, and takes back what was
// done.
func TestMergeTakesBack(t *testing.T) {
	n := harness.NewNode(t)
	n.Create("p")
	n.Edit("p", "mkdir /m/zy", "mkdir /m/zz/in", "put /m/zz/in/x x", "put /m/a x", "mkdir /m/dir", "put /m/dir/x x", "put /m/mode x", "ln /m/l2 /m/mode", "xattr /m/mode user.a 1")
	n.ForkNamed("p", "kid")
	n.Edit("kid", "put /m/a y", "rm /m/dir", "put /m/dir file", "chmod /m/mode 600", "chown /m/mode 3.4", "xattr /m/mode user.a", "xattr /m/mode user.b 2", "put /m/new x",
		"mkdir /m/newdir", "fifo /m/newdir/fifo", "sym /m/sym x", "put /m/zz/in/y y", "chmod /m/zy 700")
	n.Edit("p", "mount /m/zz/in", "mount /m/zy")
	before := n.Guest("p", "list", "/m")
	for what, paths := range map[string][]string{"a file": nil, "attributes": {"/m/a", "/m/dir", "/m/mode", "/m/l2", "/m/newdir", "/m/zy"}} {
		_, err := n.Machine.Merge(harness.AsOwner, "p", api.MergeRequest{From: []string{"kid"}, Paths: paths})
		harness.WantCode(t, err, api.CodeConflict)
		if err == nil || !strings.Contains(err.Error(), "mounted") {
			t.Errorf("%s: it says: %v", what, err)
		}
		if after := n.Guest("p", "list", "/m"); after != before {
			t.Errorf("%s: something happened:\n%s\nwas\n%s", what, after, before)
		}
	}
	if r := merge(n, "p", api.MergeRequest{From: []string{"kid"}, Paths: []string{"/m/a", "/m/dir", "/m/mode", "/m/l2", "/m/new"}}); len(r.Applied) != 6 {
		t.Errorf("the rest: %v", outcome(r))
	}
}

// TestMergeUnderProcesses merges below what a process works with.
func TestMergeUnderProcesses(t *testing.T) {
	n := harness.NewNode(t)
	n.Create("p")
	n.Edit("p", "mkdir /m/work/deep", "put /m/work/open old", "mkdir /m/ask")
	n.Guest("p", "stay", "/m/work/deep", "/m/work/open", "/tmp/pipe", "/tmp/report")
	n.ForkNamed("p", "kid")
	n.Edit("kid", "put /m/work/open new", "put /m/work/deep/file x", "chmod /m/work 700")
	merge(n, "p", api.MergeRequest{From: []string{"kid"}})
	report := func(want ...string) {
		t.Helper()
		n.Edit("p", "add /tmp/pipe x")
		harness.Eventually(t, "the process", func() error {
			out, err := n.Exec("p", "cat", "/tmp/report")
			for _, w := range want {
				if err == nil && !strings.Contains(out.Stdout.String(), w) {
					err = fmt.Errorf("it says %q, not %q", out.Stdout.String(), w)
				}
			}
			return err
		})
	}
	report(`cwd true "/m/work/deep", file "old"`)
	mustList(n, "p", `
		/m 040755 0.0
		/m/ask 040755 0.0
		/m/work 040700 0.0
		/m/work/deep 040755 0.0
		/m/work/deep/file 100644 0.0 "x"
		/m/work/deep/made 100644 0.0 "x"
		/m/work/open 100644 0.0 "new"`)
	// What a child renames is renamed, and the process is still in it.
	n.ForkNamed("p", "mover")
	n.Edit("mover", "mkdir /m/new", "mv /m/work /m/new/moved", "put /m/new/moved/deep/file y", "rm /m/new/moved/deep/made", "put /m/new/moved/more x", "chmod /m/new/moved 711")
	mustOutcome(t, merge(n, "p", api.MergeRequest{From: []string{"mover"}}), map[string]string{
		"/m/new": "added", "/m/new/moved": "renamed", "/m/new/moved/deep/file": "modified", "/m/new/moved/deep/made": "deleted", "/m/new/moved/more": "added",
	})
	report(`cwd true "/m/new/moved/deep", file "old"`)
	mustList(n, "p", `
		/m 040755 0.0
		/m/ask 040755 0.0
		/m/new 040755 0.0
		/m/new/moved 040711 0.0
		/m/new/moved/deep 040755 0.0
		/m/new/moved/deep/file 100644 0.0 "y"
		/m/new/moved/deep/made 100644 0.0 "x"
		/m/new/moved/more 100644 0.0 "x"
		/m/new/moved/open 100644 0.0 "new"`)
	// A child in which it goes on as well.
	n.ForkNamed("p", "later")
	n.Edit("later", "rm /m/new")
	r := merge(n, "p", api.MergeRequest{From: []string{"later"}})
	if r.Unresolved() > 0 {
		t.Fatalf("conflicts: %v", outcome(r))
	}
	mustList(n, "p", `
		/m 040755 0.0
		/m/ask 040755 0.0`)
	report("cwd false", `(deleted)", file "old", open made: no such file or directory`)
}

// TestMergeOfWhatChanges merges into a sandbox whose files change meanwhile. Those
// that the merge is not about do not matter.
func TestMergeOfWhatChanges(t *testing.T) {
	n := harness.NewNode(t)
	n.Create("p")
	n.Edit("p", "mkdir /m/busy", "put /m/quiet x", "put /m/busy/x x")
	n.ForkNamed("p", "kid", "other")
	n.Edit("kid", "put /m/quiet y", "put /m/busy/new y")
	n.Edit("other", "put /m/busy/x y")
	ctx, cancel := context.WithCancel(harness.AsOwner)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = n.Machine.Exec(ctx, "p", api.ExecRequest{Argv: []string{"guest", "scribble", "/m/busy/x"}}, harness.DiscardExec()) // until it is cancelled
	}()
	harness.Eventually(t, "the writer", func() error {
		if out, err := n.Exec("p", "cat", "/m/busy/x"); err != nil || out.Stdout.String() == "x" {
			return fmt.Errorf("it does not write yet (%v)", err)
		}
		return nil
	})
	mustOutcome(t, merge(n, "p", api.MergeRequest{From: []string{"kid"}}), map[string]string{"/m/quiet": "modified", "/m/busy/new": "added"})
	_, err := n.Machine.Merge(harness.AsOwner, "p", api.MergeRequest{From: []string{"other"}, Strategy: api.MergeTheirs})
	if err != nil { // or it was quicker than the writer
		harness.WantCode(t, err, api.CodeConflict)
	}
	if _, err := n.Machine.Pause(harness.AsOwner, "p"); err != nil {
		t.Fatal(err)
	}
	if r := merge(n, "p", api.MergeRequest{From: []string{"other"}, Strategy: api.MergeTheirs}); err != nil && len(r.Applied) != 1 {
		t.Errorf("into one that is paused: %v", outcome(r))
	}
	if _, err := n.Machine.Resume(harness.AsOwner, "p"); err != nil {
		t.Fatal(err)
	}
	cancel()
	<-done
}

// mergeBase makes "base" and "kid", which changes much. It returns what is below /m
// in either.
func mergeBase(n *harness.Node) (before, after string) {
	n.T.Helper()
	n.Create("base")
	n.Guest("base", "many", "/m", "300", "1", "old")
	n.ForkNamed("base", "kid")
	n.Guest("kid", "many", "/m", "300", "2", "new")
	n.Guest("kid", "many", "/m/more", "200", "1", "new")
	n.Guest("kid", "rm", "/m/1")
	return n.Guest("base", "list", "/m"), n.Guest("kid", "list", "/m")
}

// mustBeWhole checks that sandbox is as it was before a merge or after it.
func mustBeWhole(n *harness.Node, ref, before, after string) {
	n.T.Helper()
	if got := n.Guest(ref, "list", "/m"); got != before && got != after {
		n.T.Errorf("half a merge: %d bytes of list, not %d or %d", len(got), len(before), len(after))
	}
	for _, c := range diff(n, "base", ref, api.DiffRequest{}) {
		if !strings.HasPrefix(c.Path, "/m/") {
			n.T.Errorf("something is left behind: %+v", c)
		}
	}
}

// TestMergeCancelled cancels merges at random moments.
func TestMergeCancelled(t *testing.T) {
	rng := harness.Seeded(t)
	n := harness.NewNode(t)
	before, after := mergeBase(n)
	cancelled, most := 0, harness.Window(60*time.Millisecond)
	for range harness.CrashRounds(t) {
		into := n.Fork("base", 1)[0].ID
		err := most.Cancelled(rng, func(ctx context.Context) error {
			_, err := n.Machine.Merge(ctx, into, api.MergeRequest{From: []string{"kid"}})
			return err
		})
		if err != nil {
			harness.WantCode(t, err, api.CodeCanceled)
			cancelled++
		}
		mustBeWhole(n, into, before, after)
		n.Destroy(into)
	}
	if cancelled == 0 {
		t.Error("nothing was cancelled: the test proves nothing")
	}
}

// mergeOnce merges "kid" into a new child of "base".
func mergeOnce(ctx context.Context, m *machine.Machine, _ *rand.Rand) error {
	r, err := m.Fork(ctx, "base", api.ForkRequest{})
	if err != nil {
		return err
	}
	if err := r.Children[0].Error; err != nil {
		return err
	}
	fmt.Println("merge")
	_, err = m.Merge(ctx, r.Children[0].Sandbox.ID, api.MergeRequest{From: []string{"kid"}})
	return err
}

// TestMergeDaemonDies kills daemons at random moments of a merge.
func TestMergeDaemonDies(t *testing.T) {
	rng := harness.Seeded(t)
	n := harness.NewNode(t)
	before, after := mergeBase(n)
	for range harness.CrashRounds(t) / 2 {
		n.Close()
		p := harness.StartVictim(t, harness.Victim{Runtime: n.Paths.RuntimeDir(), Data: n.Paths.DataDir(), Engine: n.Build, Seed: rng.Uint64(), Work: "merge"})
		p.Next()
		harness.RandomPause(rng, 60*time.Millisecond)
		p.Kill()
		n.Open()
		list, err := n.Machine.List(harness.AsOwner, api.ListFilter{})
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range list {
			if s.Name == "" {
				mustBeWhole(n, s.ID, before, after)
				n.Destroy(s.ID)
			}
		}
	}
	into := n.Fork("base", 1)[0].ID
	merge(n, into, api.MergeRequest{From: []string{"kid"}})
	if got := n.Guest(into, "list", "/m"); got != after {
		t.Errorf("after all that a merge does something else")
	}
}
