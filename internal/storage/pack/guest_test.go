package pack

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/internal/storage/btree"
	"ramet.dev/ramet/internal/storage/cowfs"
	"ramet.dev/ramet/internal/storage/erofs"
	"ramet.dev/ramet/internal/storage/pages"
	"ramet.dev/ramet/internal/storage/treediff"
)

// guest changes files above an image as a sandbox does.
type guest struct {
	t     testing.TB
	fs    *cowfs.FS
	image []byte
	clock int64
	pins  int
}

func newGuest(t testing.TB, image []byte) *guest {
	t.Helper()
	g := &guest{t: t, image: image, clock: 1700000000_123456789}
	fd, err := unix.MemfdCreate("pages", unix.MFD_CLOEXEC)
	g.ok(err)
	s, err := pages.NewStore(os.NewFile(uintptr(fd), "pages"), 1, nil)
	g.ok(err)
	t.Cleanup(func() { s.Close() })
	g.fs, err = cowfs.Open(s, image, cowfs.State{})
	g.ok(err)
	return g
}

func (g *guest) ok(err error) {
	g.t.Helper()
	if err != nil {
		g.t.Fatal(err)
	}
}

// source returns what is packed of the files as they are now.
func (g *guest) source(keep ...string) *Source {
	g.t.Helper()
	g.pins++
	state, segs, err := g.fs.Pin(fmt.Sprint("pin ", g.pins))
	g.ok(err)
	now, err := cowfs.NewFiles(btree.OpenView(segs, state.Root), g.image)
	g.ok(err)
	base, err := cowfs.NewFiles(btree.OpenView(nil, 0), g.image)
	g.ok(err)
	return &Source{Image: base, Files: now, Keep: keep}
}

func (g *guest) now() int64 {
	g.clock += 1_000_001
	return g.clock
}

func (g *guest) attr(ino cowfs.Ino) cowfs.Attr {
	g.t.Helper()
	a, _, err := g.fs.Attr(ino)
	g.ok(err)
	return a
}

// set stores attributes, with the time at which it is done.
func (g *guest) set(ino cowfs.Ino, a cowfs.Attr) {
	g.t.Helper()
	a.Ctime = g.now()
	g.ok(g.fs.SetAttr(ino, &a))
}

func (g *guest) find(p string) (ino, dir cowfs.Ino, ok bool) {
	g.t.Helper()
	ino = g.fs.Root()
	for name := range strings.SplitSeq(strings.Trim(p, "/"), "/") {
		if name == "" {
			return ino, 0, true
		}
		if a := g.attr(ino); !a.IsDir() {
			return 0, 0, false
		}
		e, ok, err := g.fs.Lookup(ino, name)
		g.ok(err)
		if !ok {
			return 0, ino, false
		}
		dir, ino = ino, e.Ino
	}
	return ino, dir, true
}

func (g *guest) must(p string) (ino, dir cowfs.Ino) {
	g.t.Helper()
	ino, dir, ok := g.find(p)
	if !ok {
		g.t.Fatalf("there is no %s", p)
	}
	return ino, dir
}

// touchDir notes that the entries of a directory changed.
func (g *guest) touchDir(dir cowfs.Ino) {
	g.t.Helper()
	a := g.attr(dir)
	a.Mtime = g.now()
	g.set(dir, a)
}

func (g *guest) insert(dir cowfs.Ino, p string, ino cowfs.Ino) {
	g.t.Helper()
	a := g.attr(ino)
	g.ok(g.fs.Insert(dir, cowfs.Entry{Name: path.Base(p), Ino: ino, Type: a.DirentType()}))
	g.touchDir(dir)
}

func (g *guest) create(p string, mode uint32) cowfs.Ino {
	g.t.Helper()
	dir, _ := g.must(path.Dir(p))
	ino, now := g.fs.NewIno(), g.now()
	a := cowfs.Attr{Mode: mode, Nlink: 1, Atime: now, Mtime: now, Ctime: now, Btime: now}
	if a.IsDir() {
		a.Nlink = 2
	}
	g.set(ino, a)
	g.insert(dir, p, ino)
	return ino
}

func (g *guest) mkdir(p string) { g.create(p, cowfs.TypeDir|0o755) }

func (g *guest) symlink(p, target string) {
	g.t.Helper()
	ino := g.create(p, cowfs.TypeLink|0o777)
	a := g.attr(ino)
	a.Size = uint64(len(target))
	g.set(ino, a)
	g.ok(g.fs.SetTarget(ino, target))
}

func (g *guest) device(p string, mode, major, minor uint32) {
	g.t.Helper()
	ino := g.create(p, mode)
	a := g.attr(ino)
	a.Major, a.Minor = major, minor
	g.set(ino, a)
}

// write makes data be at an offset of a file, which is made if there is none.
func (g *guest) write(p string, off uint64, data []byte) {
	g.t.Helper()
	ino, _, ok := g.find(p)
	if !ok {
		ino = g.create(p, cowfs.TypeReg|0o644)
	}
	a := g.attr(ino)
	if len(data) > 0 {
		ready, err := g.fs.Prepare(ino, &a, off, uint64(len(data)))
		if err != nil || ready.Ready != uint64(len(data)) {
			g.t.Fatalf("prepare %s: %+v, %v", p, ready, err)
		}
		rest := data
		g.ok(g.fs.Write(ino, &a, off, uint64(len(data)), func(at cowfs.Place) (uint64, error) {
			n, err := at.WriteAt(rest[:at.N])
			rest = rest[n:]
			return uint64(n), err
		}))
	}
	a.Size = max(a.Size, off+uint64(len(data)))
	a.Mtime = g.now()
	g.set(ino, a)
}

func (g *guest) truncate(p string, size uint64) {
	g.t.Helper()
	ino, _ := g.must(p)
	a := g.attr(ino)
	g.ok(g.fs.Truncate(ino, &a, size))
	a.Mtime = g.now()
	g.set(ino, a)
}

// change changes attributes of a file.
func (g *guest) change(p string, how func(a *cowfs.Attr)) {
	g.t.Helper()
	ino, _ := g.must(p)
	a := g.attr(ino)
	how(&a)
	g.set(ino, a)
}

// setxattr sets an attribute, or removes it if val is "-".
func (g *guest) setxattr(p, name, val string) {
	g.t.Helper()
	ino, _ := g.must(p)
	if val == "-" {
		_, err := g.fs.RemoveXattr(ino, name)
		g.ok(err)
	} else {
		g.ok(g.fs.SetXattr(ino, name, []byte(val)))
	}
	g.set(ino, g.attr(ino))
}

func (g *guest) link(p, to string) {
	g.t.Helper()
	ino, _ := g.must(p)
	dir, _ := g.must(path.Dir(to))
	a := g.attr(ino)
	a.Nlink++
	g.set(ino, a)
	g.insert(dir, to, ino)
}

// remove removes a file with all below it.
func (g *guest) remove(p string) {
	g.t.Helper()
	ino, dir := g.must(p)
	a := g.attr(ino)
	if a.IsDir() {
		var names []string
		g.ok(g.fs.Entries(ino, "", func(e cowfs.Entry) bool {
			names = append(names, e.Name)
			return true
		}))
		for _, name := range names {
			g.remove(path.Join(p, name))
		}
		a = g.attr(ino)
	}
	g.ok(g.fs.Delete(dir, cowfs.Entry{Name: path.Base(p), Ino: ino}))
	if a.Nlink--; a.Nlink == 0 || a.IsDir() {
		g.ok(g.fs.Remove(ino))
	} else {
		g.set(ino, a)
	}
	g.touchDir(dir)
}

// rename renames p to a path where nothing is.
func (g *guest) rename(p, to string) {
	g.t.Helper()
	ino, dir := g.must(p)
	toDir, _ := g.must(path.Dir(to))
	g.insert(toDir, to, ino)
	g.ok(g.fs.Delete(dir, cowfs.Entry{Name: path.Base(p), Ino: ino}))
	g.touchDir(dir)
}

// random makes one random change.
func (g *guest) random(r *rand.Rand) {
	g.t.Helper()
	var all, dirs []string
	var walk func(p string, ino cowfs.Ino)
	walk = func(p string, ino cowfs.Ino) {
		all = append(all, p)
		if a := g.attr(ino); a.IsDir() {
			dirs = append(dirs, p)
			g.ok(g.fs.Entries(ino, "", func(e cowfs.Entry) bool {
				defer walk(path.Join(p, e.Name), e.Ino)
				return true
			}))
		}
	}
	walkAll := func() { walk("/", g.fs.Root()) }
	walkAll()
	some := func(list []string) string { return list[r.IntN(len(list))] }
	p, q := some(all), path.Join(some(dirs), some([]string{"a", "f0", "n1", "n2", "tmp", "keep", "ÿ", "!", strings.Repeat("long", 40)}))
	ino, _ := g.must(p)
	a := g.attr(ino)
	_, _, taken := g.find(q)
	isFile := a.Mode&cowfs.TypeMask == cowfs.TypeReg
	data := bytes.Repeat([]byte{byte(r.IntN(3))}, 1+r.IntN(3)*r.IntN(9000))
	switch n := r.IntN(18); {
	case n < 2 && !taken:
		g.mkdir(q)
	case n < 4 && !taken:
		g.write(q, uint64(r.IntN(2)*r.IntN(20000)), data)
	case n == 4 && !taken:
		g.symlink(q, some([]string{"x", "y", strings.Repeat("long/", 700)}))
	case n == 5 && isFile:
		g.write(p, uint64(r.IntN(20000)), data)
	case n == 6 && isFile:
		g.truncate(p, uint64(r.IntN(20000)))
	case n == 7:
		g.change(p, func(a *cowfs.Attr) { a.Mode = a.Mode&cowfs.TypeMask | uint32(r.IntN(0o10000)) })
	case n == 8:
		g.change(p, func(a *cowfs.Attr) { a.UID, a.GID = uint32(r.IntN(3)), r.Uint32() })
	case n == 9:
		g.setxattr(p, some([]string{"user.a", "user.b", "trusted.ÿ", "security.capability"}), some([]string{"-", "", "1", "nul\x00\n", strings.Repeat("x", 5000)}))
	case n == 10 && p != "/" && !a.IsDir() && !taken:
		g.link(p, q)
	case n == 11 && p != "/" && (!a.IsDir() || r.IntN(3) == 0):
		g.remove(p)
	case n == 12 && p != "/" && !taken && !treediff.Below(q, p):
		g.rename(p, q)
	case n == 13:
		g.change(p, func(a *cowfs.Attr) { a.Mtime = r.Int64N(1 << 61) })
	case n == 14 && !taken:
		g.create(q, some2(r, typeFifo|0o600, typeSocket|0o777))
	case n == 16 && p != "/": // something else in its place
		g.remove(p)
		if r.IntN(2) == 0 {
			g.mkdir(p)
		} else {
			g.write(p, 0, data)
		}
	case n == 15 && isFile: // a change that no time of modification tells of
		before := a.Mtime
		g.write(p, 0, data)
		g.change(p, func(a *cowfs.Attr) { a.Mtime = before })
	}
}

func some2(r *rand.Rand, list ...uint32) uint32 { return list[r.IntN(len(list))] }

// testImage returns an image with some of everything.
func testImage(t testing.TB, fill func(put func(p string, n erofs.Node, data string), link func(p, target string))) []byte {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "image"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w, tree := erofs.NewWriter(f), erofs.NewTree()
	put := func(p string, n erofs.Node, data string) {
		t.Helper()
		if n.Data, err = w.Store(strings.NewReader(data)); err != nil {
			t.Fatal(err)
		}
		n.MtimeSec, n.MtimeNsec = 1600000000, 500
		if err := tree.Put(p, &n); err != nil {
			t.Fatal(err)
		}
	}
	fill(put, func(p, target string) {
		t.Helper()
		if err := tree.Link(p, target); err != nil {
			t.Fatal(err)
		}
	})
	if _, err := w.Finish(tree, erofs.Options{}); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func someImage(t testing.TB) []byte {
	t.Helper()
	return testImage(t, func(put func(string, erofs.Node, string), link func(string, string)) {
		for i, d := range []string{"", "a", "a/b", "a/b/c", "usr", "usr/lib", "tmp", "keep", "keep/in", "usr/keep"} {
			put(d, erofs.Node{Kind: erofs.Directory, Mode: 0o755, Xattrs: []erofs.Xattr{{Name: "user.dir", Value: []byte(d)}}[:i%2]}, "")
			for j := range 3 {
				put(path.Join(d, fmt.Sprint("f", j)), erofs.Node{Kind: erofs.Regular, Mode: 0o640, UID: uint32(j), Xattrs: []erofs.Xattr{{Name: "user.a", Value: []byte{0, 1}}, {Name: "user.b"}}[:j]}, strings.Repeat(d, j*1500))
			}
		}
		put("usr/link", erofs.Node{Kind: erofs.Symlink, Mode: 0o777, Target: "lib/f1"}, "")
		put("usr/fifo", erofs.Node{Kind: erofs.Fifo, Mode: 0o600}, "")
		link("a/b/hard", "a/f1")
		link("usr/hard", "a/f1")
		link("usr/lib/hard", "tmp/f2")
	})
}
