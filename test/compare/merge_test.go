package compare

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/test/harness"
)

// merge merges others into a sandbox. What they change is below /m.
func merge(n *harness.Node, into string, req api.MergeRequest) *api.MergeResult {
	n.T.Helper()
	r, err := n.Machine.Merge(harness.AsOwner, into, req)
	if err != nil {
		n.T.Fatalf("merge: %v", err)
	}
	return r
}

// mustList compares what is below /m in a sandbox.
func mustList(n *harness.Node, ref, want string) {
	n.T.Helper()
	var lines []string
	for l := range strings.SplitSeq(want, "\n") {
		if l = strings.TrimSpace(l); l != "" {
			lines = append(lines, l)
		}
	}
	got := strings.Split(strings.TrimSpace(n.Guest(ref, "list", "/m")), "\n")
	if d := cmp.Diff(lines, got); d != "" {
		n.T.Errorf("%s (-want +got):\n%s", ref, d)
	}
}

// outcome is what happened to each path, in one word each.
func outcome(r *api.MergeResult) map[string]string {
	out := map[string]string{}
	for _, c := range r.Applied {
		out[c.Path] = string(c.Kind)
		if c.Merged {
			out[c.Path] += " merged"
		}
	}
	for _, c := range r.Conflicts {
		s := "conflict:" + c.Reason
		if c.Resolved != "" {
			s += ":" + string(c.Resolved)
		}
		out[c.Path] = strings.TrimSpace(out[c.Path] + " " + s)
	}
	return out
}

func mustOutcome(t *testing.T, r *api.MergeResult, want map[string]string) {
	t.Helper()
	if d := cmp.Diff(want, outcome(r)); d != "" {
		t.Errorf("outcome (-want +got):\n%s", d)
	}
}

const mergeText = "1\n2\n3\n4\n5\n6\n7\n8\n9\n"

// TestMerge merges three children into their parent, which has gone on.
func TestMerge(t *testing.T) {
	n := harness.NewNode(t)
	n.Create("parent")
	n.Edit("parent", "mkdir /m/dir", "put /m/text "+mergeText, "put /m/old old", "put /m/dir/deep deep", "put /m/own x", "sym /m/link old", "put /m/run x")
	n.ForkNamed("parent", "a", "b", "c")
	n.Edit("a", "put /m/a new", "put /m/text "+strings.Replace(mergeText, "1\n", "one\n", 1), "mkdir /m/new/dir", "put /m/new/dir/file deep")
	n.Edit("b", "rm /m/old", "put /m/text "+strings.Replace(mergeText, "9\n", "nine\n", 1), "chmod /m/run 755")
	n.Edit("c", "put /m/b new", "xattr /m/run user.a b", "rm /m/link", "sym /m/link other", "chown /m/dir 7.8")
	n.Edit("parent", "put /m/text "+strings.Replace(mergeText, "5\n", "five\n", 1), "put /m/own y")
	dry := merge(n, "parent", api.MergeRequest{From: []string{"a", "b", "c"}, DryRun: true})
	before := n.Guest("parent", "list", "/m")
	r := merge(n, "parent", api.MergeRequest{From: []string{"a", "b", "c"}})
	want := map[string]string{
		"/m/a": "added", "/m/b": "added", "/m/text": "modified merged", "/m/new": "added", "/m/new/dir": "added", "/m/new/dir/file": "added",
		"/m/old": "deleted", "/m/run": "modified merged", "/m/link": "modified", "/m/dir": "modified",
	}
	mustOutcome(t, dry, want)
	mustOutcome(t, r, want)
	if strings.Contains(before, "five") == strings.Contains(before, "nine") {
		t.Errorf("a dry run changed something: %s", before)
	}
	mustList(n, "parent", `
		/m 040755 0.0
		/m/a 100644 0.0 "new"
		/m/b 100644 0.0 "new"
		/m/dir 040755 7.8
		/m/dir/deep 100644 0.0 "deep"
		/m/link 120777 0.0 -> other
		/m/new 040755 0.0
		/m/new/dir 040755 0.0
		/m/new/dir/file 100644 0.0 "deep"
		/m/own 100644 0.0 "y"
		/m/run 100755 0.0 user.a="b" "x"
		/m/text 100644 0.0 "one\n2\n3\n4\nfive\n6\n7\n8\nnine\n"`)
	for _, c := range diff(n, "a", "parent", api.DiffRequest{}) {
		if !strings.HasPrefix(c.Path, "/m/") {
			t.Errorf("something is left behind: %+v", c)
		}
	}
	// A second time there is nothing to do.
	again := merge(n, "parent", api.MergeRequest{From: []string{"a", "c"}})
	if len(again.Applied)+len(again.Conflicts) > 0 {
		t.Errorf("merged again: %+v", again)
	}
	// The result can be forked and compared.
	n.ForkNamed("parent", "next")
	n.Edit("next", "put /m/after x")
	changes := diff(n, "parent", "next", api.DiffRequest{})
	if len(changes) != 1 || changes[0].Path != "/m/after" {
		t.Errorf("a child of the result differs in %+v", changes)
	}
	mustOutcome(t, merge(n, "parent", api.MergeRequest{From: []string{"next"}}), map[string]string{"/m/after": "added"})
	var sides []string
	for _, s := range r.Sides {
		sides = append(sides, s.From)
		if !api.IsID(api.KindSnapshot, s.Base) {
			t.Errorf("base of %s is %q", s.From, s.Base)
		}
	}
	if len(sides) != 3 || r.Into == sides[0] || r.PauseMS <= 0 {
		t.Errorf("merged %v into %s, pause %v ms", sides, r.Into, r.PauseMS)
	}
}
