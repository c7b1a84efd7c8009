package treediff

import (
	"fmt"
	"maps"
	"path"
	"reflect"
	"slices"
	"strings"
	"testing"

	"ramet.dev/ramet/internal/storage/cowfs"
	"ramet.dev/ramet/internal/storage/erofs/erofstest"
)

// TestXattrsOfImage changes attributes of files of the image and others beside
// plain maps, over forks.
func TestXattrsOfImage(t *testing.T) {
	image := erofstest.Image(t)
	for seed := range uint64(8) {
		r := newRand(seed)
		clock := int64(1)
		g := newTestGuest(t, image, &clock)
		g.write("/new", 0, []byte("x"))
		want := map[string]map[string]string{"/new": {}, "/a/b": {"user.a": "", "user.b": "1"}, "/usr/lib/f1": {"user.b": "1"}, "/usr/lib/f2": {"user.a": "", "user.b": "1"}, "/usr/lib/f3": {}, "/usr": {}}
		files := slices.Sorted(maps.Keys(want))
		for range 60 {
			p := files[r.IntN(len(files))]
			ino, _ := g.must(p)
			name := []string{"user.a", "user.b", "user.aa", "trusted.x", "security.capability"}[r.IntN(5)]
			switch r.IntN(5) {
			case 0, 1:
				val := strings.Repeat("v", r.IntN(3)*r.IntN(1500))
				g.ok(g.fs.SetXattr(ino, name, []byte(val)))
				want[p][name] = val
			case 2, 3:
				ok, err := g.fs.RemoveXattr(ino, name)
				g.ok(err)
				if _, had := want[p][name]; had != ok {
					t.Fatalf("seed %d: removing %s of %s: %v", seed, name, p, ok)
				}
				delete(want[p], name)
			case 4:
				if r.IntN(6) == 0 {
					g = g.fork(nil)
				}
			}
			wantXattrs(t, seed, g, want)
		}
	}
}

// wantXattrs looks through the tree and through a view.
func wantXattrs(t *testing.T, seed uint64, g *testGuest, want map[string]map[string]string) {
	t.Helper()
	view := g.view()
	for p, attrs := range want {
		ino, _, ok := g.find(p)
		if !ok {
			t.Fatal("there is no", p)
		}
		inTree, inView := map[string]string{}, map[string]string{}
		names, err := g.fs.Xattrs(ino)
		g.ok(err)
		seen, err := view.Xattrs(ino)
		g.ok(err)
		if !slices.IsSorted(names) || !slices.Equal(names, seen) {
			t.Fatalf("seed %d: %s: names %v, by view %v", seed, p, names, seen)
		}
		for _, name := range names {
			val, ok, err := g.fs.Xattr(ino, name)
			if !ok || err != nil {
				t.Fatalf("seed %d: %s: %s is listed: %v, %v", seed, p, name, ok, err)
			}
			inTree[name] = string(val)
			if val, err = view.Xattr(ino, name); val == nil || err != nil {
				t.Fatalf("seed %d: %s: %s is listed in the view: %v", seed, p, name, err)
			}
			inView[name] = string(val)
		}
		if !reflect.DeepEqual(inTree, attrs) || !reflect.DeepEqual(inView, attrs) {
			t.Fatalf("seed %d: %s: %v, by view %v, want %v", seed, p, inTree, inView, attrs)
		}
		if _, ok, err := g.fs.Xattr(ino, "user.none"); ok || err != nil {
			t.Fatalf("an attribute that is not there: %v, %v", ok, err)
		}
	}
}

// TestXattrsOfImageInDiff tells that what the image has and the tree has copied is
// no change.
func TestXattrsOfImageInDiff(t *testing.T) {
	clock := int64(1)
	g := newTestGuest(t, erofstest.Image(t), &clock)
	base := g.view()
	for p, change := range map[string]func(ino cowfs.Ino) error{
		"/usr/lib/f1": func(ino cowfs.Ino) error { return g.fs.SetXattr(ino, "user.b", []byte("1")) }, // as it is
		"/usr/lib/f2": func(ino cowfs.Ino) error { _, err := g.fs.RemoveXattr(ino, "user.a"); return err },
		"/a/b":        func(ino cowfs.Ino) error { return g.fs.SetXattr(ino, "user.c", nil) },
	} {
		ino, _ := g.must(p)
		g.ok(change(ino))
	}
	changes, err := Changes(t.Context(), base, g.view(), Filter{})
	g.ok(err)
	var got []string
	for _, c := range changes {
		got = append(got, fmt.Sprint(path.Clean(c.Path), c.Xattrs))
	}
	if want := []string{"/a/b[user.c]", "/usr/lib/f2[user.a]"}; !slices.Equal(got, want) {
		t.Errorf("changes %v, want %v", got, want)
	}
}
