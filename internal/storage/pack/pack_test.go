package pack

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ramet.dev/ramet/internal/image"
	"ramet.dev/ramet/internal/storage/btree"
	"ramet.dev/ramet/internal/storage/cowfs"
	"ramet.dev/ramet/internal/storage/erofs"
	"ramet.dev/ramet/internal/storage/treediff"
)

// tree is what files are, by path. Names of one file have the same first name.
type tree map[string]string

// treeOf reads files. Sockets are left out.
func treeOf(t testing.TB, f *cowfs.Files) tree {
	t.Helper()
	out, first := tree{}, map[cowfs.Ino]string{}
	var walk func(p string, ino cowfs.Ino)
	walk = func(p string, ino cowfs.Ino) {
		n, err := f.Node(ino)
		if err != nil {
			t.Fatal(p, err)
		}
		a := &n.Attr
		if a.Mode&cowfs.TypeMask == typeSocket {
			return
		}
		text := fmt.Sprintf("%o %d:%d %d,%d %d ", a.Mode, a.UID, a.GID, a.Major, a.Minor, a.Mtime)
		all, err := xattrs(f, ino)
		if err != nil {
			t.Fatal(p, err)
		}
		for _, x := range all {
			text += fmt.Sprintf("%s=%q ", x.Name, x.Value)
		}
		switch a.Mode & cowfs.TypeMask {
		case cowfs.TypeReg:
			data, err := f.ReadFile(context.Background(), &n, 1<<30)
			if err != nil {
				t.Fatal(p, err)
			}
			text += fmt.Sprintf("%d %x", len(data), data[:min(len(data), 40)]) + fmt.Sprint(bytes.Count(data, []byte{0}), bytes.Count(data, []byte{1}))
		case cowfs.TypeLink:
			target, err := f.Target(ino)
			if err != nil {
				t.Fatal(p, err)
			}
			text += target
		case cowfs.TypeDir:
			if err := f.Entries(ino, func(name string, ino cowfs.Ino) error {
				walk(path.Join(p, name), ino)
				return nil
			}); err != nil {
				t.Fatal(p, err)
			}
		}
		if !a.IsDir() {
			if first[ino] == "" {
				first[ino] = p
			}
			text += " first " + first[ino]
		}
		out[p] = text
	}
	walk("/", f.Root())
	return out
}

// wanted is the tree that is packed, made of those of the sandbox and the image.
func wanted(s *Source, now, old tree) tree {
	kept := func(p string) bool {
		return slices.ContainsFunc(s.Keep, func(k string) bool { return treediff.Below(p, k) })
	}
	want := tree{}
	for p, text := range now {
		if !kept(p) {
			want[p] = text
		}
	}
	for p, text := range old {
		if kept(p) && keptIn(s, p) {
			want[p] = text
		}
	}
	return want
}

// keptIn says whether the directory that has something to be kept is the image's.
func keptIn(s *Source, p string) bool {
	for _, k := range s.Keep {
		if !treediff.Below(p, k) {
			continue
		}
		for dir := path.Dir(k); ; dir = path.Dir(dir) {
			a, err := s.Image.Find(dir)
			b, err2 := s.Files.Find(dir)
			if err != nil || err2 != nil || a.Ino != b.Ino {
				return false
			}
			if dir == "/" {
				return true
			}
		}
	}
	return false
}

// compare fails the test unless the trees are equal, but for which of the names of
// a file comes first, if some are kept, and the times of directories of those.
func compare(t *testing.T, what string, s *Source, got, want tree) {
	t.Helper()
	got, want = normal(s, got), normal(s, want)
	for p := range want {
		if got[p] != want[p] {
			t.Errorf("%s: %s:\n got %.300s\nwant %.300s", what, p, got[p], want[p])
		}
	}
	for p := range got {
		if _, ok := want[p]; !ok {
			t.Errorf("%s: %s should not be there", what, p)
		}
	}
	if t.Failed() {
		t.FailNow()
	}
}

func normal(s *Source, in tree) tree {
	out := tree{}
	first := map[string]string{} // what was first, to what is first of those that are left
	for _, p := range slices.Sorted(func(yield func(string) bool) {
		for p := range in {
			if !yield(p) {
				return
			}
		}
	}) {
		text := in[p]
		if i := strings.LastIndex(text, " first "); i >= 0 {
			side := fmt.Sprint(slices.ContainsFunc(s.Keep, func(k string) bool { return treediff.Below(p, k) })) + text[i:]
			if first[side] == "" {
				first[side] = p
			}
			text = text[:i] + " first " + first[side]
		}
		if slices.ContainsFunc(s.Keep, func(k string) bool { return path.Dir(k) == p }) {
			fields := strings.Fields(text)
			fields[3] = "some time"
			text = strings.Join(fields, " ")
		}
		out[p] = text
	}
	return out
}

// openStored reads an image of a store.
func openStored(t testing.TB, s *image.Store, id string) (*cowfs.Files, []byte) {
	t.Helper()
	file, err := s.Path(id)
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	f, err := cowfs.NewFiles(btree.OpenView(nil, 0), data)
	if err != nil {
		t.Fatal(err)
	}
	return f, data
}

func openStore(t testing.TB) *image.Store {
	t.Helper()
	s, err := image.Open(filepath.Join(t.TempDir(), "images"))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func commit(t testing.TB, store *image.Store, s *Source) string {
	t.Helper()
	img, err := store.Make(t.Context(), image.Options{}, func(d *image.Draft) error { return s.Fill(t.Context(), d) })
	if err != nil {
		t.Fatal(err)
	}
	return img.ID
}

func written(t testing.TB, write func(io.Writer) error) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := write(&out); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// TestAllFormsAreOneTree makes random changes and compares what each form is read
// as with what the sandbox has, over images made of sandboxes of images.
func TestAllFormsAreOneTree(t *testing.T) {
	store := openStore(t)
	for seed := range uint64(12) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { allForms(t, store, seed) })
	}
}

func allForms(t *testing.T, store *image.Store, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 1))
	data := someImage(t)
	for generation := range 3 {
		g := newGuest(t, data)
		for range 1 + r.IntN(60) {
			g.random(r)
		}
		var keep []string
		if r.IntN(3) > 0 {
			keep = []string{"/tmp", "/keep/in", "/usr/f1"}
		}
		s := g.source(keep...)
		what := fmt.Sprintf("generation %d", generation)
		want := wanted(s, treeOf(t, s.Files), treeOf(t, s.Image))

		id := commit(t, store, s)
		committed, bytesOf := openStored(t, store, id)
		compare(t, what+": commit", s, treeOf(t, committed), want)

		whole := written(t, func(w io.Writer) error { return s.Tar(t.Context(), w) })
		img, err := store.ImportTar(t.Context(), bytes.NewReader(whole), image.Options{})
		if err != nil {
			t.Fatal(what, err)
		}
		imported, _ := openStored(t, store, img.ID)
		compare(t, what+": tar", s, treeOf(t, imported), want)

		zipped := generation%2 == 0
		archive := written(t, func(w io.Writer) error { return s.OCI(t.Context(), w, Archive{Name: "x", Tag: "latest", Gzip: zipped}) })
		if img, err = store.ImportStream(t.Context(), bytes.NewReader(archive), image.Options{}); err != nil {
			t.Fatal(what, err)
		}
		imported, _ = openStored(t, store, img.ID)
		compare(t, what+": oci", s, treeOf(t, imported), want)

		layer := func() []byte { return written(t, func(w io.Writer) error { return s.Layer(t.Context(), w) }) }
		if !bytes.Equal(layer(), layer()) {
			t.Fatalf("%s: two layers of the same files differ", what)
		}
		// What was committed has no changes.
		next := newGuest(t, bytesOf)
		if empty := written(t, func(w io.Writer) error { return next.source(keep...).Layer(t.Context(), w) }); len(names(t, empty)) > 0 {
			t.Fatalf("%s: layer of an unchanged sandbox: %v", what, names(t, empty))
		}
		data = bytesOf
	}
}

// names returns what is in a tar.
func names(t testing.TB, data []byte) (all []string) {
	t.Helper()
	for _, h := range headers(t, data) {
		all = append(all, h.Name)
	}
	return all
}

func headers(t testing.TB, data []byte) (all []*tar.Header) {
	t.Helper()
	for in := tar.NewReader(bytes.NewReader(data)); ; {
		h, err := in.Next()
		if err == io.EOF {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, h)
	}
}

// TestLayer tells what is in a layer for each kind of change.
func TestLayer(t *testing.T) {
	g := newGuest(t, someImage(t))
	for _, c := range []struct {
		name   string
		change func()
		want   []string
	}{
		{"nothing", func() {}, nil},
		{"a new file, and the directories above it", func() { g.write("/a/b/new", 0, []byte("x")) }, []string{"./", "a/", "a/b/", "a/b/new"}},
		{"a file that goes", func() { g.remove("/usr/f1") }, []string{"./", "usr/", "usr/.wh.f1"}},
		{"a file that was never the image's", func() { g.write("/usr/x", 0, nil); g.remove("/usr/x") }, []string{"./", "usr/"}},
		{"a directory in the place of another", func() { g.remove("/a/b"); g.mkdir("/a/b"); g.write("/a/b/f1", 0, nil) }, []string{"./", "a/", "a/b/", "a/b/.wh..wh..opq", "a/b/f1"}},
		{"a file in the place of a directory", func() { g.remove("/a"); g.write("/a", 0, nil) }, []string{"./", "a"}},
		{"a directory in the place of a file", func() { g.remove("/f0"); g.mkdir("/f0") }, []string{"./", "f0/"}},
		{"a renamed directory", func() { g.rename("/a/b/c", "/moved") }, []string{"./", "a/", "a/b/", "a/b/.wh.c", "moved/", "moved/f0", "moved/f1", "moved/f2"}},
		{"a changed file has all its names", func() { g.write("/usr/hard", 0, []byte("y")) }, []string{"./", "a/", "a/b/", "a/b/hard", "a/f1", "usr/", "usr/hard"}},
		{"a new name has the others with it", func() { g.link("/usr/hard", "/z") }, []string{"./", "a/", "a/b/", "a/b/hard", "a/f1", "usr/", "usr/hard", "z"}},
		{"a name that goes leaves the others", func() { g.remove("/usr/hard") }, []string{"./", "usr/", "usr/.wh.hard"}},
		{"a time", func() { g.change("/f1", func(a *cowfs.Attr) { a.Mtime++ }) }, []string{"./", "f1"}},
		{"a time of access", func() { g.change("/f1", func(a *cowfs.Attr) { a.Atime++ }) }, nil},
		{"a mode, of a directory", func() { g.change("/a/b", func(a *cowfs.Attr) { a.Mode ^= 1 }) }, []string{"./", "a/", "a/b/"}},
		{"an extended attribute", func() { g.setxattr("/f2", "user.a", "other") }, []string{"./", "f2"}},
		{"one that is set to what it was", func() { g.setxattr("/f2", "user.a", "\x00\x01") }, nil},
		{"one that goes", func() { g.setxattr("/f2", "user.a", "-") }, []string{"./", "f2"}},
		{"a socket", func() { g.create("/sock", typeSocket|0o777) }, []string{"./"}},
		{"a socket in the place of a file", func() { g.remove("/f1"); g.create("/f1", typeSocket|0o777) }, []string{"./", ".wh.f1"}},
		{"what is kept", func() {
			g.write("/tmp/x", 0, nil)
			g.remove("/keep/in")
			g.write("/keep/in", 0, nil)
			g.remove("/usr/keep")
		}, []string{"./", "usr/", "usr/.wh.keep"}},
		{"what is kept, where the image has nothing", func() { g.mkdir("/proc"); g.write("/proc/x", 0, nil) }, nil},
	} {
		g = newGuest(t, g.image)
		c.change()
		got := names(t, written(t, func(w io.Writer) error { return g.source("/tmp", "/keep/in", "/proc").Layer(t.Context(), w) }))
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
}

// TestHeaders tells how files look in an archive.
func TestHeaders(t *testing.T) {
	g := newGuest(t, someImage(t))
	g.write("/new", 0, []byte("text"))
	g.setxattr("/new", "user.a", "v\x00")
	g.change("/new", func(a *cowfs.Attr) {
		a.Mode, a.UID, a.GID, a.Mtime = cowfs.TypeReg|0o4751, 1<<31, 1<<32-1, 1234567890_987654321
	})
	g.link("/new", "/new2")
	g.symlink("/sym", strings.Repeat("t/", 200))
	g.device("/char", typeChar|0o666, 1, 3)
	g.device("/block", typeBlock|0o660, 8, 1)
	g.create("/fifo", typeFifo|0o600)
	g.mkdir("/" + strings.Repeat("n", 200))
	g.write("/old", 0, nil)
	g.change("/old", func(a *cowfs.Attr) { a.Mtime = -1_500_000_000 })
	data := written(t, func(w io.Writer) error { return g.source().Layer(t.Context(), w) })
	var got []string
	in := tar.NewReader(bytes.NewReader(data))
	for h, err := in.Next(); err == nil; h, err = in.Next() {
		content, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprintf("%c %s %o %d:%d %d.%09d %.10s %d,%d %q %q", h.Typeflag, h.Name, h.Mode, h.Uid, h.Gid, h.ModTime.Unix(), h.ModTime.Nanosecond(),
			h.Linkname, h.Devmajor, h.Devminor, content, h.PAXRecords["SCHILY.xattr.user.a"]))
	}
	for _, want := range []string{
		`0 new 4751 2147483648:4294967295 1234567890.987654321  0,0 "text" "v\x00"`,
		`1 new2 4751 2147483648:4294967295 1234567890.987654321 new 0,0 "" ""`,
		`2 sym 777 0:0 `, `3 char 666 0:0 `, `4 block 660 0:0 `, `6 fifo 600 0:0 `, `5 ` + strings.Repeat("n", 200) + `/ 755 0:0 `,
		`0 old 644 0:0 -2.500000000`,
	} {
		if !slices.ContainsFunc(got, func(s string) bool { return strings.HasPrefix(s, want) }) {
			t.Errorf("no entry %s in\n%s", want, strings.Join(got, "\n"))
		}
	}
	// An image has device nodes too.
	store := openStore(t)
	f, _ := openStored(t, store, commit(t, store, g.source()))
	if n, err := f.Find("/block"); err != nil || n.Attr.Mode != typeBlock|0o660 || n.Attr.Major != 8 || n.Attr.Minor != 1 {
		t.Errorf("device in the image: %+v, %v", n, err)
	}
	if n, err := f.Find("/old"); err != nil || n.Attr.Mtime != 0 {
		t.Errorf("file of before 1970 in the image: %+v, %v", n, err)
	}
}

// TestUnfit tells what cannot be packed, before anything is written.
func TestUnfit(t *testing.T) {
	image := someImage(t)
	deep := func(g *guest) {
		p := ""
		for range 17 {
			p += "/" + strings.Repeat("d", 250)
			g.mkdir(p)
		}
	}
	for name, c := range map[string]struct {
		change func(g *guest)
		forms  string // that it does not fit
	}{
		"whiteout":         {func(g *guest) { g.write("/a/.wh.x", 0, nil) }, "layer oci"},
		"name with =":      {func(g *guest) { g.setxattr("/f1", "user.a=b", "") }, "layer oci tar"},
		"large attributes": {func(g *guest) { g.setxattr("/f1", "user.a", strings.Repeat("x", erofs.MaxXattrValue+1)) }, "image"},
		"long path":        {deep, "layer oci tar image"},
	} {
		for form, pack := range map[string]func(s *Source, w io.Writer) error{
			"layer": func(s *Source, w io.Writer) error { return s.Layer(t.Context(), w) },
			"oci":   func(s *Source, w io.Writer) error { return s.OCI(t.Context(), w, Archive{Name: "x"}) },
			"tar":   func(s *Source, w io.Writer) error { return s.Tar(t.Context(), w) },
			"image": func(s *Source, w io.Writer) error {
				return s.Fill(t.Context(), nowhere{erofs.NewTree(), erofs.NewWriter(nil)})
			},
		} {
			g := newGuest(t, image)
			c.change(g)
			var out bytes.Buffer
			err := pack(g.source(), &out)
			if want := strings.Contains(c.forms, form); errors.Is(err, ErrUnfit) != want || !want && err != nil {
				t.Errorf("%s as %s: %v", name, form, err)
			}
			if err != nil && out.Len() > 0 {
				t.Errorf("%s as %s: %d bytes were written before it was refused", name, form, out.Len())
			}
		}
	}
}

// nowhere is an image that forgets what files contain.
type nowhere struct {
	tree *erofs.Tree
	*erofs.Writer
}

func (n nowhere) Put(path string, node *erofs.Node) error { return n.tree.Put(path, node) }

func (n nowhere) Link(path, target string) error { return n.tree.Link(path, target) }

func (n nowhere) PutFile(path string, node *erofs.Node, contents io.Reader, _ int64) error {
	if _, err := io.Copy(io.Discard, contents); err != nil {
		return err
	}
	return n.tree.Put(path, node)
}

// TestCancel ends in the middle of a large file.
func TestCancel(t *testing.T) {
	g := newGuest(t, someImage(t))
	g.write("/big", 1<<40, []byte("x"))
	ctx, cancel := context.WithCancel(t.Context())
	err := g.source().Layer(ctx, writerFunc(func(p []byte) (int, error) {
		if len(p) > 512 {
			cancel()
		}
		return len(p), nil
	}))
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	full := errors.New("no more")
	if err := g.source().Layer(t.Context(), writerFunc(func([]byte) (int, error) { return 0, full })); !errors.Is(err, full) {
		t.Errorf("a failing writer: %v", err)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// TestToolsReadThem has the tools of the host read what is packed.
func TestToolsReadThem(t *testing.T) {
	g := newGuest(t, someImage(t))
	r := rand.New(rand.NewPCG(5, 5))
	for range 80 {
		g.random(r)
	}
	dir := t.TempDir()
	file := func(name string, data []byte) string {
		p := filepath.Join(dir, name)
		if err := os.WriteFile(p, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return p
	}
	layer := written(t, func(w io.Writer) error { return g.source().Layer(t.Context(), w) })
	store := openStore(t)
	_, img := openStored(t, store, commit(t, store, g.source()))
	ran := 0
	for _, argv := range [][]string{{"tar", "-tvf", file("layer", layer)}, {"fsck.erofs", file("image", img)}} {
		tool, err := exec.LookPath(argv[0])
		if err != nil {
			continue
		}
		ran++
		out, err := exec.Command(tool, argv[1:]...).CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v\n%s", argv[0], err, out)
		}
		if argv[0] == "tar" && strings.Count(string(out), "\n") != len(names(t, layer)) {
			t.Errorf("tar lists\n%s\nwant %v", out, names(t, layer))
		}
	}
	if ran == 0 {
		t.Skip("neither tar nor fsck.erofs is installed")
	}
}
