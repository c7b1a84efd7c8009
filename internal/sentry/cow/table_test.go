package cow

import (
	"testing"

	"gvisor.dev/gvisor/pkg/sentry/memmap"
	"pgregory.net/rapid"

	"ramet.dev/ramet/internal/engine/snapfile"
)

// The model of a set of ranges is how often each page is in it.
const modelPages = 64

type model [modelPages]int

func drawRange(t *rapid.T) memmap.FileRange {
	from := rapid.Uint64Range(0, modelPages-1).Draw(t, "from")
	return pages(from, rapid.Uint64Range(from+1, modelPages).Draw(t, "to"))
}

func drawRanges(t *rapid.T) []memmap.FileRange {
	return rapid.SliceOfN(rapid.Custom(drawRange), 0, 12).Draw(t, "ranges")
}

func modelOf(rs []memmap.FileRange) (m model) {
	for _, r := range rs {
		for p := r.Start / page; p < r.End/page; p++ {
			m[p]++
		}
	}
	return m
}

func TestNormalize(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rs := drawRanges(t)
		want := modelOf(rs)
		got := normalize(append([]memmap.FileRange(nil), rs...))
		bytes := uint64(0)
		for i, r := range got {
			if r.Length() == 0 || i > 0 && r.Start <= got[i-1].End {
				t.Fatalf("ranges %v are not sorted, apart and not empty", got)
			}
		}
		for p, n := range modelOf(got) {
			if (n > 0) != (want[p] > 0) {
				t.Fatalf("page %d is in %v %d times, in %v %d times", p, got, n, rs, want[p])
			}
			if n > 0 {
				bytes += page
			}
		}
		if got.Bytes() != bytes {
			t.Fatalf("%v has %d bytes, not %d", got, got.Bytes(), bytes)
		}
	})
}

func TestMinus(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rs := normalize(drawRanges(t))
		fr := drawRange(t)
		in := modelOf(rs)
		var parts []memmap.FileRange
		rs.minus(fr, func(part memmap.FileRange) {
			if n := len(parts); part.Length() == 0 || n > 0 && part.Start <= parts[n-1].End {
				t.Fatalf("part %v after %v", part, parts)
			}
			parts = append(parts, part)
		})
		got := modelOf(parts)
		for p := range uint64(modelPages) {
			want := p >= fr.Start/page && p < fr.End/page && in[p] == 0
			if (got[p] == 1) != want {
				t.Fatalf("page %d of %v without %v: %v", p, fr, rs, parts)
			}
		}
	})
}

func TestCovers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rs := normalize(drawRanges(t))
		fr := drawRange(t)
		in, want := modelOf(rs), true
		for p := fr.Start / page; p < fr.End/page; p++ {
			want = want && in[p] > 0
		}
		if got := rs.covers(fr); got != want {
			t.Fatalf("%v covers %v: %v, not %v", rs, fr, got, want)
		}
	})
}

// drawTable draws a table of up to three generations, and which generation each
// page is in, -1 for none.
func drawTable(t *rapid.T) (Table, [modelPages]int) {
	var in [modelPages]int
	for p := range in {
		in[p] = -1
	}
	var table Table
	at := uint64(0)
	for range rapid.IntRange(0, 8).Draw(t, "extents") {
		from := at + rapid.Uint64Range(0, 8).Draw(t, "gap")
		to := from + rapid.Uint64Range(1, 8).Draw(t, "length")
		if to > modelPages {
			break
		}
		gen := rapid.Uint32Range(0, 2).Draw(t, "generation")
		table = append(table, snapfile.Extent{Range: snapfile.Range(pages(from, to)), Gen: gen})
		for p := from; p < to; p++ {
			in[p] = int(gen)
		}
		at = to
	}
	return table, in
}

func TestMappings(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		table, in := drawTable(t)
		want, before := 0, -1
		for _, gen := range in {
			if gen >= 0 && gen != before {
				want++
				if before < 0 {
					want++ // the gap
				}
			}
			before = gen
		}
		if got := table.Mappings(); got != want {
			t.Fatalf("%v takes %d mappings, not %d", table, got, want)
		}
	})
}

func TestOverlapping(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		table, in := drawTable(t)
		fr := drawRange(t)
		at := fr.Start
		table.overlapping(fr, func(part memmap.FileRange, gen int) {
			if part.Start != at || part.Length() == 0 || part.End > fr.End {
				t.Fatalf("part %v of %v comes at %#x", part, fr, at)
			}
			at = part.End
			for p := part.Start / page; p < part.End/page; p++ {
				if in[p] != gen {
					t.Fatalf("page %d is in generation %d, not %d", p, gen, in[p])
				}
			}
		})
		if at != fr.End {
			t.Fatalf("parts of %v end at %#x", fr, at)
		}
	})
}
