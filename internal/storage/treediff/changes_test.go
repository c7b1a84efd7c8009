package treediff

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"path"
	"testing"

	"ramet.dev/ramet/internal/storage/cowfs"
	"ramet.dev/ramet/internal/storage/erofs/erofstest"
)

// testFile is what a path has that a diff looks at.
type testFile struct {
	mode, uid, gid uint32
	data           string // digest and size, or target
	xattrs         string
}

// dump reads all files, slowly.
func dump(t testing.TB, f *cowfs.Files) map[string]testFile {
	t.Helper()
	all := map[string]testFile{}
	var walk func(p string, ino cowfs.Ino)
	walk = func(p string, ino cowfs.Ino) {
		n, err := f.Node(ino)
		if err != nil {
			t.Fatal(err)
		}
		x := testFile{mode: n.Attr.Mode, uid: n.Attr.UID, gid: n.Attr.GID}
		names, err := f.Xattrs(ino)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			val, err := f.Xattr(ino, name)
			if err != nil {
				t.Fatal(err)
			}
			x.xattrs += fmt.Sprintf("%s=%q ", name, val)
		}
		switch n.Attr.Mode & cowfs.TypeMask {
		case cowfs.TypeReg:
			b, err := f.ReadFile(context.Background(), &n, 64<<20)
			if err != nil {
				t.Fatal(err)
			}
			x.data = fmt.Sprintf("%d %x", len(b), sha256.Sum256(b))
		case cowfs.TypeLink:
			if x.data, err = f.Target(ino); err != nil {
				t.Fatal(err)
			}
		}
		all[p] = x
		if n.Attr.IsDir() {
			err := f.Entries(ino, func(name string, child cowfs.Ino) error {
				walk(path.Join(p, name), child)
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	walk("/", f.Root())
	return all
}

// checkSame compares what a reader sees with what the guest does.
func (g *testGuest) checkSame(f *cowfs.Files) {
	g.t.Helper()
	for p, x := range dump(g.t, f) {
		ino, _, ok := g.find(p)
		if !ok {
			g.t.Fatalf("the guest has no %s", p)
		}
		a := g.attr(ino)
		if a.Mode != x.mode || a.Mode&cowfs.TypeMask != cowfs.TypeReg {
			if a.Mode != x.mode {
				g.t.Fatalf("%s has mode %o, not %o", p, x.mode, a.Mode)
			}
			continue
		}
		var b bytes.Buffer
		g.ok(g.fs.Read(ino, &a, 0, a.Size, func(mem []byte, size int) (int, error) {
			if mem == nil {
				mem = make([]byte, size)
			}
			return b.Write(mem[:size])
		}))
		if got := fmt.Sprintf("%d %x", b.Len(), sha256.Sum256(b.Bytes())); got != x.data {
			g.t.Fatalf("%s has %s, not %s", p, x.data, got)
		}
	}
}

// checkChanges compares changes with both sides read in full.
func checkChanges(t testing.TB, a, b *cowfs.Files, filter Filter) []Change {
	t.Helper()
	changes, err := Changes(context.Background(), a, b, filter)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if t.Failed() {
			for _, c := range changes {
				t.Logf("%d %s from %s differs %b inodes %d %d", c.Kind, c.Path, c.From, c.Differs, c.Old.Ino, c.New.Ino)
			}
		}
	}()
	old, new := dump(t, a), dump(t, b)
	result := map[string]testFile{}
	deleted, renamed := map[string]bool{}, map[string]string{}
	for _, c := range changes {
		switch c.Kind {
		case Deleted:
			deleted[c.Path] = true
		case Renamed:
			renamed[c.From] = c.Path
		}
	}
	for p, x := range old {
		if deleted[p] {
			continue
		}
		to := p
		for from := p; from != "/"; from = path.Dir(from) {
			if r, ok := renamed[from]; ok {
				to = r + p[len(from):]
				break
			}
		}
		if _, ok := result[to]; ok && filter.Selects(to) {
			t.Fatalf("two files are at %s", to)
		}
		result[to] = x
	}
	for _, c := range changes {
		from := c.Path
		if c.From != "" {
			from = c.From
		}
		x, was := old[from]
		y, is := new[c.Path]
		if (c.Kind == Deleted || c.Kind == Added) != (c.Differs == 0) && c.Kind != Renamed {
			t.Fatalf("%+v differs in %b", c, c.Differs)
		}
		switch c.Kind {
		case Deleted:
			if _, was = old[c.Path]; !was {
				t.Fatalf("%s was deleted and is not there", c.Path)
			}
			continue
		case Added:
			if _, ok := result[c.Path]; !is || ok && filter.Selects(c.Path) {
				t.Fatalf("%s was added: is there %v, was %v", c.Path, is, ok)
			}
		default:
			if !was || !is || (x != y) != (c.Differs != 0) || c.Kind == Modified && x == y {
				t.Fatalf("%+v: %v %+v, %v %+v", c, was, x, is, y)
			}
			want := Differs(0)
			for d, differs := range map[Differs]bool{
				DiffersMode: (x.mode^y.mode)&^cowfs.TypeMask != 0, DiffersOwner: x.uid != y.uid || x.gid != y.gid, DiffersXattrs: x.xattrs != y.xattrs,
				DiffersType:   (x.mode^y.mode)&cowfs.TypeMask != 0,
				DiffersData:   (x.mode|y.mode)&cowfs.TypeMask == cowfs.TypeReg && x.data != y.data,
				DiffersTarget: (x.mode&y.mode)&cowfs.TypeMask == cowfs.TypeLink && x.data != y.data,
			} {
				if differs {
					want |= d
				}
			}
			if want != c.Differs {
				t.Fatalf("%+v should differ in %b", c, want)
			}
		}
		result[c.Path] = y
	}
	for p := range merged(result, new) {
		if filter.Selects(p) && result[p] != new[p] {
			t.Fatalf("%s is %+v after the changes, not %+v", p, result[p], new[p])
		}
	}
	return changes
}

func merged[V any](a, b map[string]V) map[string]V {
	m := maps.Clone(a)
	maps.Copy(m, b)
	return m
}

// runChanges compares relatives after random changes.
func runChanges(t testing.TB, seed uint64, image []byte) {
	r := newRand(seed)
	if r.IntN(4) == 0 {
		image = nil
	}
	start := int64(1000)
	g := newTestGuest(t, image, &start)
	steps := func(g *testGuest) {
		for range r.IntN(30) {
			g.random(r)
		}
	}
	family, views := []*testGuest{g}, []*cowfs.Files{g.view()}
	for range 4 {
		x := family[r.IntN(len(family))]
		var clock *int64
		if r.IntN(2) == 0 {
			now := *x.clock + int64(r.IntN(1000))
			clock = &now // else siblings are born in the same nanoseconds
		}
		c := x.fork(clock)
		steps(x)
		steps(c)
		family = append(family, c)
		f := c.view()
		c.checkSame(f)
		views = append(views, f, x.view())
	}
	// One of the same image and another family.
	stranger := newTestGuest(t, image, &start)
	steps(stranger)
	views = append(views, stranger.view())
	for range 12 {
		a, b := views[r.IntN(len(views))], views[r.IntN(len(views))]
		filter := Filter{}
		if r.IntN(3) == 0 {
			filter = Filter{Only: []string{"/a", "/usr/lib"}, Except: []string{"/a/b"}}
		}
		changes := checkChanges(t, a, b, filter)
		back := checkChanges(t, b, a, filter)
		if len(filter.Only) == 0 && count(changes, Renamed) != count(back, Renamed) {
			// Which of several names a file was renamed to may differ, not how many.
			t.Logf("%d renamed, %d back", count(changes, Renamed), count(back, Renamed))
		}
	}
}

func count(changes []Change, kind ChangeKind) int {
	n := 0
	for _, c := range changes {
		if c.Kind == kind {
			n++
		}
	}
	return n
}

// TestChangesOfRandomTrees takes 20 s with the race detector, as it compares eighty trees after random operations.
func TestChangesOfRandomTrees(t *testing.T) {
	image := erofstest.Image(t)
	n := uint64(80)
	if testing.Short() {
		n = 20
	}
	for seed := range n {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { runChanges(t, seed, image) })
	}
}

func FuzzChanges(f *testing.F) {
	image := erofstest.Image(f)
	// These were wrong once.
	f.Add(uint64(81))
	f.Add(uint64(223))
	f.Add(uint64(1538))
	f.Add(uint64(5964))
	f.Fuzz(func(t *testing.T, seed uint64) { runChanges(t, seed, image) })
}

// TestFind looks at paths.
func TestFind(t *testing.T) {
	g := newTestGuest(t, erofstest.Image(t), new(int64))
	g.put("/a/new", "text")
	f := g.view()
	for p, want := range map[string]bool{"/": true, "/a": true, "/a/new": true, "/a/f0": true, "/a/none": false, "/a/new/below": false, "/usr/link/x": false} {
		if _, err := f.Find(p); (err == nil) != want || err != nil && !errors.Is(err, cowfs.ErrNotExist) {
			t.Errorf("%s: %v", p, err)
		}
	}
	n, err := f.Find("/a/new")
	if err != nil {
		t.Fatal(err)
	}
	if b, err := f.ReadFile(context.Background(), &n, 4); err != nil || string(b) != "text" {
		t.Errorf("%q, %v", b, err)
	}
	if _, err := f.ReadFile(context.Background(), &n, 3); !errors.Is(err, cowfs.ErrTooLarge) {
		t.Errorf("a file of 4 bytes, at most 3: %v", err)
	}
}
