package integration

import (
	"fmt"
	"strings"
	"testing"

	"ramet.dev/ramet/api"
)

// TestFilesMatchOnce has several write the same version of a file at the same time: it
// is that version for one of them only.
func TestFilesMatchOnce(t *testing.T) {
	n := newNode(t)
	ref := n.create("").ID
	for round := range 40 {
		w := api.WriteRequest{FileRef: at("/tmp/file"), Atomic: round%2 == 0}
		w.IfMatch = []string{n.put(ref, api.WriteRequest{FileRef: w.FileRef}, "first").ETag}
		var calls []<-chan error
		for i := range 6 {
			calls = append(calls, inBackground(func() error {
				_, err := n.m.WriteFile(asOwnerIn(t), ref, w, strings.NewReader(fmt.Sprint(i)))
				return err
			}))
		}
		done := 0
		for _, c := range calls {
			if err := <-c; err == nil {
				done++
			} else {
				wantCode(t, err, api.CodeChanged)
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
	n := newNode(t)
	ref := n.create("").ID
	for _, atomic := range []bool{false, true} {
		w := api.WriteRequest{FileRef: at("/tmp/file"), Atomic: atomic}
		now := n.put(ref, w, "first")
		w.IfNoneMatch = []string{"other", now.ETag}
		_, err := n.m.WriteFile(asOwnerIn(t), ref, w, strings.NewReader("x"))
		wantCode(t, err, api.CodeChanged)
		n.mustRead(ref, "/tmp/file", "first")
		w.IfNoneMatch = []string{"other", "*"}
		if n.put(ref, w, "second").Created {
			t.Error("a file that was there is said to be new")
		}
		n.mustRead(ref, "/tmp/file", "second")
		w.Path = fmt.Sprintf("/tmp/new-%t", atomic)
		n.put(ref, w, "third")
		n.mustRead(ref, w.Path, "third")
	}
	for name, tag := range map[string]func() string{
		"its own":    func() string { return n.etag(ref, api.FileRef{Path: "/tmp/link", NoFollow: true}) },
		"the file's": func() string { return n.etag(ref, at("/tmp/link")) },
	} {
		n.guest(ref, "edit", "sym /tmp/link /tmp/file")
		remove := api.FileChange{FileRef: at("/tmp/link"), Action: api.FileRemove, IfMatch: []string{"other"}}
		wantCode(t, n.change1(ref, remove), api.CodeChanged)
		if remove.IfMatch = append(remove.IfMatch, tag()); remove.IfMatch[1] == "" {
			t.Fatalf("%s: there is no ETag", name)
		}
		if err := n.change1(ref, remove); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := n.m.StatFile(asOwnerIn(t), ref, api.FileRef{Path: "/tmp/link", NoFollow: true}); api.CodeOf(err) != api.CodeNotFound {
			t.Errorf("%s: the link is there: %v", name, err)
		}
		n.mustRead(ref, "/tmp/file", "second")
	}
}

func (n *testNode) etag(ref string, f api.FileRef) string {
	n.t.Helper()
	info, err := n.m.StatFile(asOwnerIn(n.t), ref, f)
	if err != nil {
		n.t.Fatal(err)
	}
	return info.ETag
}

// TestFileThatCannotBeReadFromItsBeginning reads what is made when it is read.
func TestFileThatCannotBeReadFromItsBeginning(t *testing.T) {
	n := newNode(t)
	ref := n.create("").ID
	_, err := n.m.OpenFile(asOwnerIn(t), ref, at("/proc/1/mem"))
	wantCode(t, err, api.CodeUnsupported)
	f, err := n.m.OpenFile(asOwnerIn(t), ref, at("/proc/1/cmdline"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if f.Info().Size == 0 {
		t.Error("the first process has no command line")
	}
}
