package merge

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// renames returns a tree with n files in a directory, and one with them in another,
// and how they differ.
func renames(t *testing.T, n int) (base, theirs memory, all []Change) {
	t.Helper()
	base = memory{"/": dir(0o755), "/data": dir(0o755), "/archive": dir(0o755)}
	theirs = maps.Clone(base)
	for i := range n {
		f := file(0o644, "")
		f.Inode, f.Links = uint64(1000+i), 1
		base[fmt.Sprint("/data/", i)], theirs[fmt.Sprint("/archive/", i)] = f, f
	}
	return base, theirs, changes(t, base, theirs)
}

// TestManyRenames takes time in proportion to the renames: with the square of
// it, this test would not end.
func TestManyRenames(t *testing.T) {
	const n = 50_000
	ctx := context.Background()
	base, theirs, all := renames(t, n)
	p := New(base, Leave, func(string) bool { return true })
	if err := p.Merge(ctx, Side{Base: base, Tree: theirs, Theirs: all}); err != nil {
		t.Fatal(err)
	}
	applied, err := p.Applied(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range applied {
		if a.OldPath == "" || a.OldPath[len("/data"):] != a.Path[len("/archive"):] {
			t.Fatalf("%s was %q", a.Path, a.OldPath)
		}
	}
	ops, err := p.Ops(ctx)
	if err != nil {
		t.Fatal(err)
	}
	did := map[OpKind]int{}
	for _, o := range ops {
		did[o.Kind]++
	}
	if want := map[OpKind]int{Take: n, Place: n}; len(applied) != n || !maps.Equal(did, want) {
		t.Errorf("%d changes and operations %v, not %v", len(applied), did, want)
	}
}

// counted is a tree that counts what it is asked, and tells when it was asked often.
type counted struct {
	memory
	asked, often int
	tell         func()
}

func (c *counted) Lookup(ctx context.Context, at string) (*File, error) {
	if c.asked++; c.asked == c.often {
		c.tell()
	}
	return c.memory.Lookup(ctx, at)
}

// TestRenamesEndWithContext cancels what looks for moves, and then what makes use
// of them.
func TestRenamesEndWithContext(t *testing.T) {
	const n = 1000
	base, theirs, all := renames(t, n)
	for name, do := range map[string]func(context.Context, *Plan) error{
		"applied": func(ctx context.Context, p *Plan) error { _, err := p.Applied(ctx); return err },
		"ops":     func(ctx context.Context, p *Plan) error { _, err := p.Ops(ctx); return err },
	} {
		ours := &counted{memory: base}
		p := New(ours, Leave, func(string) bool { return true })
		if err := p.Merge(context.Background(), Side{Base: base, Tree: theirs, Theirs: all}); err != nil {
			t.Fatal(err)
		}
		for _, often := range []int{10, 2*n + 10} { // each rename is asked for twice
			ctx, cancel := context.WithCancelCause(context.Background())
			gone := errors.New("gone")
			ours.asked, ours.often, ours.tell = 0, often, func() { cancel(gone) }
			if err := do(ctx, p); !errors.Is(err, gone) {
				t.Errorf("%s, cancelled: %v", name, err)
			}
			if ours.asked > often+2 {
				t.Errorf("%s was asked %d times more after the end", name, ours.asked-often)
			}
		}
	}
}

// TestMovesTouch looks for moves that have to do with a path.
func TestMovesTouch(t *testing.T) {
	ms := &moves{from: map[string]*move{}, to: map[string]*move{}, above: map[string]bool{}}
	ms.add(&move{"/a/b", "/c"})
	for at, want := range map[string]bool{
		"/": true, "/a": true, "/a/b": true, "/a/b/x": true, "/c": true, "/c/x/y": true, "/a/bb": false, "/cc": false, "/a/x": false, "/d": false,
	} {
		if got := ms.touches(at); got != want {
			t.Errorf("%s: %v", at, got)
		}
	}
	for at, want := range map[string]string{"/a/b": "/c", "/a/b/x": "/c/x", "/c": "/c", "/a": "/a", "/": "/"} {
		if got := ms.after(at); got != want {
			t.Errorf("%s is at %s", at, got)
		}
	}
}

// TestMovedLinks moves a directory with two names of a file, of which one is made
// another file with other permissions: the first keeps its own.
func TestMovedLinks(t *testing.T) {
	base := tree("/d d\n/d/x f text\n/d/y h /d/x")
	theirs := memory{"/": base["/"], "/e": base["/d"], "/e/x": base["/d/x"], "/e/y": file(0o600, "text")}
	theirs["/e/y"].Inode = 1
	theirs.count()
	got, p := merged(t, Leave, base, base, theirs)
	if d := cmp.Diff(theirs.print(), got.print()); d != "" || len(p.Conflicts()) > 0 {
		t.Errorf("conflicts %v (-want +got):\n%s", conflictsOf(p), d)
	}
	ops, err := p.Ops(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if len(ops) == 0 || ops[0].Kind != Take {
		t.Errorf("the directory is not moved: %+v", ops)
	}
	// Both names change: they are one file still.
	for _, at := range []string{"/e/x", "/e/y"} {
		f := *base["/d/x"]
		f.Mode = typeReg | 0o600
		theirs[at] = &f
	}
	if got, _ := merged(t, Leave, base, base, theirs); got.print() != theirs.print() {
		t.Errorf("%s\nis not\n%s", got.print(), theirs.print())
	}
}
