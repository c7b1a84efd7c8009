package compare

import (
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/test/harness"
)

// conflicting makes a parent and the children a and b that do not agree in any way
// there is.
func conflicting(n *harness.Node) {
	n.T.Helper()
	n.Create("parent")
	n.Edit("parent", "mkdir /m/dir/sub", "put /m/dir/sub/x x", "mkdir /m/gone", "put /m/gone/x x", `"put /m/bin \x01\xff1"`, "put /m/text 1\n2\n3\n4\n5\n",
		"put /m/kind x", "put /m/deleted x", "put /m/changed x", "put /m/mode x", "put /m/both x", "sym /m/link a", "put /m/file x")
	n.ForkNamed("parent", "a", "b")
	n.Edit("a", `"put /m/bin \x01\xff2"`, "put /m/text 1\na\n3\n4\nsix\n", "rm /m/kind", "mkdir /m/kind/in", "put /m/deleted y", "rm /m/changed", "chmod /m/mode 600",
		"put /m/both same", "rm /m/link", "sym /m/link b", "rm /m/dir", "put /m/new a", "put /m/gone/y y", "rm /m/file", "mkdir /m/file", "put /m/clean c")
	n.Edit("parent", `"put /m/bin \x01\xff3"`, "put /m/text 1\nb\n3\n4\n5\n", "put /m/kind y", "rm /m/deleted", "put /m/changed y", "chmod /m/mode 755",
		"put /m/both same", "rm /m/link", "sym /m/link c", "put /m/dir/sub/y y", "put /m/new b", "rm /m/gone")
}

// inConflict is what happens to the paths of conflicting in words, but for how the
// conflicts are decided.
var inConflict = map[string]string{
	"/m/bin": "content", "/m/text": "content", "/m/kind": "type", "/m/kind/in": "directory", "/m/deleted": "deleted", "/m/changed": "deleted",
	"/m/mode": "attributes", "/m/link": "content", "/m/dir/sub": "directory", "/m/new": "content", "/m/gone/y": "directory",
}

// TestMergeConflicts leaves alone what is in conflict, and says all about it.
func TestMergeConflicts(t *testing.T) {
	n := harness.NewNode(t)
	conflicting(n)
	before := n.Guest("parent", "list", "/m")
	ctx := harness.AsOwner

	failed := merge(n, "parent", api.MergeRequest{From: []string{"a", "b"}, Strategy: api.MergeFail})
	if failed.Unresolved() != len(inConflict) || len(failed.Applied) > 0 || n.Guest("parent", "list", "/m") != before {
		t.Errorf("a merge that must not have conflicts did something: %+v", failed)
	}
	mustOutcome(t, merge(n, "parent", api.MergeRequest{
		From: []string{"a", "b"}, DryRun: true, Exclude: []string{"text", "bin", "k*", "d*", "[cl]*", "mode", "new", "gone"},
	}), map[string]string{"/m/file": "modified"})
	r := merge(n, "parent", api.MergeRequest{From: []string{"a", "b"}})
	want := map[string]string{"/m/clean": "added", "/m/file": "modified", "/m/dir/sub/x": "deleted"}
	for p, why := range inConflict {
		want[p] = "conflict:" + why
	}
	mustOutcome(t, r, want)
	mustList(n, "parent", `
		/m 040755 0.0
		/m/bin 100644 0.0 "\x01\xff3"
		/m/both 100644 0.0 "same"
		/m/changed 100644 0.0 "y"
		/m/clean 100644 0.0 "c"
		/m/dir 040755 0.0
		/m/dir/sub 040755 0.0
		/m/dir/sub/y 100644 0.0 "y"
		/m/file 040755 0.0
		/m/kind 100644 0.0 "y"
		/m/link 120777 0.0 -> c
		/m/mode 100755 0.0 "x"
		/m/new 100644 0.0 "b"
		/m/text 100644 0.0 "1\nb\n3\n4\n5\n"`)

	by := map[string]api.MergeConflict{}
	for _, c := range r.Conflicts {
		by[c.Path] = c
	}
	if c := by["/m/bin"]; c.NoHunks != api.NoHunksBinary || c.Base.SHA256 == c.Ours.SHA256 || c.Ours.SHA256 == c.Theirs.SHA256 || len(c.Base.SHA256) != 64 || c.Ours.Size != 3 {
		t.Errorf("binary: %+v", c)
	}
	text := []api.MergeHunk{{
		Base: api.MergeLines{Start: 2, Text: "2\n"}, Ours: api.MergeLines{Start: 2, Text: "b\n"}, Theirs: api.MergeLines{Start: 2, Text: "a\n"},
	}}
	if d := cmp.Diff(text, by["/m/text"].Hunks); d != "" {
		t.Errorf("hunks of the text (-want +got):\n%s", d)
	}
	if c := by["/m/deleted"]; c.Ours != nil || c.Base == nil || c.Theirs == nil {
		t.Errorf("deleted here: %+v", c)
	}
	if c := by["/m/changed"]; c.Ours == nil || c.Theirs != nil {
		t.Errorf("deleted there: %+v", c)
	}
	if c := by["/m/kind"]; c.Ours.Type != "file" || c.Theirs.Type != "dir" {
		t.Errorf("types: %+v", c)
	}
	if c := by["/m/link"]; c.Base.Target != "a" || c.Ours.Target != "c" || c.Theirs.Target != "b" {
		t.Errorf("links: %+v", c)
	}
	if c := by["/m/mode"]; c.Base.Mode != "0644" || c.Ours.Mode != "0755" || c.Theirs.Mode != "0600" {
		t.Errorf("modes: %+v", c)
	}
	for what, req := range map[string]api.MergeRequest{
		"itself": {From: []string{"parent"}}, "twice": {From: []string{"a", "a"}}, "none": {}, "strategy": {From: []string{"a"}, Strategy: "magic"},
		"path": {From: []string{"a"}, Paths: []string{"x"}}, "pattern": {From: []string{"a"}, Exclude: []string{"["}}, "a path for a pattern": {From: []string{"a"}, Exclude: []string{"a/b"}},
	} {
		if _, err := n.Machine.Merge(ctx, "parent", req); api.CodeOf(err) != api.CodeInvalid {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := n.Machine.Merge(ctx, "parent", api.MergeRequest{From: []string{"nobody"}}); api.CodeOf(err) != api.CodeNotFound {
		t.Errorf("nobody: %v", err)
	}
}

// TestMergeStrategies decides conflicts.
func TestMergeStrategies(t *testing.T) {
	n := harness.NewNode(t)
	conflicting(n)
	n.ForkNamed("parent", "for-ours") // the base is the same
	r := merge(n, "for-ours", api.MergeRequest{From: []string{"a"}, Strategy: api.MergeOurs})
	want := map[string]string{"/m/clean": "added", "/m/file": "modified", "/m/dir/sub/x": "deleted"}
	for p, why := range inConflict {
		want[p] = "conflict:" + why + ":ours"
	}
	want["/m/text"] = "modified merged " + want["/m/text"]
	mustOutcome(t, r, want)
	if got := n.Guest("for-ours", "cat", "/m/text", "/m/new"); got != "1\nb\n3\n4\nsix\nb" {
		t.Errorf("ours: %q", got)
	}

	r = merge(n, "parent", api.MergeRequest{From: []string{"a"}, Strategy: api.MergeTheirs})
	if r.Unresolved() > 0 {
		t.Errorf("conflicts are left: %v", outcome(r))
	}
	mustList(n, "parent", `
		/m 040755 0.0
		/m/bin 100644 0.0 "\x01\xff2"
		/m/both 100644 0.0 "same"
		/m/clean 100644 0.0 "c"
		/m/deleted 100644 0.0 "y"
		/m/file 040755 0.0
		/m/gone 040755 0.0
		/m/gone/y 100644 0.0 "y"
		/m/kind 040755 0.0
		/m/kind/in 040755 0.0
		/m/link 120777 0.0 -> b
		/m/mode 100600 0.0 "x"
		/m/new 100644 0.0 "a"
		/m/text 100644 0.0 "1\na\n3\n4\nsix\n"`)
	if c := diff(n, "parent", "a", api.DiffRequest{Paths: []string{"/m"}}); len(c) != 1 || c[0].Path != "/m/gone/x" { // which we deleted, and they did not touch
		t.Errorf("all of theirs differs from them in %+v", c)
	}
}

// TestMergeKinds merges all kinds of files and attributes.
func TestMergeKinds(t *testing.T) {
	n := harness.NewNode(t)
	n.Create("parent")
	n.Edit("parent", "mkdir /m", "put /m/a x", "ln /m/b /m/a", "put /m/one 1", "put /m/mode x", "put /m/to-dir x", "mkdir /m/to-file", "put /m/to-file/x x",
		"xattr /m/mode user.old 1", "xattr /m/mode user.kept 1", "put /srv/kept changed\n")
	n.ForkNamed("parent", "kid")
	n.Edit("kid", "put /m/a y", "ln /m/new /m/one", "chown /m/mode 5.6", "chmod /m/mode 4711", "xattr /m/mode user.old", "xattr /m/mode user.new 2", "rm /m/to-dir",
		"mkdir /m/to-dir/x", "rm /m/to-file", "put /m/to-file y", "fifo /m/fifo", "null /m/null", "sym /m/link /etc/passwd", "chmod /m 1777",
		"put /m/hole 1", "size /m/hole 3000000", "mkdir /m/closed", "put /m/closed/x x", "chmod /m/closed 0", `"put /m/\xfe\xff strange"`,
		"put /m/p1 p", "ln /m/p2 /m/p1", "rm /srv/deleted", "mv /srv/text /m/moved", "chmod /srv/kept 600")
	n.Edit("parent", "ln /m/c /m/a", "chmod /m/one 600")
	r := merge(n, "parent", api.MergeRequest{From: []string{"kid"}})
	if len(r.Conflicts) > 0 {
		t.Fatalf("conflicts: %v", outcome(r))
	}
	n.Edit("parent", "size /m/hole 5")
	mustList(n, "parent", `
		/m 041777 0.0
		/m/a 100644 0.0 "y" (3)
		/m/b 100644 0.0 "y" = /m/a (3)
		/m/c 100644 0.0 "y" = /m/a (3)
		/m/closed 040000 0.0
		/m/closed/x 100644 0.0 "x"
		/m/fifo 010644 0.0
		/m/hole 100644 0.0 "1\x00\x00\x00\x00"
		/m/link 120777 0.0 -> /etc/passwd
		/m/mode 104711 5.6 user.kept="1" user.new="2" "x"
		/m/moved 100644 0.0 "no program"
		/m/new 100600 0.0 "1" (2)
		/m/null 020600 0.0 device 1:3
		/m/one 100600 0.0 "1" = /m/new (2)
		/m/p1 100644 0.0 "p" (2)
		/m/p2 100644 0.0 "p" = /m/p1 (2)
		/m/to-dir 040755 0.0
		/m/to-dir/x 040755 0.0
		/m/to-file 100644 0.0 "y"
		/m/`+"\xfe\xff"+` 100644 0.0 "strange"`)
	if got := n.Guest("parent", "list", "/srv"); strings.Contains(got, "/srv/deleted") || strings.Contains(got, "/srv/text") || !strings.Contains(got, "/srv/kept 100600") {
		t.Errorf("files of the image: %s", got)
	}
	if c := diff(n, "kid", "parent", api.DiffRequest{}); len(c) != 3 { // c, one's mode under two names, hole
		got := map[string]string{}
		for _, x := range c {
			got[x.Path] = string(x.Kind)
		}
		want := map[string]string{"/m/c": "added", "/m/hole": "modified", "/m/new": "modified", "/m/one": "modified"}
		if !maps.Equal(got, want) {
			t.Errorf("the result differs from the child in %v", got)
		}
	}
}
