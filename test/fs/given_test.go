package fs

import (
	"archive/tar"
	"maps"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/test/harness"
)

// TestFilesAreGiven: root writes where the owner may not, and the file and what is made above it are the owner's.
func TestFilesAreGiven(t *testing.T) {
	n := harness.NewNode(t)
	ref := n.Create("").ID
	const uid = 1234
	at := func(p string) api.FileRef { return api.FileRef{Path: p, Owner: "1234:77"} }
	owned := func(p string, want uint32) {
		t.Helper()
		f, err := n.Machine.StatFile(harness.AsOwnerIn(t), ref, api.FileRef{Path: p, NoFollow: true})
		if err != nil || f.UID != want || want != 0 && f.GID != 77 {
			t.Errorf("%s: %+v, %v", p, f, err)
		}
	}
	for _, atomic := range []bool{false, true} {
		n.Put(ref, api.WriteRequest{FileRef: at("/given/a/file"), Parents: true, Atomic: atomic}, "x")
		owned("/given/a/file", uid)
		n.Put(ref, api.WriteRequest{FileRef: harness.At("/mine"), Atomic: atomic}, "x")
		owned("/mine", 0)
		n.Put(ref, api.WriteRequest{FileRef: at("/mine"), Atomic: atomic}, "x")
		owned("/mine", uid)
		if err := n.ChangeFile(ref, api.FileChange{FileRef: harness.At("/mine"), Action: api.FileRemove}); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range []string{"/given", "/given/a"} {
		owned(p, uid)
	}
	owned("/", 0)
	if err := n.ChangeFile(ref, api.FileChange{FileRef: at("/given/b/c/"), Action: api.FileMkdir, Parents: true}); err != nil {
		t.Fatal(err)
	}
	owned("/given/b", uid)
	owned("/given/b/c", uid)
	_, err := n.Machine.StatFile(harness.AsOwnerIn(t), ref, api.FileRef{Path: "/", Owner: "nobody-there"})
	harness.WantCode(t, err, api.CodeInvalid)
}

// TestAttributesAreTold: a write replaces those of a prefix, which descriptions and lists tell, and others stay.
func TestAttributesAreTold(t *testing.T) {
	n := harness.NewNode(t)
	ref := n.Create("").ID
	at := func(p, prefix string) api.FileRef { return api.FileRef{Path: p, Xattrs: prefix} }
	for _, atomic := range []bool{false, true} {
		for _, set := range []map[string]string{{"user.p.a": "1", "user.p.b": ""}, {"user.p.b": "2"}, nil} {
			n.Put(ref, api.WriteRequest{FileRef: at("/srv/x/file", "user.p."), Parents: true, Atomic: atomic, SetXattrs: set}, "x")
			f, err := n.Machine.StatFile(harness.AsOwnerIn(t), ref, at("/srv/x/file", "user.p."))
			if err != nil || !maps.Equal(f.Xattrs, set) {
				t.Errorf("atomic %v: %v, %v, want %v", atomic, f, err, set)
			}
		}
	}
	n.Put(ref, api.WriteRequest{FileRef: at("/srv/x/file", "user.other."), SetXattrs: map[string]string{"user.other.x": "y"}}, "x")
	n.Put(ref, api.WriteRequest{FileRef: at("/srv/x/file", "user.p."), SetXattrs: map[string]string{"user.p.a": "1"}}, "x")
	for prefix, want := range map[string]map[string]string{"": nil, "user.": {"user.other.x": "y", "user.p.a": "1"}, "user.p.": {"user.p.a": "1"}} {
		list, err := n.Machine.ListFiles(harness.AsOwnerIn(t), ref, api.ListRequest{FileRef: at("/srv/x", prefix), Depth: 1, Limit: 10})
		if err != nil || len(list.Files) != 1 || !maps.Equal(list.Files[0].Xattrs, want) {
			t.Errorf("%q: %+v, %v", prefix, list, err)
		}
	}
}

// TestRealPaths have no symbolic links.
func TestRealPaths(t *testing.T) {
	n := harness.NewNode(t)
	ref := n.Create("").ID
	n.Put(ref, api.WriteRequest{FileRef: harness.At("/srv/d/file"), Parents: true}, "x")
	links := harness.TarOf(t, &tar.Header{Typeflag: tar.TypeSymlink, Name: "dir", Linkname: "d"}, &tar.Header{Typeflag: tar.TypeSymlink, Name: "link", Linkname: "../srv/dir/file"})
	if _, err := n.Machine.WriteArchive(harness.AsOwnerIn(t), ref, harness.At("/srv"), false, links); err != nil {
		t.Fatal(err)
	}
	for p, want := range map[string]string{"/srv/link": "/srv/d/file", "/srv/dir": "/srv/d", "/srv/dir/file": "/srv/d/file", "/srv/../srv/d": "/srv/d"} {
		f, err := n.Machine.StatFile(harness.AsOwnerIn(t), ref, api.FileRef{Path: p, Real: true})
		if err != nil || f.Path != want {
			t.Errorf("%s: %+v, %v", p, f, err)
		}
	}
	f, err := n.Machine.StatFile(harness.AsOwnerIn(t), ref, api.FileRef{Path: "/srv/dir/file", Real: true, NoFollow: true})
	if err != nil || f.Path != "/srv/d/file" {
		t.Errorf("without following the last link: %+v, %v", f, err)
	}
}
