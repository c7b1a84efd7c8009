package merge

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"
)

// randomTree changes a tree at random: some paths, in ways that clash now and then.
func randomTree(rng *rand.Rand, from memory, edits int) memory {
	m := maps.Clone(from)
	names := []string{"a", "b", "c"}
	for range edits {
		at := ""
		for range 1 + rng.IntN(3) {
			at += "/" + names[rng.IntN(len(names))]
		}
		if !m[path.Dir(at)].IsDir() {
			continue
		}
		switch rng.IntN(10) {
		case 0, 1:
			if f := m[at]; f != nil && f.kind() == typeReg {
				g := *f
				b, _ := f.Content.Bytes(context.Background())
				text := string(b)
				if rng.IntN(2) == 0 {
					text = fmt.Sprint(rng.IntN(3), "\n") + text
				} else {
					text += fmt.Sprint(rng.IntN(3), "\n")
				}
				g.Content, g.Size = bytesOf(text), int64(len(text))
				m.replace(at, &g)
			}
		case 2, 3:
			m.remove(at)
		case 4:
			m.remove(at)
			m[at] = dir(0o755)
			m[at].Inode = rng.Uint64()
		case 5:
			if f := m[at]; f != nil {
				g := *f
				g.Mode = g.kind() | []uint32{0o600, 0o644, 0o755}[rng.IntN(3)]
				m.replace(at, &g)
			}
		case 6:
			if f := m["/a"]; f != nil && !f.IsDir() && m[at] == nil {
				m[at] = f
			}
		case 7, 8:
			to := "/" + names[rng.IntN(len(names))]
			if m[at] == nil || m[to] != nil || below(to, at) {
				continue
			}
			for p, f := range maps.Clone(m) {
				if below(p, at) {
					m[to+p[len(at):]] = f
				}
			}
			m.remove(at)
		default:
			m.remove(at)
			f := file(0o644, strings.Repeat("x\n", rng.IntN(5)))
			f.Inode = rng.Uint64()
			m[at] = f
		}
	}
	m.count()
	return m
}

// remove removes a path with all below.
func (m memory) remove(at string) {
	maps.DeleteFunc(m, func(p string, _ *File) bool { return p == at || strings.HasPrefix(p, at+"/") })
}

// replace changes a file under all of its names.
func (m memory) replace(at string, f *File) {
	old := m[at]
	for p, x := range m {
		if p == at || !x.IsDir() && x.Inode == old.Inode {
			m[p] = f
		}
	}
}

// plain is print without links, which merges of files that both sides linked
// differently may change.
func (m memory) plain() string {
	var out []string
	for l := range strings.Lines(m.print()) {
		l, _, _ = strings.Cut(strings.TrimSuffix(l, "\n"), " = ")
		out = append(out, l)
	}
	return strings.Join(out, "\n")
}

// checkLaws checks what holds of any three trees.
func checkLaws(t testing.TB, base, a, b memory) {
	t.Helper()
	show := func() string { return fmt.Sprintf("base:\n%sa:\n%sb:\n%s", base.print(), a.print(), b.print()) }
	for what, c := range map[string]struct{ base, ours, theirs, want memory }{
		"merge(base, a, a) = a": {base, a, a, a}, "merge(base, base, a) = a": {base, base, a, a}, "merge(base, a, base) = a": {base, a, base, a},
	} {
		for _, s := range []Strategy{Leave, Ours, Theirs} {
			got, p := merged(t, s, c.base, c.ours, c.theirs)
			if len(p.Conflicts()) > 0 || got.plain() != c.want.plain() {
				t.Fatalf("%s does not hold, conflicts %v:\n%s%s", what, conflictsOf(p), got.print(), show())
			}
		}
	}
	left, p := merged(t, Leave, base, a, b)
	right, q := merged(t, Leave, base, b, a)
	// Whether a name is one of a file that the other side changed, or of another
	// that it put in its place, is only seen from one side.
	links := func(m memory) bool {
		return slices.ContainsFunc(slices.Collect(maps.Keys(m)), func(at string) bool { return linked(m, at) })
	}
	if len(p.Conflicts()) == 0 && len(q.Conflicts()) == 0 && !links(a) && !links(b) && left.plain() != right.plain() {
		t.Fatalf("the order matters without a conflict:\n%s\n%s\n%s", left.print(), right.print(), show())
	}
	checkLoss(t, base, a, b, left, p, show)
	for _, s := range []Strategy{Ours, Theirs} {
		if _, p := merged(t, s, base, a, b); slices.ContainsFunc(p.Conflicts(), func(c Conflict) bool { return !c.Resolved }) {
			t.Fatalf("strategy %d leaves %v:\n%s", s, conflictsOf(p), show())
		}
	}
}

// checkLoss checks that no change of either side is gone unless a conflict at, above
// or below the path says so.
func checkLoss(t testing.TB, base, a, b, got memory, p *Plan, show func() string) {
	t.Helper()
	ctx := context.Background()
	equal := func(x, y *File) bool {
		ok, err := same(ctx, x, y)
		if err != nil {
			t.Fatal(err)
		}
		return ok
	}
	said := func(at string) bool {
		return slices.ContainsFunc(p.Conflicts(), func(c Conflict) bool {
			return c.Path == at || strings.HasPrefix(at, c.Path+"/") || strings.HasPrefix(c.Path, at+"/")
		})
	}
	for at := range union(base, a, b) {
		byA, byB := !equal(base[at], a[at]), !equal(base[at], b[at])
		switch {
		case byA && !byB && !equal(got[at], a[at]) && !linked(a, at), byB && !byA && !equal(got[at], b[at]) && !linked(b, at):
			if !said(at) {
				t.Fatalf("a change of %s is lost, conflicts %v:\n%s%s", at, conflictsOf(p), got.print(), show())
			}
		case !byA && !byB && !equal(got[at], base[at]) && !linked(a, at):
			t.Fatalf("nobody changed %s:\n%s%s", at, got.print(), show())
		case byA && byB && !said(at) && !equal(a[at], b[at]):
			// Merged: lines or attributes of both.
			if f := got[at]; f == nil || a[at] == nil || b[at] == nil || f.kind() != a[at].kind() {
				t.Fatalf("both changed %s, and a change is lost:\n%s%s", at, got.print(), show())
			}
		}
	}
}

// linked says whether a path is one of several names, by which it may change too.
func linked(m memory, at string) bool { return m[at] != nil && m[at].Links > 1 }

func TestLaws(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for range 4000 {
		base := randomTree(rng, memory{"/": dir(0o755)}, 12)
		checkLaws(t, base, randomTree(rng, base, rng.IntN(6)), randomTree(rng, base, rng.IntN(6)))
	}
}

// TestDisjoint merges several sides that keep to directories of their own: the
// result is all of them.
func TestDisjoint(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for range 300 {
		base := memory{"/": dir(0o755)}
		var want memory
		sides := make([]memory, 3)
		graft := func(to, from memory, at string) {
			for p, f := range from {
				g := *f
				g.Inode += uint64(at[1]) << 40 // of its own
				to[path.Clean(at+p)] = &g
			}
		}
		parts := []string{"/x", "/y", "/z"}
		inner := map[string]memory{}
		for _, part := range parts {
			inner[part] = randomTree(rng, memory{"/": dir(0o755)}, 10)
			graft(base, inner[part], part)
		}
		want = maps.Clone(base)
		for i, part := range parts {
			sides[i] = maps.Clone(base)
			sides[i].remove(part)
			want.remove(part)
			changed := randomTree(rng, inner[part], 6)
			graft(sides[i], changed, part)
			graft(want, changed, part)
		}
		base.count()
		want.count()
		for i := range sides {
			sides[i].count()
		}
		for _, order := range [][]int{{0, 1, 2}, {2, 0, 1}} {
			got, p := merged(t, Leave, base, sides[order[0]], sides[order[1]], sides[order[2]])
			if len(p.Conflicts()) > 0 || got.plain() != want.plain() {
				t.Fatalf("conflicts %v:\n%s\nnot\n%s", conflictsOf(p), got.print(), want.print())
			}
		}
	}
}

// FuzzLaws checks the laws with trees made of any seed.
func FuzzLaws(f *testing.F) {
	f.Add(uint64(1), uint64(2), uint8(5), uint8(5))
	f.Fuzz(func(t *testing.T, s1, s2 uint64, a, b uint8) {
		rng := rand.New(rand.NewPCG(s1, s2))
		base := randomTree(rng, memory{"/": dir(0o755)}, 12)
		checkLaws(t, base, randomTree(rng, base, int(a)), randomTree(rng, base, int(b)))
	})
}
