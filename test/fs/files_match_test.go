package fs

import (
	"fmt"
	"strings"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/test/harness"
)

// TestFilesMatchOnce has several write the same version of a file at the same time: it
// is that version for one of them only.
func TestFilesMatchOnce(t *testing.T) {
	n := harness.NewNode(t)
	ref := n.Create("").ID
	for round := range 40 {
		w := api.WriteRequest{FileRef: harness.At("/tmp/file"), Atomic: round%2 == 0}
		w.IfMatch = []string{n.Put(ref, api.WriteRequest{FileRef: w.FileRef}, "first").ETag}
		var calls []<-chan error
		for i := range 6 {
			calls = append(calls, harness.InBackground(func() error {
				_, err := n.Machine.WriteFile(harness.AsOwnerIn(t), ref, w, strings.NewReader(fmt.Sprint(i)))
				return err
			}))
		}
		done := 0
		for _, c := range calls {
			if err := <-c; err == nil {
				done++
			} else {
				harness.WantCode(t, err, api.CodeChanged)
			}
		}
		if done != 1 {
			t.Errorf("%d wrote the first version, atomically: %t", done, w.Atomic)
		}
	}
}

// TestFilesOnOtherConditions writes what is not a version that is known, and removes
// links by their own tags and by what is read through them.
func TestFilesOnOtherConditions(t *testing.T) {
	n := harness.NewNode(t)
	ref := n.Create("").ID
	for _, atomic := range []bool{false, true} {
		w := api.WriteRequest{FileRef: harness.At("/tmp/file"), Atomic: atomic}
		now := n.Put(ref, w, "first")
		w.IfNoneMatch = []string{"other", now.ETag}
		_, err := n.Machine.WriteFile(harness.AsOwnerIn(t), ref, w, strings.NewReader("x"))
		harness.WantCode(t, err, api.CodeChanged)
		n.MustRead(ref, "/tmp/file", "first")
		w.IfNoneMatch = []string{"other", "*"}
		if n.Put(ref, w, "second").Created {
			t.Error("a file that was there is said to be new")
		}
		n.MustRead(ref, "/tmp/file", "second")
		w.Path = fmt.Sprintf("/tmp/new-%t", atomic)
		n.Put(ref, w, "third")
		n.MustRead(ref, w.Path, "third")
	}
	for name, tag := range map[string]func() string{
		"its own":    func() string { return etag(n, ref, api.FileRef{Path: "/tmp/link", NoFollow: true}) },
		"the file's": func() string { return etag(n, ref, harness.At("/tmp/link")) },
	} {
		n.Guest(ref, "edit", "sym /tmp/link /tmp/file")
		remove := api.FileChange{FileRef: harness.At("/tmp/link"), Action: api.FileRemove, IfMatch: []string{"other"}}
		harness.WantCode(t, n.ChangeFile(ref, remove), api.CodeChanged)
		if remove.IfMatch = append(remove.IfMatch, tag()); remove.IfMatch[1] == "" {
			t.Fatalf("%s: there is no ETag", name)
		}
		if err := n.ChangeFile(ref, remove); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := n.Machine.StatFile(harness.AsOwnerIn(t), ref, api.FileRef{Path: "/tmp/link", NoFollow: true}); api.CodeOf(err) != api.CodeNotFound {
			t.Errorf("%s: the link is there: %v", name, err)
		}
		n.MustRead(ref, "/tmp/file", "second")
	}
}

func etag(n *harness.Node, ref string, f api.FileRef) string {
	n.T.Helper()
	info, err := n.Machine.StatFile(harness.AsOwnerIn(n.T), ref, f)
	if err != nil {
		n.T.Fatal(err)
	}
	return info.ETag
}

// TestFileThatCannotBeReadFromItsBeginning reads what is made when it is read.
func TestFileThatCannotBeReadFromItsBeginning(t *testing.T) {
	n := harness.NewNode(t)
	ref := n.Create("").ID
	_, err := n.Machine.OpenFile(harness.AsOwnerIn(t), ref, harness.At("/proc/1/mem"))
	harness.WantCode(t, err, api.CodeUnsupported)
	f, err := n.Machine.OpenFile(harness.AsOwnerIn(t), ref, harness.At("/proc/1/cmdline"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if f.Info().Size == 0 {
		t.Error("the first process has no command line")
	}
}
