package compare

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/test/harness"
)

// diff returns the changes from one sandbox to another.
func diff(n *harness.Node, from, to string, req api.DiffRequest) []api.Change {
	n.T.Helper()
	d, err := n.Machine.Diff(harness.AsOwner, from, to, req)
	if err != nil {
		n.T.Fatal(err)
	}
	return d.Changes
}

// TestDiff compares a sandbox with its children after changes of every kind.
func TestDiff(t *testing.T) {
	n := harness.NewNode(t)
	n.Create("parent")
	n.Guest("parent", "write", "/root/same", "one\ntwo\n")
	n.Guest("parent", "write", "/root/dir/file", "in a directory\n")
	n.Guest("parent", "write", "/root/rewritten", "x")
	r, err := n.Machine.Fork(harness.AsOwner, "parent", api.ForkRequest{Names: []string{"a", "b"}})
	if err != nil {
		t.Fatal(err)
	}
	n.Children(r)
	// The files of the identity differ, but only who asks for them gets them.
	for _, pair := range [][2]string{{"parent", "a"}, {"a", "b"}, {"a", "a"}} {
		if c := diff(n, pair[0], pair[1], api.DiffRequest{}); len(c) > 0 {
			t.Errorf("untouched %v differ: %+v", pair, c)
		}
	}
	asked := diff(n, "parent", "a", api.DiffRequest{Paths: []string{"/etc"}})
	if len(asked) != 1 || asked[0].Path != api.MachineIDFile {
		t.Errorf("below /etc differ: %+v", asked)
	}

	ctx := harness.AsOwner
	for name, memory := range map[string]bool{"in-memory": true, "on-disk": false} {
		if _, err := n.Machine.Snapshot(ctx, "parent", api.SnapshotRequest{Name: name, Memory: memory}); err != nil {
			t.Fatal(err)
		}
	}
	if r, err = n.Machine.Restore(ctx, "on-disk", api.RestoreRequest{Names: []string{"restored"}}); err != nil {
		t.Fatal(err)
	}
	n.Children(r)
	for _, change := range [][]string{
		{"write", "/root/same", "one\n2\n"},
		{"write", "/root/rewritten", "x"}, // the same again
		{"write", "/root/new", "hello\n"},
		{"write", "/srv/changed", "other\n", "600"},
		{"rm", "/srv/deleted"},
		{"rm", "/root/dir"},
		{"write", "/root/dir/other", "instead\n"},
		{"ln", "/root/new", "/root/link"},
		{"mv", "/srv/text", "/srv/moved"},
	} {
		n.Guest("a", change...)
	}
	const root = "0:0"
	want := []api.Change{
		{Path: "/root/dir/file", Kind: api.Deleted, Type: "file", Size: 15, Mode: "0644", Owner: root},
		{Path: "/root/dir/other", Kind: api.Added, Type: "file", Size: 8, Mode: "0644", Owner: root},
		{Path: "/root/link", Kind: api.Added, Type: "symlink", Size: 9, Mode: "0777", Owner: root},
		{Path: "/root/new", Kind: api.Added, Type: "file", Size: 6, Mode: "0644", Owner: root},
		{Path: "/root/same", Kind: api.Modified, Type: "file", Size: 6, OldSize: 8, Mode: "0644", Owner: root, Content: true},
		{Path: "/srv/changed", Kind: api.Modified, Type: "file", Size: 6, OldSize: 6, Mode: "0600", OldMode: "0644", Owner: root, Content: true},
		{Path: "/srv/deleted", Kind: api.Deleted, Type: "file", Size: 6, Mode: "0644", Owner: root},
		{Path: "/srv/moved", OldPath: "/srv/text", Kind: api.Renamed, Type: "file", Size: 10, OldSize: 10, Mode: "0644", Owner: root},
	}
	for _, base := range []string{"parent", "b", "in-memory", "on-disk", "restored"} {
		if d := cmp.Diff(want, diff(n, base, "a", api.DiffRequest{})); d != "" {
			t.Errorf("%s to a (-want +got):\n%s", base, d)
		}
	}
	if _, err := n.Machine.Diff(ctx, "parent", "nobody", api.DiffRequest{}); api.CodeOf(err) != api.CodeNotFound {
		t.Errorf("with nobody: %v", err)
	}
	n.Create("stranger")                                                         // of the same image
	if c := diff(n, "stranger", "a", api.DiffRequest{}); len(c) != len(want)+1 { // neither were the others written there
		t.Errorf("from a stranger: %+v", c)
	}
	below := diff(n, "parent", "a", api.DiffRequest{Paths: []string{"/srv", "/root/same"}, Hunks: true})
	if len(below) != 4 || !strings.Contains(below[0].Hunks, "-two\n+2\n") || !strings.Contains(below[0].Hunks, "a/root/same") {
		t.Errorf("below the paths: %+v", below)
	}
	// The other way round, what was added is deleted.
	for _, c := range diff(n, "a", "parent", api.DiffRequest{Paths: []string{"/root/new", "/srv/deleted"}}) {
		if c.Path == "/root/new" && c.Kind != api.Deleted || c.Path == "/srv/deleted" && c.Kind != api.Added {
			t.Errorf("backwards: %+v", c)
		}
	}
	d, err := n.Machine.Diff(harness.AsOwner, "a", "b", api.DiffRequest{})
	if err != nil {
		t.Fatal(err)
	}
	parent, err := n.Machine.Get(harness.AsOwner, "parent")
	if err != nil || d.Base != parent.ID {
		t.Errorf("common ancestor of a and b is %q, not %q (%v)", d.Base, parent.ID, err)
	}
}

// TestDiffOfWhatChanges compares two sandboxes in which files are replaced all
// the time. What vanishes while it is looked at must not fail the whole.
func TestDiffOfWhatChanges(t *testing.T) {
	ctx, cancel := context.WithCancel(harness.AsOwner)
	n := harness.NewNode(t)
	n.Create("parent")
	n.Guest("parent", "write", "/srv/churn/6", "0")
	n.Guest("parent", "write", "/root/kept", "old\n")
	child := n.Fork("parent", 1)[0].ID
	n.Guest(child, "write", "/root/kept", "new\n")
	var commands sync.WaitGroup
	defer commands.Wait()
	defer cancel()
	for _, ref := range []string{"parent", child} {
		g := harness.NewGatedWriter()
		close(g.Open)
		commands.Go(func() {
			_, err := n.Machine.Exec(ctx, ref, api.ExecRequest{Argv: []string{"guest", "churn", "/srv/churn"}}, api.ExecIO{Stdout: g, Stderr: io.Discard})
			harness.WantCode(t, err, api.CodeCanceled)
		})
		<-g.Waiting
	}
	for range 100 {
		d, err := n.Machine.Diff(ctx, "parent", child, api.DiffRequest{Hunks: true})
		if err != nil {
			t.Fatal(err)
		}
		if c := d.Changes[0]; c.Path != "/root/kept" || !strings.Contains(c.Hunks, "-old\n+new\n") {
			t.Fatalf("the file that is left alone: %+v", c)
		}
		for _, c := range d.Changes {
			if c.Type == "device" {
				t.Fatalf("something that nobody made: %+v", c)
			}
		}
	}
}

// TestDiffIsFast compares two children that changed few files of many.
func TestDiffIsFast(t *testing.T) {
	files := 50_000
	if testing.Short() {
		files = 5000
	}
	n := harness.NewNode(t)
	n.Create("parent")
	n.Long("parent", "many", "/srv/many", fmt.Sprint(files), "1", strings.Repeat("text\n", 100))
	r, err := n.Machine.Fork(harness.AsOwner, "parent", api.ForkRequest{Names: []string{"a", "b"}})
	if err != nil {
		t.Fatal(err)
	}
	n.Children(r)
	n.Long("a", "many", "/srv/many", fmt.Sprint(files), fmt.Sprint(files/10), "a\n")
	n.Long("b", "many", "/srv/many", fmt.Sprint(files-1), fmt.Sprint(files/10-1), "b\n")
	n.Guest("b", "mv", "/srv/many/7", "/srv/seven") // a rename is one change
	var times []time.Duration
	for range 50 {
		began := time.Now()
		changes := diff(n, "a", "b", api.DiffRequest{Hunks: true})
		times = append(times, time.Since(began))
		if len(changes) != 21 {
			t.Fatalf("%d changes: %+v", len(changes), changes)
		}
	}
	slices.Sort(times)
	t.Logf("%d files: %v in the median, %v to %v", files, times[25], times[0], times[49])
	// It takes 3 ms. Looking at all files would take seconds.
	const most = 50 * time.Millisecond
	if times[0] > most {
		t.Errorf("it took %v at least, more than %v", times[0], most)
	}
}

// TestDiffOfNoPath asks about paths that neither side has, and that one of them has.
func TestDiffOfNoPath(t *testing.T) {
	n := harness.NewNode(t)
	n.Create("base")
	child := n.Fork("base", 1)[0].ID
	n.Guest(child, "edit", "put /new x")
	for path, code := range map[string]api.Code{"/new": "", "/": "", "/tmp": "", "/new/below": api.CodeNotFound, "/typo": api.CodeNotFound} {
		for _, sides := range [][2]string{{"base", child}, {child, "base"}} {
			_, err := n.Machine.Diff(harness.AsOwnerIn(t), sides[0], sides[1], api.DiffRequest{Paths: []string{"/etc", path}})
			harness.WantCode(t, err, code)
			if code != "" && err != nil && !strings.Contains(err.Error(), path) {
				t.Errorf("%s: %v", path, err)
			}
		}
	}
}
