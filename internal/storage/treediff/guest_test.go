package treediff

import (
	"fmt"
	"math/rand/v2"
	"path"
	"strings"
	"testing"

	"ramet.dev/ramet/internal/storage/btree"
	"ramet.dev/ramet/internal/storage/cowfs"
	"ramet.dev/ramet/internal/storage/pages"
	"ramet.dev/ramet/internal/storage/pages/pagestest"
)

func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0)) }

// testGuest makes changes as package rootfs does, by path and without asking
// whether it may.
type testGuest struct {
	t     testing.TB
	fs    *cowfs.FS
	image []byte
	clock *int64
	pins  int
}

func newTestGuest(t testing.TB, image []byte, clock *int64) *testGuest {
	g := &testGuest{t: t, image: image, clock: clock}
	g.open(pagestest.Store(t, 1, nil), cowfs.State{})
	if image == nil {
		g.fs.NewIno()
		g.set(cowfs.FirstIno, cowfs.Attr{Mode: cowfs.TypeDir | 0o755, Nlink: 2})
	}
	return g
}

func (g *testGuest) open(s *pages.Store, state cowfs.State) {
	g.t.Helper()
	var err error
	if g.fs, err = cowfs.Open(s, g.image, state); err != nil {
		g.t.Fatal(err)
	}
}

func (g *testGuest) ok(err error) {
	g.t.Helper()
	if err != nil {
		g.t.Fatal(err)
	}
}

func (g *testGuest) pin() (cowfs.State, []pages.Segment) {
	g.t.Helper()
	g.pins++
	state, segs, err := g.fs.Pin(fmt.Sprint("pin ", g.pins))
	g.ok(err)
	return state, segs
}

// fork returns a child that has a clock of its own, unless clock is given.
func (g *testGuest) fork(clock *int64) *testGuest {
	g.t.Helper()
	state, segs := g.pin()
	if clock == nil {
		now := *g.clock
		clock = &now
	}
	c := &testGuest{t: g.t, image: g.image, clock: clock}
	base := pages.Page(1)
	if len(segs) > 0 {
		base = segs[len(segs)-1].End
	}
	c.open(pagestest.Store(g.t, base, segs), state)
	return c
}

// view returns the files as they are now.
func (g *testGuest) view() *cowfs.Files {
	g.t.Helper()
	state, segs := g.pin()
	f, err := cowfs.NewFiles(btree.OpenView(segs, state.Root), g.image)
	g.ok(err)
	return f
}

func (g *testGuest) now() int64 {
	*g.clock++
	return *g.clock
}

func (g *testGuest) set(ino cowfs.Ino, a cowfs.Attr) {
	g.t.Helper()
	a.Ctime = g.now()
	g.ok(g.fs.SetAttr(ino, &a))
}

func (g *testGuest) attr(ino cowfs.Ino) cowfs.Attr {
	g.t.Helper()
	a, _, err := g.fs.Attr(ino)
	g.ok(err)
	return a
}

// find resolves a path, noting all on its way as before a change.
func (g *testGuest) find(p string) (ino, dir cowfs.Ino, ok bool) {
	g.t.Helper()
	ino = g.fs.Root()
	for _, name := range strings.Split(strings.Trim(p, "/"), "/") {
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

// note does what rootfs does before a change.
func (g *testGuest) note(p string) {
	g.t.Helper()
	for p != "/" {
		ino, dir, ok := g.find(p)
		if !ok || !ino.OfImage() {
			return
		}
		g.ok(g.fs.NoteParent(ino, dir, path.Base(p), g.fs.Room))
		p = path.Dir(p)
	}
}

func (g *testGuest) must(p string) (ino, dir cowfs.Ino) {
	g.t.Helper()
	g.note(p)
	ino, dir, ok := g.find(p)
	if !ok {
		g.t.Fatalf("there is no %s", p)
	}
	return ino, dir
}

func (g *testGuest) touchDir(dir cowfs.Ino, links int) {
	g.t.Helper()
	a := g.attr(dir)
	a.Nlink += uint32(links)
	a.Mtime = g.now()
	g.set(dir, a)
}

func (g *testGuest) create(p string, mode uint32) cowfs.Ino {
	g.t.Helper()
	dir, _ := g.must(path.Dir(p))
	ino := g.fs.NewIno()
	now := g.now()
	a := cowfs.Attr{Mode: mode, Nlink: 1, Atime: now, Mtime: now, Ctime: now, Btime: now}
	links := 0
	if a.IsDir() {
		a.Nlink, links = 2, 1
	}
	g.set(ino, a)
	g.ok(g.fs.Insert(dir, cowfs.Entry{Name: path.Base(p), Ino: ino, Type: a.DirentType()}))
	g.touchDir(dir, links)
	return ino
}

func (g *testGuest) mkdir(p string) cowfs.Ino { return g.create(p, cowfs.TypeDir|0o755) }

func (g *testGuest) symlink(p, target string) {
	g.t.Helper()
	ino := g.create(p, cowfs.TypeLink|0o777)
	a := g.attr(ino)
	a.Size = uint64(len(target))
	g.set(ino, a)
	g.ok(g.fs.SetTarget(ino, target))
}

// write makes data be at an offset of a file, which is made if there is none.
func (g *testGuest) write(p string, off uint64, data []byte) {
	g.t.Helper()
	g.note(p)
	ino, _, ok := g.find(p)
	if !ok {
		ino = g.create(p, cowfs.TypeReg|0o644)
	}
	a := g.attr(ino)
	end := off + uint64(len(data))
	ready, err := g.fs.Prepare(ino, &a, off, uint64(len(data)))
	if err != nil || ready.Ready != uint64(len(data)) {
		g.t.Fatalf("prepare %d bytes at %d of %s: %+v, %v", len(data), off, p, ready, err)
	}
	g.ok(g.fs.Write(ino, &a, off, uint64(len(data)), func(p cowfs.Place) (uint64, error) {
		n, err := p.WriteAt(data[:p.N])
		data = data[n:]
		return uint64(n), err
	}))
	a.Size = max(a.Size, end)
	a.Mtime = g.now()
	g.set(ino, a)
}

func (g *testGuest) put(p, text string) {
	g.t.Helper()
	if _, _, ok := g.find(p); ok {
		g.truncate(p, 0)
	}
	g.write(p, 0, []byte(text))
}

func (g *testGuest) truncate(p string, size uint64) {
	g.t.Helper()
	ino, _ := g.must(p)
	a := g.attr(ino)
	g.ok(g.fs.Truncate(ino, &a, size))
}

func (g *testGuest) punch(p string, off, n uint64) {
	g.t.Helper()
	ino, _ := g.must(p)
	a := g.attr(ino)
	if off >= a.Size {
		return
	}
	g.ok(g.fs.Punch(ino, &a, off, min(n, a.Size-off)))
}

func (g *testGuest) chmod(p string, mode uint32) {
	g.t.Helper()
	ino, _ := g.must(p)
	a := g.attr(ino)
	a.Mode = a.Mode&cowfs.TypeMask | mode
	g.set(ino, a)
}

func (g *testGuest) chown(p string, uid, gid uint32) {
	g.t.Helper()
	ino, _ := g.must(p)
	a := g.attr(ino)
	a.UID, a.GID = uid, gid
	g.set(ino, a)
}

func (g *testGuest) setxattr(p, name, val string) {
	g.t.Helper()
	ino, _ := g.must(p)
	if val == "" {
		_, err := g.fs.RemoveXattr(ino, name)
		g.ok(err)
	} else {
		g.ok(g.fs.SetXattr(ino, name, []byte(val)))
	}
	g.set(ino, g.attr(ino))
}

func (g *testGuest) link(p, to string) {
	g.t.Helper()
	ino, _ := g.must(p)
	dir, _ := g.must(path.Dir(to))
	a := g.attr(ino)
	a.Nlink++
	g.set(ino, a)
	g.ok(g.fs.Insert(dir, cowfs.Entry{Name: path.Base(to), Ino: ino, Type: a.DirentType()}))
	g.touchDir(dir, 0)
}

// remove removes a file with all below it.
func (g *testGuest) remove(p string) {
	g.t.Helper()
	ino, dir := g.must(p)
	a := g.attr(ino)
	if a.IsDir() {
		for _, name := range g.list(ino) {
			g.remove(path.Join(p, name))
		}
	}
	g.ok(g.fs.Delete(dir, cowfs.Entry{Name: path.Base(p), Ino: ino}))
	g.gone(ino)
	links := 0
	if a.IsDir() {
		links = -1
	}
	g.touchDir(dir, links)
}

// gone takes a link away.
func (g *testGuest) gone(ino cowfs.Ino) {
	g.t.Helper()
	a := g.attr(ino)
	if a.Nlink--; a.Nlink == 0 || a.IsDir() {
		g.ok(g.fs.Remove(ino))
	} else {
		g.set(ino, a)
	}
}

func (g *testGuest) list(dir cowfs.Ino) (names []string) {
	g.t.Helper()
	g.ok(g.fs.Entries(dir, "", func(e cowfs.Entry) bool {
		names = append(names, e.Name)
		return true
	}))
	return names
}

// rename renames p to a path where nothing is, or a file or an empty directory
// that goes.
func (g *testGuest) rename(p, to string) {
	g.t.Helper()
	ino, dir := g.must(p)
	a := g.attr(ino)
	if old, _, ok := g.find(to); ok {
		if old == ino {
			return
		}
		g.remove(to)
	}
	toDir, _ := g.must(path.Dir(to))
	g.ok(g.fs.Insert(toDir, cowfs.Entry{Name: path.Base(to), Ino: ino, Type: a.DirentType()}))
	g.ok(g.fs.Delete(dir, cowfs.Entry{Name: path.Base(p), Ino: ino}))
	g.touchDir(dir, 0)
	g.touchDir(toDir, 0)
	g.set(ino, g.attr(ino))
}

func (g *testGuest) exchange(p, q string) {
	g.t.Helper()
	x, dirX := g.must(p)
	y, dirY := g.must(q)
	ax, ay := g.attr(x), g.attr(y)
	g.ok(g.fs.Delete(dirY, cowfs.Entry{Name: path.Base(q), Ino: y}))
	g.ok(g.fs.Insert(dirY, cowfs.Entry{Name: path.Base(q), Ino: x, Type: ax.DirentType()}))
	g.ok(g.fs.Delete(dirX, cowfs.Entry{Name: path.Base(p), Ino: x}))
	g.ok(g.fs.Insert(dirX, cowfs.Entry{Name: path.Base(p), Ino: y, Type: ay.DirentType()}))
}
