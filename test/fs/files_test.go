package fs

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
	"ramet.dev/ramet/test/harness"
)

// list returns the paths of all pages.
func list(n *harness.Node, ref string, req api.ListRequest) []string {
	n.T.Helper()
	var paths []string
	for {
		l, err := n.Machine.ListFiles(harness.AsOwner, ref, req)
		if err != nil {
			n.T.Fatalf("list %q: %v", req.Path, err)
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
	n := harness.NewNode(t)
	ref := n.Create("").ID
	for _, atomic := range []bool{false, true} {
		dir := fmt.Sprintf("/srv/w-%t", atomic)
		w := api.WriteRequest{FileRef: harness.At(dir + "/sub/file"), Atomic: atomic}
		if _, err := n.Machine.WriteFile(harness.AsOwnerIn(t), ref, w, strings.NewReader("x")); api.CodeOf(err) != api.CodeNotFound {
			t.Errorf("write without the directory: %v", err)
		}
		w.Parents = true
		first := n.Put(ref, w, "first\n")
		if first.Mode != "0644" || first.UID != 0 || first.Size != 6 || first.Type != "file" || !first.Created {
			t.Errorf("new file: %+v", first)
		}
		if err := n.ChangeFile(ref, api.FileChange{FileRef: w.FileRef, Action: api.FileChmod, Mode: mode(0o4711)}); err != nil {
			t.Error(err)
		}
		second := n.Put(ref, w, "2nd")
		if want := map[bool]string{true: "4711", false: "0711"}[atomic]; second.Mode != want && second.Mode != "4711" {
			t.Errorf("mode of a file that was written again: %s, not %s", second.Mode, want)
		}
		n.MustRead(ref, w.Path, "2nd")
		if second.ETag == first.ETag || second.ETag == "" || second.Created {
			t.Errorf("ETags %q and %q, created %t", first.ETag, second.ETag, second.Created)
		}
		stale := w
		stale.IfMatch = []string{first.ETag}
		_, err := n.Machine.WriteFile(harness.AsOwnerIn(t), ref, stale, strings.NewReader("x"))
		harness.WantCode(t, err, api.CodeChanged)
		now, err := n.Machine.StatFile(harness.AsOwnerIn(t), ref, w.FileRef)
		if err != nil {
			t.Fatal(err)
		}
		fresh := w
		fresh.IfMatch, fresh.Mode = []string{first.ETag, now.ETag}, mode(0o600)
		if got := n.Put(ref, fresh, "third"); got.Mode != "0600" {
			t.Errorf("mode = %s", got.Mode)
		}
		only := w
		only.New = true
		_, err = n.Machine.WriteFile(harness.AsOwnerIn(t), ref, only, strings.NewReader("x"))
		harness.WantCode(t, err, api.CodeChanged)
		harness.WantCode(t, n.ChangeFile(ref, api.FileChange{FileRef: w.FileRef, Action: api.FileRemove, IfMatch: stale.IfMatch}), api.CodeChanged)
		n.MustRead(ref, w.Path, "third")
		gone := w
		gone.Path, gone.IfMatch = dir+"/gone", []string{api.AnyETag}
		_, err = n.Machine.WriteFile(harness.AsOwnerIn(t), ref, gone, strings.NewReader("x"))
		harness.WantCode(t, err, api.CodeChanged)
		harness.WantCode(t, n.ChangeFile(ref, api.FileChange{FileRef: gone.FileRef, Action: api.FileRemove, IfMatch: gone.IfMatch}), api.CodeChanged)
		if got := list(n, ref, api.ListRequest{FileRef: harness.At(dir), Limit: 100}); !slices.Equal(got, []string{dir + "/sub", dir + "/sub/file"}) {
			t.Errorf("%s has %q", dir, got)
		}
	}
	more := api.WriteRequest{FileRef: harness.At("/srv/w-true/sub/file"), Append: true}
	n.Put(ref, more, " and more")
	n.MustRead(ref, more.Path, "third and more")
	// The guest sees the same.
	if got := n.Guest(ref, "cat", more.Path); got != "third and more" {
		t.Errorf("the guest reads %q", got)
	}
	n.MustRead(ref, "/srv/kept", "kept\n")
	if got, err := n.Read(ref, harness.At("/proc/version")); err != nil || !strings.HasPrefix(got, "Linux version") {
		t.Errorf("/proc/version has %q, %v", got, err)
	}
}

func TestFilesThatAreRefused(t *testing.T) {
	n := harness.NewNode(t)
	ref := n.Create("").ID
	for path, code := range map[string]api.Code{
		"": api.CodeInvalid, "relative": api.CodeInvalid, "/a\x00b": api.CodeInvalid, "/" + strings.Repeat("a/", 3000): api.CodeInvalid,
		"/" + strings.Repeat("n", 300): api.CodeInvalid, "/nothing": api.CodeNotFound, "/srv/kept/below": api.CodeInvalid,
		"/srv": api.CodeUnsupported, "/dev/zero": api.CodeUnsupported, "/dev/tty": api.CodeUnsupported,
	} {
		_, err := n.Read(ref, harness.At(path))
		harness.WantCode(t, err, code)
		if strings.HasPrefix(path, "/dev") {
			_, err = n.Machine.WriteFile(harness.AsOwnerIn(t), ref, api.WriteRequest{FileRef: harness.At(path)}, strings.NewReader("x"))
			harness.WantCode(t, err, code)
		}
	}
	// A pipe that nobody has open.
	archive := harness.TarOf(t, &tar.Header{Typeflag: tar.TypeFifo, Name: "pipe", Mode: 0o666})
	if _, err := n.Machine.WriteArchive(harness.AsOwnerIn(t), ref, harness.At("/srv"), false, archive); err != nil {
		t.Fatal(err)
	}
	_, err := n.Read(ref, harness.At("/srv/pipe"))
	harness.WantCode(t, err, api.CodeUnsupported)
	for _, atomic := range []bool{false, true} {
		_, err = n.Machine.WriteFile(harness.AsOwnerIn(t), ref, api.WriteRequest{FileRef: harness.At("/srv/pipe"), Atomic: atomic}, strings.NewReader("x"))
		harness.WantCode(t, err, api.CodeUnsupported)
	}
	// A link, where it is not to be followed; and one that leads round in a circle.
	links := harness.TarOf(t, &tar.Header{Typeflag: tar.TypeSymlink, Name: "link", Linkname: "kept"}, &tar.Header{Typeflag: tar.TypeSymlink, Name: "loop", Linkname: "loop"})
	if _, err := n.Machine.WriteArchive(harness.AsOwnerIn(t), ref, harness.At("/srv"), false, links); err != nil {
		t.Fatal(err)
	}
	n.MustRead(ref, "/srv/link", "kept\n")
	_, err = n.Read(ref, api.FileRef{Path: "/srv/link", NoFollow: true})
	harness.WantCode(t, err, api.CodeUnsupported)
	_, err = n.Read(ref, harness.At("/srv/loop"))
	harness.WantCode(t, err, api.CodeInvalid)
	for _, atomic := range []bool{false, true} {
		_, err = n.Machine.WriteFile(harness.AsOwnerIn(t), ref, api.WriteRequest{FileRef: api.FileRef{Path: "/srv/link", NoFollow: true}, Atomic: atomic}, strings.NewReader("x"))
		harness.WantCode(t, err, api.CodeUnsupported)
		n.Put(ref, api.WriteRequest{FileRef: harness.At("/srv/link"), Atomic: atomic}, "through")
		n.MustRead(ref, "/srv/kept", "through")
	}
	// Another user's permissions are enforced.
	n.Put(ref, api.WriteRequest{FileRef: harness.At("/root/secret"), Mode: mode(0o600)}, "s")
	worker := api.FileRef{Path: "/root/secret", User: "worker"}
	_, err = n.Read(ref, worker)
	harness.WantCode(t, err, api.CodePermission)
	for _, atomic := range []bool{false, true} {
		_, err = n.Machine.WriteFile(harness.AsOwnerIn(t), ref, api.WriteRequest{FileRef: worker, Atomic: atomic}, strings.NewReader("x"))
		harness.WantCode(t, err, api.CodePermission)
		_, err = n.Machine.WriteFile(harness.AsOwnerIn(t), ref, api.WriteRequest{FileRef: api.FileRef{Path: "/etc/new", User: "1000"}, Atomic: atomic}, strings.NewReader("x"))
		harness.WantCode(t, err, api.CodePermission)
	}
	harness.WantCode(t, n.ChangeFile(ref, api.FileChange{FileRef: worker, Action: api.FileRemove}), api.CodePermission)
	_, err = n.Read(ref, api.FileRef{Path: "/srv/kept", User: "nobody-here"})
	harness.WantCode(t, err, api.CodeInvalid)
	n.MustRead(ref, "/root/secret", "s")
	if l, err := n.Machine.StatFile(harness.AsOwnerIn(t), ref, api.FileRef{Path: "/srv/link", NoFollow: true}); err != nil || l.Type != "symlink" || l.Target != "kept" {
		t.Errorf("the link is %+v, %v", l, err)
	}
	harness.WantCode(t, n.ChangeFile(ref, api.FileChange{FileRef: harness.At("/srv"), Action: api.FileRemove}), api.CodeConflict)
	harness.WantCode(t, n.ChangeFile(ref, api.FileChange{FileRef: harness.At("/"), Action: api.FileRemove}), api.CodeConflict)
}

// TestBrokenUpload ends uploads in the middle.
func TestBrokenUpload(t *testing.T) {
	n := harness.NewNode(t)
	ref := n.Create("").ID
	n.Put(ref, api.WriteRequest{FileRef: harness.At("/srv/file")}, "old")
	broken := func() io.Reader {
		return io.MultiReader(strings.NewReader(strings.Repeat("x", 1<<20)), errReader{})
	}
	_, err := n.Machine.WriteFile(harness.AsOwnerIn(t), ref, api.WriteRequest{FileRef: harness.At("/srv/file"), Atomic: true}, broken())
	if !errors.Is(err, errBroken) {
		t.Errorf("error is %v", err)
	}
	want := []string{"/srv/broken", "/srv/changed", "/srv/deleted", "/srv/file", "/srv/kept", "/srv/text"}
	harness.Eventually(t, "the temporary file goes", func() error {
		if got := list(n, ref, api.ListRequest{FileRef: harness.At("/srv"), Limit: 100}); !slices.Equal(got, want) {
			return fmt.Errorf("/srv has %q", got)
		}
		return nil
	})
	n.MustRead(ref, "/srv/file", "old")
}

var errBroken = errors.New("broken")

type errReader struct{}

func (errReader) Read([]byte) (int, error) { return 0, errBroken }

// TestFullDiskWhileUploading writes more than the disk's limit.
func TestFullDiskWhileUploading(t *testing.T) {
	n := harness.NewNode(t)
	s, err := n.Machine.Create(harness.AsOwnerIn(t), api.CreateRequest{Image: "box", Limits: api.Limits{DiskMiB: 8}})
	if err != nil {
		t.Fatal(err)
	}
	endless := rand.NewChaCha8([32]byte{})
	_, err = n.Machine.WriteFile(harness.AsOwnerIn(t), s.ID, api.WriteRequest{FileRef: harness.At("/srv/file"), Atomic: true}, endless)
	harness.WantCode(t, err, api.CodeNoSpace)
	if err := n.ChangeFile(s.ID, api.FileChange{FileRef: harness.At("/srv/file"), Action: api.FileRemove}); api.CodeOf(err) != api.CodeNotFound {
		t.Errorf("half a file is there: %v", err)
	}
	var bomb bytes.Buffer
	w := tar.NewWriter(&bomb)
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "bomb", Size: 1 << 40, Mode: 0o644}); err != nil {
		t.Fatal(err)
	}
	_, err = n.Machine.WriteArchive(harness.AsOwnerIn(t), s.ID, harness.At("/srv"), false, io.MultiReader(&bomb, endless))
	harness.WantCode(t, err, api.CodeNoSpace)
	if err := n.ChangeFile(s.ID, api.FileChange{FileRef: harness.At("/srv/bomb"), Action: api.FileRemove}); err != nil {
		t.Error(err)
	}
	n.Put(s.ID, api.WriteRequest{FileRef: harness.At("/srv/file")}, "small")
}

// oddNames are names that no text has.
var oddNames = []string{"new\nline", "broken \xff\xfe utf-8", "a b", "-rf", "ünï", "\x01\x1b[2J", "%41", `back\slash`, strings.Repeat("n", 255), " "}

func TestFilesWithOddNames(t *testing.T) {
	n := harness.NewNode(t)
	ref := n.Create("").ID
	var want []string
	for _, name := range oddNames {
		p := "/srv/odd/" + name
		want = append(want, p)
		n.Put(ref, api.WriteRequest{FileRef: harness.At(p), Parents: true, Atomic: true}, name)
		n.MustRead(ref, p, name)
	}
	slices.Sort(want)
	for _, limit := range []int{1, 3, 100} {
		if got := list(n, ref, api.ListRequest{FileRef: harness.At("/srv/odd"), Limit: limit}); !slices.Equal(got, want) {
			t.Errorf("with %d on a page: %q", limit, got)
		}
	}
	var archive bytes.Buffer
	if err := n.Machine.ReadArchive(harness.AsOwnerIn(t), ref, harness.At("/srv/odd"), &archive); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Machine.WriteArchive(harness.AsOwnerIn(t), ref, harness.At("/srv/copy"), true, &archive); err != nil {
		t.Fatal(err)
	}
	for _, name := range oddNames {
		n.MustRead(ref, "/srv/copy/odd/"+name, name)
	}
	if err := n.ChangeFile(ref, api.FileChange{FileRef: harness.At("/srv/odd"), Action: api.FileRemove, Recursive: true}); err != nil {
		t.Fatal(err)
	}
	_, err := n.Machine.StatFile(harness.AsOwnerIn(t), ref, harness.At("/srv/odd"))
	harness.WantCode(t, err, api.CodeNotFound)
}

func TestFilesAreListed(t *testing.T) {
	n := harness.NewNode(t)
	ref := n.Create("").ID
	all := []string{
		"/srv/l/a", "/srv/l/a/b", "/srv/l/a/b/c.txt", "/srv/l/a/d.txt", "/srv/l/a.txt", "/srv/l/link", "/srv/l/z",
	}
	for _, f := range []string{"a/b/c.txt", "a/d.txt", "a.txt", "z"} {
		n.Put(ref, api.WriteRequest{FileRef: harness.At("/srv/l/" + f), Parents: true}, f)
	}
	if _, err := n.Machine.WriteArchive(harness.AsOwnerIn(t), ref, harness.At("/srv/l"), false, harness.TarOf(t, &tar.Header{Typeflag: tar.TypeSymlink, Name: "link", Linkname: "/etc"})); err != nil {
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
			if got := list(n, ref, c.req); !slices.Equal(got, c.want) {
				t.Errorf("%+v: %q, not %q", c.req, got, c.want)
			}
		}
	}
	_, err := n.Machine.ListFiles(harness.AsOwnerIn(t), ref, api.ListRequest{FileRef: harness.At("/srv/l"), Glob: "[", Limit: 1})
	harness.WantCode(t, err, api.CodeInvalid)
	_, err = n.Machine.ListFiles(harness.AsOwnerIn(t), ref, api.ListRequest{FileRef: harness.At("/srv/l/z"), Limit: 1})
	harness.WantCode(t, err, api.CodeInvalid)
	// The directory itself may be a link; links below it are not followed.
	if got := list(n, ref, api.ListRequest{FileRef: harness.At("/srv/l/link"), Glob: "passwd", Limit: 10}); !slices.Equal(got, []string{"/srv/l/link/passwd"}) {
		t.Errorf("through a link: %q", got)
	}
	search := func(req api.SearchRequest) string {
		t.Helper()
		req.Path = "/srv/l"
		if req.Limit == 0 {
			req.Limit = 100
		}
		res, err := n.Machine.SearchFiles(harness.AsOwnerIn(t), ref, req)
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
	n.Put(ref, api.WriteRequest{FileRef: harness.At("/srv/l/z")}, "one\nTWO two\n\nthree two")
	n.Put(ref, api.WriteRequest{FileRef: harness.At("/srv/l/bin")}, "two\x00two\n")
	for want, req := range map[string]api.SearchRequest{
		"a/b/c.txt:0: a/d.txt:0:":   {Glob: "[cd].txt"},
		"z:2:TWO two z:4:three two": {Text: "two"},
		"z:2:TWO two":               {Text: "TWO"},
		"z:1:one z:2:TWO two …":     {Text: "^(one|two)", Regexp: true, IgnoreCase: true, Limit: 2},
		"a/b/c.txt:1:a/b/c.txt":     {Glob: "c.*", Text: "c.t"},
		"a.txt:1:a.txt":             {Text: "^a.txt", Regexp: true},
	} {
		if req.Limit == 2 {
			n.Put(ref, api.WriteRequest{FileRef: harness.At("/srv/l/zz")}, "one")
		}
		if got := search(req); got != want {
			t.Errorf("%+v: %q, not %q", req, got, want)
		}
	}
	_, err = n.Machine.SearchFiles(harness.AsOwnerIn(t), ref, api.SearchRequest{FileRef: harness.At("/srv"), Text: "(", Regexp: true, Limit: 1})
	harness.WantCode(t, err, api.CodeInvalid)
	if f := api.AsError(err).Field; f != "content" { // as the interface calls it
		t.Errorf("a broken expression is an error of the field %q", f)
	}
}

// TestForkWhileFilesAreOpen forks a sandbox in the middle of an upload, a
// download and a watch: the parent goes on with them, and a child has nothing of
// them.
func TestForkWhileFilesAreOpen(t *testing.T) {
	n := harness.NewNode(t)
	ref := n.Create("").ID
	data := make([]byte, 4<<20)
	rand.NewChaCha8([32]byte{1}).Read(data)
	n.Put(ref, api.WriteRequest{FileRef: harness.At("/srv/big")}, string(data))
	in, upload := io.Pipe()
	uploaded := make(chan error, 1)
	go func() {
		_, err := n.Machine.WriteFile(harness.AsOwner, ref, api.WriteRequest{FileRef: harness.At("/srv/new"), Atomic: true}, in)
		uploaded <- err
	}()
	write := func(s string) {
		if _, err := io.WriteString(upload, s); err != nil {
			t.Error(err)
		}
	}
	write("before ")
	down, err := n.Machine.OpenFile(harness.AsOwnerIn(t), ref, harness.At("/srv/big"))
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.New()
	if _, err := io.CopyN(sum, down, 1<<20); err != nil {
		t.Fatal(err)
	}
	watch := watch(n, ref, api.WatchRequest{FileRef: harness.At("/srv"), Recursive: true})
	temporary := func(ref string) error {
		for _, p := range list(n, ref, api.ListRequest{FileRef: harness.At("/srv"), Limit: 100}) {
			if strings.HasPrefix(path.Base(p), ".ramet-") {
				return fmt.Errorf("%s has %s", ref, p)
			}
		}
		return nil
	}
	harness.Eventually(t, "the upload has begun", func() error {
		if temporary(ref) == nil {
			return errors.New("there is no temporary file")
		}
		return nil
	})
	kids := n.Fork(ref, 2)
	grandkid := n.Fork(kids[0].ID, 1)[0]
	for _, k := range append(kids, grandkid) {
		if err := temporary(k.ID); err != nil {
			t.Error(err)
		}
		n.MustRead(k.ID, "/srv/big", string(data))
		n.Put(k.ID, api.WriteRequest{FileRef: harness.At("/srv/kid"), Atomic: true}, k.ID)
	}
	write("after")
	upload.Close()
	if err := <-uploaded; err != nil {
		t.Error(err)
	}
	n.MustRead(ref, "/srv/new", "before after")
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
	_, err = n.Machine.StatFile(harness.AsOwnerIn(t), kids[1].ID, harness.At("/srv/new"))
	harness.WantCode(t, err, api.CodeNotFound)
}

// TestLargeDirectory lists, forks, packs and removes a directory of many files.
func TestLargeDirectory(t *testing.T) {
	n := harness.NewNode(t)
	ref := n.Create("").ID
	const files = 10_000 // more than one step reads, and fewer than the rest of the tests has patience for
	var entries []*tar.Header
	for i := range files {
		entries = append(entries, &tar.Header{Typeflag: tar.TypeReg, Name: fmt.Sprintf("many/%05d", i*7919%files), Mode: 0o644})
	}
	if _, err := n.Machine.WriteArchive(harness.AsOwnerIn(t), ref, harness.At("/srv"), false, harness.TarOf(t, entries...)); err != nil {
		t.Fatal(err)
	}
	for _, limit := range []int{999, 10_000} {
		got := list(n, ref, api.ListRequest{FileRef: harness.At("/srv/many"), Limit: limit})
		if len(got) != files || !slices.IsSorted(got) || got[files-1] != "/srv/many/09999" {
			t.Errorf("%d on a page: %d files, in order %t", limit, len(got), slices.IsSorted(got))
		}
	}
	kid := n.Fork(ref, 1)[0]
	if err := n.ChangeFile(kid.ID, api.FileChange{FileRef: harness.At("/srv/many"), Action: api.FileRemove, Recursive: true}); err != nil {
		t.Fatal(err)
	}
	_, err := n.Machine.StatFile(harness.AsOwnerIn(t), kid.ID, harness.At("/srv/many"))
	harness.WantCode(t, err, api.CodeNotFound)
	var archive bytes.Buffer
	if err := n.Machine.ReadArchive(harness.AsOwnerIn(t), ref, harness.At("/srv/many"), &archive); err != nil {
		t.Fatal(err)
	}
	if res, err := n.Machine.WriteArchive(harness.AsOwnerIn(t), kid.ID, harness.At("/srv"), false, &archive); err != nil || res.Files != files+1 {
		t.Errorf("copied %+v, %v", res, err)
	}
}

// TestSlowClients reads nothing of what it asks for, and goes: the sandbox stays
// usable, can be forked meanwhile, and nothing is left open.
func TestSlowClients(t *testing.T) {
	n := harness.NewNode(t)
	ref := n.Create("").ID
	n.Put(ref, api.WriteRequest{FileRef: harness.At("/srv/big")}, strings.Repeat("0123456789abcdef", 1<<20))
	c, raw := harness.ServeREST(t, n)
	var bodies []io.Closer
	for range 8 {
		file, _, err := c.Files.Read(harness.AsOwnerIn(t), ref, harness.At("/srv/big"))
		if err != nil {
			t.Fatal(err)
		}
		archive, err := c.Files.ReadArchive(harness.AsOwnerIn(t), ref, harness.At("/srv"))
		if err != nil {
			t.Fatal(err)
		}
		watch, err := raw.Get("http://ramet/v1/sandboxes/" + ref + "/files/watch?path=/srv")
		if err != nil {
			t.Fatal(err)
		}
		bodies = append(bodies, file, archive, watch.Body)
	}
	kid := n.Fork(ref, 1)[0]
	for _, id := range []string{ref, kid.ID} {
		n.Put(id, api.WriteRequest{FileRef: harness.At("/srv/new")}, id)
		n.MustRead(id, "/srv/new", id)
	}
	for _, b := range bodies {
		b.Close()
	}
	b, err := n.Read(ref, harness.At("/srv/big"))
	if err != nil || len(b) != 16<<20 {
		t.Errorf("read %d bytes, %v", len(b), err)
	}
}

// TestFilesOfOtherStates reads and writes files of a paused sandbox, and of one
// that was rolled back.
func TestFilesOfOtherStates(t *testing.T) {
	n := harness.NewNode(t)
	ref := n.Create("").ID
	n.Put(ref, api.WriteRequest{FileRef: harness.At("/srv/f")}, "before")
	if _, err := n.Machine.Pause(harness.AsOwnerIn(t), ref); err != nil {
		t.Fatal(err)
	}
	n.MustRead(ref, "/srv/f", "before")
	n.Put(ref, api.WriteRequest{FileRef: harness.At("/srv/f"), Atomic: true}, "paused")
	_, err := n.Machine.DialPort(harness.AsOwnerIn(t), ref, 80, 0)
	harness.WantCode(t, err, api.CodeWrongState)
	if _, err := n.Machine.Resume(harness.AsOwnerIn(t), ref); err != nil {
		t.Fatal(err)
	}
	if got := n.Guest(ref, "cat", "/srv/f"); got != "paused" {
		t.Errorf("the guest reads %q", got)
	}
	snap, err := n.Machine.Snapshot(harness.AsOwnerIn(t), ref, api.SnapshotRequest{})
	if err != nil {
		t.Fatal(err)
	}
	n.Put(ref, api.WriteRequest{FileRef: harness.At("/srv/f")}, "after")
	// An upload that is under way is cut off by a rollback, and leaves nothing.
	in, upload := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		_, err := n.Machine.WriteFile(harness.AsOwner, ref, api.WriteRequest{FileRef: harness.At("/srv/up"), Atomic: true}, in)
		in.CloseWithError(errBroken)
		ended <- err
	}()
	if _, err := io.WriteString(upload, "x"); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Machine.Rollback(harness.AsOwnerIn(t), ref, snap.ID); err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = io.WriteString(upload, "x") // until it is noticed
	}
	if err := <-ended; err == nil {
		t.Error("an upload to what was rolled back went well")
	}
	n.MustRead(ref, "/srv/f", "paused")
	_, err = n.Machine.StatFile(harness.AsOwnerIn(t), ref, harness.At("/srv/up"))
	harness.WantCode(t, err, api.CodeNotFound)
}

// TestArchiveOfADeepTree looks at the names in an archive of directories within each
// other.
func TestArchiveOfADeepTree(t *testing.T) {
	n := harness.NewNode(t)
	n.Create("base")
	for _, name := range []string{"/srv/q/d1/d2/d3/f", "/srv/q/d1/g", "/srv/q/d1/d2/h"} {
		n.Put("base", api.WriteRequest{FileRef: harness.At(name), Parents: true}, name)
	}
	var archive bytes.Buffer
	if err := n.Machine.ReadArchive(harness.AsOwnerIn(t), "base", harness.At("/srv/q"), &archive); err != nil {
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
	n.Destroy("base")
}
