package snapdir

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/snapfile"
	"ramet.dev/ramet/internal/storage/hostfs"
)

const pageSize = snapfile.PageSize

// pagesFile makes a file of pages, each filled with its byte.
func pagesFile(t *testing.T, pages []byte) *os.File {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), "pages")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	for i, p := range pages {
		if _, err := f.WriteAt(bytes.Repeat([]byte{p}, pageSize), int64(i)*pageSize); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

func extent(start, end int, gen uint32) snapfile.Extent {
	return snapfile.Extent{Range: snapfile.Range{Start: uint64(start) * pageSize, End: uint64(end) * pageSize}, Gen: gen}
}

// someExtents covers part of n pages.
func someExtents(rng *rand.Rand, n, gens int) (list []snapfile.Extent) {
	for at := rng.IntN(4); at < n; at += rng.IntN(3) {
		end := min(n, at+1+rng.IntN(60))
		list = append(list, extent(at, end, uint32(rng.IntN(gens))))
		at = end
	}
	return list
}

// TestLayoutHasEverything lays out random memory above a random base, and reads it
// from where it is said to be.
func TestLayoutHasEverything(t *testing.T) {
	ctx := context.Background()
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 1))
		const n = 400
		self, old, gone := api.NewID(api.KindSnapshot), api.NewID(api.KindSnapshot), api.NewID(api.KindSnapshot)
		then := make([]byte, n)
		for i := range then {
			then[i] = byte(rng.IntN(3))
		}
		now := slices.Clone(then)
		for range rng.IntN(40) {
			now[rng.IntN(n)] = byte(rng.IntN(3))
		}
		files := map[string]*os.File{
			"pool_0": pagesFile(t, now), old + "/memory": pagesFile(t, then), gone + "/memory": pagesFile(t, now),
		}
		snap := &snapfile.Snapshot{Generations: []string{"pool_0", old + "/memory", gone + "/memory"}, Table: someExtents(rng, n, 3)}
		base := &Contents{&snapfile.Snapshot{Generations: []string{old + "/memory"}, Table: someExtents(rng, n, 1)}, []*os.File{files[old+"/memory"]}}
		want := map[int]byte{}
		for _, e := range snap.Table {
			for p := e.Start / pageSize; p < e.End/pageSize; p++ {
				if want[int(p)] = now[p]; e.Gen == 1 {
					want[int(p)] = then[p]
				}
			}
		}
		dir := t.TempDir()
		l := &layout{
			Contents: Contents{snap, []*os.File{files["pool_0"], files[old+"/memory"], files[gone+"/memory"]}}, id: self, fs: hostfs.OS, dir: dir,
			refers: func(id string) bool { return id == old }, base: base,
		}
		if err := l.write(ctx); err != nil {
			t.Fatal(err)
		}
		if p, ok := l.parts["memory"]; ok {
			f, err := os.Open(filepath.Join(dir, "memory"))
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			files[self+"/memory"] = f
			if err := p.Check(ctx, f); err != nil {
				t.Error(err)
			}
		}
		got := map[int]byte{}
		at := uint64(0)
		for _, e := range snap.Table {
			if e.Start < at {
				t.Fatalf("seed %d: extents are not in order: %v", seed, snap.Table)
			}
			at = e.End
			for p := e.Start / pageSize; p < e.End/pageSize; p++ {
				var b [1]byte
				if err := readFull(files[snap.Generations[e.Gen]], b[:], p*pageSize); err != nil {
					t.Fatal(err)
				}
				got[int(p)] = b[0]
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("seed %d: other pages than there were", seed)
		}
		if slices.Contains(l.needs(), gone) || len(l.needs()) > 1 {
			t.Errorf("seed %d: it needs %v", seed, l.needs())
		}
	}
}

// TestPiecesStayWhole compares files with runs that must not be split, which a block's
// end, the base's and a difference fall into.
func TestPiecesStayWhole(t *testing.T) {
	const n = 200
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 2))
		then := bytes.Repeat([]byte{1}, n)
		now := slices.Clone(then)
		for range rng.IntN(8) {
			now[rng.IntN(n)] = 2
		}
		var whole []snapfile.Range
		for at := rng.IntN(5); at < n; {
			end := min(n, at+2+rng.IntN(50))
			whole = append(whole, snapfile.Range{Start: uint64(at) * pageSize, End: uint64(end) * pageSize})
			at = end + rng.IntN(20)
		}
		base := &Contents{&snapfile.Snapshot{Generations: []string{"base"}, Table: someExtents(rng, n, 1)}, []*os.File{pagesFile(t, then)}}
		c := newComparison(kindMemory, base, slices.Clone(whole))
		at := uint64(0)
		err := c.each(context.Background(), pagesFile(t, now), snapfile.Range{End: n * pageSize}, func(r snapfile.Range, same string) {
			if r.Start != at || r.End <= r.Start {
				t.Fatalf("seed %d: a piece %v after %d", seed, r, at)
			}
			at = r.End
			for _, w := range whole {
				if w.Start < r.Start && r.Start < w.End || w.Start < r.End && r.End < w.End {
					t.Fatalf("seed %d: %v splits %v", seed, r, w)
				}
			}
			if same == "" {
				return
			}
			if slices.Contains(now[r.Start/pageSize:r.End/pageSize], 2) {
				t.Errorf("seed %d: %v is said to be the same", seed, r)
			}
		})
		if err != nil || at != n*pageSize {
			t.Fatalf("seed %d: it ended at %d: %v", seed, at, err)
		}
	}
}

// TestPageHashIgnoresHoles compares digests of files with the same contents.
func TestPageHashIgnoresHoles(t *testing.T) {
	ctx := context.Background()
	pages := []byte{0, 1, 0, 0, 2, 0}
	full := pagesFile(t, pages)
	p, _, err := writePart(ctx, hostfs.OS, filepath.Join(t.TempDir(), "part"), []snapfile.Extent{extent(0, 6, 0)}, []*os.File{full})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Check(ctx, full); err != nil {
		t.Error(err)
	}
	for _, other := range [][]byte{{1, 0, 0, 0, 2, 0}, {0, 1, 0, 0, 2, 1}, {0, 1, 0, 0, 2}} {
		if err := p.Check(ctx, pagesFile(t, other)); err == nil {
			t.Errorf("%v is taken for %v", other, pages)
		}
	}
}
