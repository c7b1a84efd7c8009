package integration

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"

	"ramet.dev/ramet/api"
)

func at(path string) api.FileRef { return api.FileRef{Path: path} }

// put writes a file through the node.
func (n *testNode) put(ref string, req api.WriteRequest, contents string) *api.FileInfo {
	n.t.Helper()
	info, err := n.m.WriteFile(asOwner, ref, req, strings.NewReader(contents))
	if err != nil {
		n.t.Fatalf("write %q: %v", req.Path, err)
	}
	return info
}

// read reads a file through the node.
func (n *testNode) read(ref string, f api.FileRef) (string, error) {
	file, err := n.m.OpenFile(asOwner, ref, f)
	if err != nil {
		return "", err
	}
	defer file.Close()
	b, err := io.ReadAll(file)
	return string(b), err
}

func (n *testNode) mustRead(ref, path, want string) {
	n.t.Helper()
	if got, err := n.read(ref, at(path)); err != nil || got != want {
		n.t.Errorf("%q has %q, not %q (%v)", path, got, want, err)
	}
}

func (n *testNode) change1(ref string, c api.FileChange) error {
	_, err := n.m.ChangeFile(asOwner, ref, c)
	return err
}

// list returns the paths of all pages.
func (n *testNode) list(ref string, req api.ListRequest) []string {
	n.t.Helper()
	var paths []string
	for {
		l, err := n.m.ListFiles(asOwner, ref, req)
		if err != nil {
			n.t.Fatalf("list %q: %v", req.Path, err)
		}
		for _, f := range l.Files {
			paths = append(paths, f.Path)
		}
		if l.Next == "" {
			return paths
		}
		req.After = l.Next
	}
}

func mode(m uint32) *uint32 { return &m }

func TestFilesAreWrittenAndRead(t *testing.T) {
	n := newNode(t)
	ref := n.create("").ID
	for _, atomic := range []bool{false, true} {
		dir := fmt.Sprintf("/srv/w-%t", atomic)
		w := api.WriteRequest{FileRef: at(dir + "/sub/file"), Atomic: atomic}
		if _, err := n.m.WriteFile(asOwnerIn(t), ref, w, strings.NewReader("x")); api.CodeOf(err) != api.CodeNotFound {
			t.Errorf("write without the directory: %v", err)
		}
		w.Parents = true
		first := n.put(ref, w, "first\n")
		if first.Mode != "0644" || first.UID != 0 || first.Size != 6 || first.Type != "file" || !first.Created {
			t.Errorf("new file: %+v", first)
		}
		if err := n.change1(ref, api.FileChange{FileRef: w.FileRef, Action: api.FileChmod, Mode: mode(0o4711)}); err != nil {
			t.Error(err)
		}
		second := n.put(ref, w, "2nd")
		if want := map[bool]string{true: "4711", false: "0711"}[atomic]; second.Mode != want && second.Mode != "4711" {
			t.Errorf("mode of a file that was written again: %s, not %s", second.Mode, want)
		}
		n.mustRead(ref, w.Path, "2nd")
		if second.ETag == first.ETag || second.ETag == "" || second.Created {
			t.Errorf("ETags %q and %q, created %t", first.ETag, second.ETag, second.Created)
		}
		stale := w
		stale.IfMatch = []string{first.ETag}
		_, err := n.m.WriteFile(asOwnerIn(t), ref, stale, strings.NewReader("x"))
		wantCode(t, err, api.CodeChanged)
		now, err := n.m.StatFile(asOwnerIn(t), ref, w.FileRef)
		if err != nil {
			t.Fatal(err)
		}
		fresh := w
		fresh.IfMatch, fresh.Mode = []string{first.ETag, now.ETag}, mode(0o600)
		if got := n.put(ref, fresh, "third"); got.Mode != "0600" {
			t.Errorf("mode = %s", got.Mode)
		}
		only := w
		only.New = true
		_, err = n.m.WriteFile(asOwnerIn(t), ref, only, strings.NewReader("x"))
		wantCode(t, err, api.CodeChanged)
		wantCode(t, n.change1(ref, api.FileChange{FileRef: w.FileRef, Action: api.FileRemove, IfMatch: stale.IfMatch}), api.CodeChanged)
		n.mustRead(ref, w.Path, "third")
		gone := w
		gone.Path, gone.IfMatch = dir+"/gone", []string{api.AnyETag}
		_, err = n.m.WriteFile(asOwnerIn(t), ref, gone, strings.NewReader("x"))
		wantCode(t, err, api.CodeChanged)
		wantCode(t, n.change1(ref, api.FileChange{FileRef: gone.FileRef, Action: api.FileRemove, IfMatch: gone.IfMatch}), api.CodeChanged)
		if got := n.list(ref, api.ListRequest{FileRef: at(dir), Limit: 100}); !slices.Equal(got, []string{dir + "/sub", dir + "/sub/file"}) {
			t.Errorf("%s has %q", dir, got)
		}
	}
	more := api.WriteRequest{FileRef: at("/srv/w-true/sub/file"), Append: true}
	n.put(ref, more, " and more")
	n.mustRead(ref, more.Path, "third and more")
	// The guest sees the same.
	if got := n.guest(ref, "cat", more.Path); got != "third and more" {
		t.Errorf("the guest reads %q", got)
	}
	n.mustRead(ref, "/srv/kept", "kept\n")
	if got, err := n.read(ref, at("/proc/version")); err != nil || !strings.HasPrefix(got, "Linux version") {
		t.Errorf("/proc/version has %q, %v", got, err)
	}
}

func TestFilesThatAreRefused(t *testing.T) {
	n := newNode(t)
	ref := n.create("").ID
	for path, code := range map[string]api.Code{
		"": api.CodeInvalid, "relative": api.CodeInvalid, "/a\x00b": api.CodeInvalid, "/" + strings.Repeat("a/", 3000): api.CodeInvalid,
		"/" + strings.Repeat("n", 300): api.CodeInvalid, "/nothing": api.CodeNotFound, "/srv/kept/below": api.CodeInvalid,
		"/srv": api.CodeUnsupported, "/dev/zero": api.CodeUnsupported, "/dev/tty": api.CodeUnsupported,
	} {
		_, err := n.read(ref, at(path))
		wantCode(t, err, code)
		if strings.HasPrefix(path, "/dev") {
			_, err = n.m.WriteFile(asOwnerIn(t), ref, api.WriteRequest{FileRef: at(path)}, strings.NewReader("x"))
			wantCode(t, err, code)
		}
	}
	// A pipe that nobody has open.
	archive := tarOf(t, &tar.Header{Typeflag: tar.TypeFifo, Name: "pipe", Mode: 0o666})
	if _, err := n.m.WriteArchive(asOwnerIn(t), ref, at("/srv"), false, archive); err != nil {
		t.Fatal(err)
	}
	_, err := n.read(ref, at("/srv/pipe"))
	wantCode(t, err, api.CodeUnsupported)
	for _, atomic := range []bool{false, true} {
		_, err = n.m.WriteFile(asOwnerIn(t), ref, api.WriteRequest{FileRef: at("/srv/pipe"), Atomic: atomic}, strings.NewReader("x"))
		wantCode(t, err, api.CodeUnsupported)
	}
	// A link, where it is not to be followed; and one that leads round in a circle.
	links := tarOf(t, &tar.Header{Typeflag: tar.TypeSymlink, Name: "link", Linkname: "kept"}, &tar.Header{Typeflag: tar.TypeSymlink, Name: "loop", Linkname: "loop"})
	if _, err := n.m.WriteArchive(asOwnerIn(t), ref, at("/srv"), false, links); err != nil {
		t.Fatal(err)
	}
	n.mustRead(ref, "/srv/link", "kept\n")
	_, err = n.read(ref, api.FileRef{Path: "/srv/link", NoFollow: true})
	wantCode(t, err, api.CodeUnsupported)
	_, err = n.read(ref, at("/srv/loop"))
	wantCode(t, err, api.CodeInvalid)
	for _, atomic := range []bool{false, true} {
		_, err = n.m.WriteFile(asOwnerIn(t), ref, api.WriteRequest{FileRef: api.FileRef{Path: "/srv/link", NoFollow: true}, Atomic: atomic}, strings.NewReader("x"))
		wantCode(t, err, api.CodeUnsupported)
		n.put(ref, api.WriteRequest{FileRef: at("/srv/link"), Atomic: atomic}, "through")
		n.mustRead(ref, "/srv/kept", "through")
	}
	// Another user's permissions are enforced.
	n.put(ref, api.WriteRequest{FileRef: at("/root/secret"), Mode: mode(0o600)}, "s")
	worker := api.FileRef{Path: "/root/secret", User: "worker"}
	_, err = n.read(ref, worker)
	wantCode(t, err, api.CodePermission)
	for _, atomic := range []bool{false, true} {
		_, err = n.m.WriteFile(asOwnerIn(t), ref, api.WriteRequest{FileRef: worker, Atomic: atomic}, strings.NewReader("x"))
		wantCode(t, err, api.CodePermission)
		_, err = n.m.WriteFile(asOwnerIn(t), ref, api.WriteRequest{FileRef: api.FileRef{Path: "/etc/new", User: "1000"}, Atomic: atomic}, strings.NewReader("x"))
		wantCode(t, err, api.CodePermission)
	}
	wantCode(t, n.change1(ref, api.FileChange{FileRef: worker, Action: api.FileRemove}), api.CodePermission)
	_, err = n.read(ref, api.FileRef{Path: "/srv/kept", User: "nobody-here"})
	wantCode(t, err, api.CodeInvalid)
	n.mustRead(ref, "/root/secret", "s")
	if l, err := n.m.StatFile(asOwnerIn(t), ref, api.FileRef{Path: "/srv/link", NoFollow: true}); err != nil || l.Type != "symlink" || l.Target != "kept" {
		t.Errorf("the link is %+v, %v", l, err)
	}
	wantCode(t, n.change1(ref, api.FileChange{FileRef: at("/srv"), Action: api.FileRemove}), api.CodeConflict)
	wantCode(t, n.change1(ref, api.FileChange{FileRef: at("/"), Action: api.FileRemove}), api.CodeConflict)
}

// TestBrokenUpload ends uploads in the middle.
func TestBrokenUpload(t *testing.T) {
	n := newNode(t)
	ref := n.create("").ID
	n.put(ref, api.WriteRequest{FileRef: at("/srv/file")}, "old")
	broken := func() io.Reader {
		return io.MultiReader(strings.NewReader(strings.Repeat("x", 1<<20)), errReader{})
	}
	_, err := n.m.WriteFile(asOwnerIn(t), ref, api.WriteRequest{FileRef: at("/srv/file"), Atomic: true}, broken())
	if !errors.Is(err, errBroken) {
		t.Errorf("error is %v", err)
	}
	want := []string{"/srv/broken", "/srv/changed", "/srv/deleted", "/srv/file", "/srv/kept", "/srv/text"}
	eventually(t, "the temporary file goes", func() error {
		if got := n.list(ref, api.ListRequest{FileRef: at("/srv"), Limit: 100}); !slices.Equal(got, want) {
			return fmt.Errorf("/srv has %q", got)
		}
		return nil
	})
	n.mustRead(ref, "/srv/file", "old")
}

var errBroken = errors.New("broken")

type errReader struct{}

func (errReader) Read([]byte) (int, error) { return 0, errBroken }

// TestFullDiskWhileUploading writes more than the disk's limit.
func TestFullDiskWhileUploading(t *testing.T) {
	n := newNode(t)
	s, err := n.m.Create(asOwnerIn(t), api.CreateRequest{Image: "box", Limits: api.Limits{DiskMiB: 8}})
	if err != nil {
		t.Fatal(err)
	}
	endless := rand.NewChaCha8([32]byte{})
	_, err = n.m.WriteFile(asOwnerIn(t), s.ID, api.WriteRequest{FileRef: at("/srv/file"), Atomic: true}, endless)
	wantCode(t, err, api.CodeNoSpace)
	if err := n.change1(s.ID, api.FileChange{FileRef: at("/srv/file"), Action: api.FileRemove}); api.CodeOf(err) != api.CodeNotFound {
		t.Errorf("half a file is there: %v", err)
	}
	var bomb bytes.Buffer
	w := tar.NewWriter(&bomb)
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "bomb", Size: 1 << 40, Mode: 0o644}); err != nil {
		t.Fatal(err)
	}
	_, err = n.m.WriteArchive(asOwnerIn(t), s.ID, at("/srv"), false, io.MultiReader(&bomb, endless))
	wantCode(t, err, api.CodeNoSpace)
	if err := n.change1(s.ID, api.FileChange{FileRef: at("/srv/bomb"), Action: api.FileRemove}); err != nil {
		t.Error(err)
	}
	n.put(s.ID, api.WriteRequest{FileRef: at("/srv/file")}, "small")
}

// oddNames are names that no text has.
var oddNames = []string{"new\nline", "broken \xff\xfe utf-8", "a b", "-rf", "ünï", "\x01\x1b[2J", "%41", `back\slash`, strings.Repeat("n", 255), " "}

func TestFilesWithOddNames(t *testing.T) {
	n := newNode(t)
	ref := n.create("").ID
	var want []string
	for _, name := range oddNames {
		p := "/srv/odd/" + name
		want = append(want, p)
		n.put(ref, api.WriteRequest{FileRef: at(p), Parents: true, Atomic: true}, name)
		n.mustRead(ref, p, name)
	}
	slices.Sort(want)
	for _, limit := range []int{1, 3, 100} {
		if got := n.list(ref, api.ListRequest{FileRef: at("/srv/odd"), Limit: limit}); !slices.Equal(got, want) {
			t.Errorf("with %d on a page: %q", limit, got)
		}
	}
	var archive bytes.Buffer
	if err := n.m.ReadArchive(asOwnerIn(t), ref, at("/srv/odd"), &archive); err != nil {
		t.Fatal(err)
	}
	if _, err := n.m.WriteArchive(asOwnerIn(t), ref, at("/srv/copy"), true, &archive); err != nil {
		t.Fatal(err)
	}
	for _, name := range oddNames {
		n.mustRead(ref, "/srv/copy/odd/"+name, name)
	}
	if err := n.change1(ref, api.FileChange{FileRef: at("/srv/odd"), Action: api.FileRemove, Recursive: true}); err != nil {
		t.Fatal(err)
	}
	_, err := n.m.StatFile(asOwnerIn(t), ref, at("/srv/odd"))
	wantCode(t, err, api.CodeNotFound)
}

func TestFilesAreListed(t *testing.T) {
	n := newNode(t)
	ref := n.create("").ID
	all := []string{
		"/srv/l/a", "/srv/l/a/b", "/srv/l/a/b/c.txt", "/srv/l/a/d.txt", "/srv/l/a.txt", "/srv/l/link", "/srv/l/z",
	}
	for _, f := range []string{"a/b/c.txt", "a/d.txt", "a.txt", "z"} {
		n.put(ref, api.WriteRequest{FileRef: at("/srv/l/" + f), Parents: true}, f)
	}
	if _, err := n.m.WriteArchive(asOwnerIn(t), ref, at("/srv/l"), false, tarOf(t, &tar.Header{Typeflag: tar.TypeSymlink, Name: "link", Linkname: "/etc"})); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		req  api.ListRequest
		want []string
	}{
		{api.ListRequest{}, all},
		{api.ListRequest{Depth: 1}, []string{"/srv/l/a", "/srv/l/a.txt", "/srv/l/link", "/srv/l/z"}},
		{api.ListRequest{Depth: 2}, []string{"/srv/l/a", "/srv/l/a/b", "/srv/l/a/d.txt", "/srv/l/a.txt", "/srv/l/link", "/srv/l/z"}},
		{api.ListRequest{Glob: "*.txt"}, []string{"/srv/l/a/b/c.txt", "/srv/l/a/d.txt", "/srv/l/a.txt"}},
		{api.ListRequest{Glob: "a/*.txt"}, []string{"/srv/l/a/d.txt"}},
		{api.ListRequest{Glob: "a/**/*.txt"}, []string{"/srv/l/a/b/c.txt", "/srv/l/a/d.txt"}},
		{api.ListRequest{Glob: "nothing"}, nil},
	} {
		c.req.Path = "/srv/l"
		for _, c.req.Limit = range []int{1, 2, 1000} {
			if got := n.list(ref, c.req); !slices.Equal(got, c.want) {
				t.Errorf("%+v: %q, not %q", c.req, got, c.want)
			}
		}
	}
	_, err := n.m.ListFiles(asOwnerIn(t), ref, api.ListRequest{FileRef: at("/srv/l"), Glob: "[", Limit: 1})
	wantCode(t, err, api.CodeInvalid)
	_, err = n.m.ListFiles(asOwnerIn(t), ref, api.ListRequest{FileRef: at("/srv/l/z"), Limit: 1})
	wantCode(t, err, api.CodeInvalid)
	// The directory itself may be a link; links below it are not followed.
	if got := n.list(ref, api.ListRequest{FileRef: at("/srv/l/link"), Glob: "passwd", Limit: 10}); !slices.Equal(got, []string{"/srv/l/link/passwd"}) {
		t.Errorf("through a link: %q", got)
	}
	search := func(req api.SearchRequest) string {
		t.Helper()
		req.Path = "/srv/l"
		if req.Limit == 0 {
			req.Limit = 100
		}
		res, err := n.m.SearchFiles(asOwnerIn(t), ref, req)
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, m := range res.Matches {
			out = append(out, fmt.Sprintf("%s:%d:%s", strings.TrimPrefix(m.File.Path, "/srv/l/"), m.Line, m.Text))
		}
		if res.Truncated {
			out = append(out, "…")
		}
		return strings.Join(out, " ")
	}
	n.put(ref, api.WriteRequest{FileRef: at("/srv/l/z")}, "one\nTWO two\n\nthree two")
	n.put(ref, api.WriteRequest{FileRef: at("/srv/l/bin")}, "two\x00two\n")
	for want, req := range map[string]api.SearchRequest{
		"a/b/c.txt:0: a/d.txt:0:":   {Glob: "[cd].txt"},
		"z:2:TWO two z:4:three two": {Text: "two"},
		"z:2:TWO two":               {Text: "TWO"},
		"z:1:one z:2:TWO two …":     {Text: "^(one|two)", Regexp: true, IgnoreCase: true, Limit: 2},
		"a/b/c.txt:1:a/b/c.txt":     {Glob: "c.*", Text: "c.t"},
		"a.txt:1:a.txt":             {Text: "^a.txt", Regexp: true},
	} {
		if req.Limit == 2 {
			n.put(ref, api.WriteRequest{FileRef: at("/srv/l/zz")}, "one")
		}
		if got := search(req); got != want {
			t.Errorf("%+v: %q, not %q", req, got, want)
		}
	}
	_, err = n.m.SearchFiles(asOwnerIn(t), ref, api.SearchRequest{FileRef: at("/srv"), Text: "(", Regexp: true, Limit: 1})
	wantCode(t, err, api.CodeInvalid)
	if f := api.AsError(err).Field; f != "content" { // as the interface calls it
		t.Errorf("a broken expression is an error of the field %q", f)
	}
}

// TestForkWhileFilesAreOpen forks a sandbox in the middle of an upload, a
// download and a watch: the parent goes on with them, and a child has nothing of
// them.
func TestForkWhileFilesAreOpen(t *testing.T) {
	n := newNode(t)
	ref := n.create("").ID
	data := make([]byte, 4<<20)
	rand.NewChaCha8([32]byte{1}).Read(data)
	n.put(ref, api.WriteRequest{FileRef: at("/srv/big")}, string(data))
	in, upload := io.Pipe()
	uploaded := make(chan error, 1)
	go func() {
		_, err := n.m.WriteFile(asOwner, ref, api.WriteRequest{FileRef: at("/srv/new"), Atomic: true}, in)
		uploaded <- err
	}()
	write := func(s string) {
		if _, err := io.WriteString(upload, s); err != nil {
			t.Error(err)
		}
	}
	write("before ")
	down, err := n.m.OpenFile(asOwnerIn(t), ref, at("/srv/big"))
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.New()
	if _, err := io.CopyN(sum, down, 1<<20); err != nil {
		t.Fatal(err)
	}
	watch := n.watch(ref, api.WatchRequest{FileRef: at("/srv"), Recursive: true})
	temporary := func(ref string) error {
		for _, p := range n.list(ref, api.ListRequest{FileRef: at("/srv"), Limit: 100}) {
			if strings.HasPrefix(path.Base(p), ".ramet-") {
				return fmt.Errorf("%s has %s", ref, p)
			}
		}
		return nil
	}
	eventually(t, "the upload has begun", func() error {
		if temporary(ref) == nil {
			return errors.New("there is no temporary file")
		}
		return nil
	})
	kids := n.fork(ref, 2)
	grandkid := n.fork(kids[0].ID, 1)[0]
	for _, k := range append(kids, grandkid) {
		if err := temporary(k.ID); err != nil {
			t.Error(err)
		}
		n.mustRead(k.ID, "/srv/big", string(data))
		n.put(k.ID, api.WriteRequest{FileRef: at("/srv/kid"), Atomic: true}, k.ID)
	}
	write("after")
	upload.Close()
	if err := <-uploaded; err != nil {
		t.Error(err)
	}
	n.mustRead(ref, "/srv/new", "before after")
	watch.wait("created /srv/new")
	if slices.Contains(watch.seen, "created /srv/kid") {
		t.Error("the parent's watch tells of a child")
	}
	watch.end()
	if _, err := io.Copy(sum, down); err != nil {
		t.Error(err)
	}
	down.Close()
	if want := sha256.Sum256(data); !bytes.Equal(sum.Sum(nil), want[:]) {
		t.Error("the download differs")
	}
	_, err = n.m.StatFile(asOwnerIn(t), kids[1].ID, at("/srv/new"))
	wantCode(t, err, api.CodeNotFound)
}

// TestLargeDirectory lists, forks, packs and removes a directory of many files.
func TestLargeDirectory(t *testing.T) {
	n := newNode(t)
	ref := n.create("").ID
	const files = 10_000 // more than one step reads, and fewer than the rest of the tests has patience for
	var entries []*tar.Header
	for i := range files {
		entries = append(entries, &tar.Header{Typeflag: tar.TypeReg, Name: fmt.Sprintf("many/%05d", i*7919%files), Mode: 0o644})
	}
	if _, err := n.m.WriteArchive(asOwnerIn(t), ref, at("/srv"), false, tarOf(t, entries...)); err != nil {
		t.Fatal(err)
	}
	for _, limit := range []int{999, 10_000} {
		got := n.list(ref, api.ListRequest{FileRef: at("/srv/many"), Limit: limit})
		if len(got) != files || !slices.IsSorted(got) || got[files-1] != "/srv/many/09999" {
			t.Errorf("%d on a page: %d files, in order %t", limit, len(got), slices.IsSorted(got))
		}
	}
	kid := n.fork(ref, 1)[0]
	if err := n.change1(kid.ID, api.FileChange{FileRef: at("/srv/many"), Action: api.FileRemove, Recursive: true}); err != nil {
		t.Fatal(err)
	}
	_, err := n.m.StatFile(asOwnerIn(t), kid.ID, at("/srv/many"))
	wantCode(t, err, api.CodeNotFound)
	var archive bytes.Buffer
	if err := n.m.ReadArchive(asOwnerIn(t), ref, at("/srv/many"), &archive); err != nil {
		t.Fatal(err)
	}
	if res, err := n.m.WriteArchive(asOwnerIn(t), kid.ID, at("/srv"), false, &archive); err != nil || res.Files != files+1 {
		t.Errorf("copied %+v, %v", res, err)
	}
}

// TestSlowClients reads nothing of what it asks for, and goes: the sandbox stays
// usable, can be forked meanwhile, and nothing is left open.
func TestSlowClients(t *testing.T) {
	n := newNode(t)
	ref := n.create("").ID
	n.put(ref, api.WriteRequest{FileRef: at("/srv/big")}, strings.Repeat("0123456789abcdef", 1<<20))
	c, raw := restOf(t, n)
	var bodies []io.Closer
	for range 8 {
		file, _, err := c.Files.Read(asOwnerIn(t), ref, at("/srv/big"))
		if err != nil {
			t.Fatal(err)
		}
		archive, err := c.Files.ReadArchive(asOwnerIn(t), ref, at("/srv"))
		if err != nil {
			t.Fatal(err)
		}
		watch, err := raw.Get("http://ramet/v1/sandboxes/" + ref + "/files/watch?path=/srv")
		if err != nil {
			t.Fatal(err)
		}
		bodies = append(bodies, file, archive, watch.Body)
	}
	kid := n.fork(ref, 1)[0]
	for _, id := range []string{ref, kid.ID} {
		n.put(id, api.WriteRequest{FileRef: at("/srv/new")}, id)
		n.mustRead(id, "/srv/new", id)
	}
	for _, b := range bodies {
		b.Close()
	}
	b, err := n.read(ref, at("/srv/big"))
	if err != nil || len(b) != 16<<20 {
		t.Errorf("read %d bytes, %v", len(b), err)
	}
}

// TestFilesOfOtherStates reads and writes files of a paused sandbox, and of one
// that was rolled back.
func TestFilesOfOtherStates(t *testing.T) {
	n := newNode(t)
	ref := n.create("").ID
	n.put(ref, api.WriteRequest{FileRef: at("/srv/f")}, "before")
	if _, err := n.m.Pause(asOwnerIn(t), ref); err != nil {
		t.Fatal(err)
	}
	n.mustRead(ref, "/srv/f", "before")
	n.put(ref, api.WriteRequest{FileRef: at("/srv/f"), Atomic: true}, "paused")
	_, err := n.m.DialPort(asOwnerIn(t), ref, 80, 0)
	wantCode(t, err, api.CodeWrongState)
	if _, err := n.m.Resume(asOwnerIn(t), ref); err != nil {
		t.Fatal(err)
	}
	if got := n.guest(ref, "cat", "/srv/f"); got != "paused" {
		t.Errorf("the guest reads %q", got)
	}
	snap, err := n.m.Snapshot(asOwnerIn(t), ref, api.SnapshotRequest{})
	if err != nil {
		t.Fatal(err)
	}
	n.put(ref, api.WriteRequest{FileRef: at("/srv/f")}, "after")
	// An upload that is under way is cut off by a rollback, and leaves nothing.
	in, upload := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		_, err := n.m.WriteFile(asOwner, ref, api.WriteRequest{FileRef: at("/srv/up"), Atomic: true}, in)
		in.CloseWithError(errBroken)
		ended <- err
	}()
	if _, err := io.WriteString(upload, "x"); err != nil {
		t.Fatal(err)
	}
	if _, err := n.m.Rollback(asOwnerIn(t), ref, snap.ID); err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = io.WriteString(upload, "x") // until it is noticed
	}
	if err := <-ended; err == nil {
		t.Error("an upload to what was rolled back went well")
	}
	n.mustRead(ref, "/srv/f", "paused")
	_, err = n.m.StatFile(asOwnerIn(t), ref, at("/srv/up"))
	wantCode(t, err, api.CodeNotFound)
}

// TestArchiveOfADeepTree looks at the names in an archive of directories within each
// other.
func TestArchiveOfADeepTree(t *testing.T) {
	n := newNode(t)
	n.create("base")
	for _, name := range []string{"/srv/q/d1/d2/d3/f", "/srv/q/d1/g", "/srv/q/d1/d2/h"} {
		n.put("base", api.WriteRequest{FileRef: at(name), Parents: true}, name)
	}
	var archive bytes.Buffer
	if err := n.m.ReadArchive(asOwnerIn(t), "base", at("/srv/q"), &archive); err != nil {
		t.Fatal(err)
	}
	var got []string
	for in := tar.NewReader(&archive); ; {
		h, err := in.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, h.Name)
	}
	if want := []string{"q/", "q/d1/", "q/d1/d2/", "q/d1/d2/d3/", "q/d1/d2/d3/f", "q/d1/d2/h", "q/d1/g"}; !slices.Equal(got, want) {
		t.Errorf("the archive has\n%q and not\n%q", got, want)
	}
	n.destroy("base")
}
