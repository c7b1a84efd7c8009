package compare

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/test/harness"
)

// TestMergeIsSeen merges a child into its parent, and writes a file from outside, while a program watches: it sees each
// file that was made, replaced or removed, and that its contents were written.
func TestMergeIsSeen(t *testing.T) {
	n := harness.NewNode(t)
	n.Create("parent")
	n.Edit("parent", "mkdir /m/dir", "put /m/old old", "put /m/gone x", "put /m/dir/deep deep", "put /m/mode x")
	n.ForkNamed("parent", "child")
	n.Edit("child", "put /m/old other", "rm /m/gone", "put /m/new new", "put /m/dir/deep deeper", "chmod /m/mode 600", "sym /m/link old")
	seen := make(chan string, 1)
	go func() {
		out, err := n.Exec("parent", "watch", "end", "/m", "/m/dir")
		if err != nil {
			t.Error(err)
			seen <- ""
			return
		}
		seen <- out.Stdout.String() + out.Stderr.String()
	}()
	harness.Eventually(t, "the program watches", func() error {
		out, err := n.Exec("parent", "list", "/tmp/watching")
		if err == nil && out.ExitCode != 0 {
			err = errors.New(out.Stderr.String())
		}
		return err
	})
	merge(n, "parent", api.MergeRequest{From: []string{"child"}})
	if _, err := n.Machine.WriteFile(harness.AsOwnerIn(t), "parent", api.WriteRequest{FileRef: harness.At("/m/outside")}, strings.NewReader("x")); err != nil {
		t.Fatal(err)
	}
	n.Edit("parent", "put /m/end x")
	events := strings.Split(strings.TrimSpace(<-seen), "\n")
	for _, want := range [][]string{
		{"/m: DELETE old", "/m: CREATE old", "/m: MODIFY old", "/m: CLOSE_WRITE old"},
		{"/m: CREATE new", "/m: MODIFY new", "/m: CLOSE_WRITE new"},
		{"/m/dir: DELETE deep", "/m/dir: CREATE deep", "/m/dir: CLOSE_WRITE deep"},
		{"/m: DELETE gone"}, {"/m: ATTRIB mode"}, {"/m: CREATE link"}, {"/m: CREATE outside", "/m: MODIFY outside", "/m: CLOSE_WRITE outside"},
	} {
		left := want
		for _, e := range events {
			if len(left) > 0 && e == left[0] {
				left = left[1:]
			}
		}
		if len(left) > 0 {
			t.Errorf("%q was not seen", left)
		}
	}
	if slices.Contains(events, "/m: CLOSE_WRITE link") || t.Failed() {
		t.Errorf("seen were %q", events)
	}
}
