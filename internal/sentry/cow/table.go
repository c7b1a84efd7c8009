package cow

import (
	"cmp"
	"slices"
	"sort"

	"gvisor.dev/gvisor/pkg/sentry/memmap"

	"ramet.dev/ramet/internal/engine/snapfile"
)

// Table maps ranges of a memory file to generations. Its extents are sorted,
// page-aligned, not empty and do not overlap. A Table is immutable.
type Table []snapfile.Extent

// overlapping calls fn for each part of fr in order: with the generation it
// lives in, or with gen < 0 where the table has none.
func (t Table) overlapping(fr memmap.FileRange, fn func(part memmap.FileRange, gen int)) {
	at := fr.Start
	for i := sort.Search(len(t), func(i int) bool { return t[i].End > fr.Start }); i < len(t) && t[i].Start < fr.End; i++ {
		part := memmap.FileRange(t[i].Range).Intersect(fr)
		if at < part.Start {
			fn(memmap.FileRange{Start: at, End: part.Start}, -1)
		}
		fn(part, int(t[i].Gen))
		at = part.End
	}
	if at < fr.End {
		fn(memmap.FileRange{Start: at, End: fr.End}, -1)
	}
}

// Mappings returns how many mappings of the host it takes to have what is in the
// table: one for each stretch of one generation, and for each gap.
func (t Table) Mappings() int {
	n := 0
	for i, e := range t {
		switch {
		case i == 0 || t[i-1].End != e.Start:
			n += 2
		case t[i-1].Gen != e.Gen:
			n++
		}
	}
	return n
}

// Ranges is a sorted list of file ranges that neither overlap nor touch.
type Ranges []memmap.FileRange

// normalize sorts rs and joins what overlaps or touches.
func normalize(rs []memmap.FileRange) Ranges {
	slices.SortFunc(rs, func(a, b memmap.FileRange) int { return cmp.Compare(a.Start, b.Start) })
	out := rs[:0]
	for _, r := range rs {
		if n := len(out); n > 0 && r.Start <= out[n-1].End {
			out[n-1].End = max(out[n-1].End, r.End)
			continue
		}
		out = append(out, r)
	}
	return out
}

// Bytes returns how many bytes the ranges cover.
func (rs Ranges) Bytes() (n uint64) {
	for _, r := range rs {
		n += r.Length()
	}
	return n
}

// minus calls fn for each part of fr that no range of rs covers, in order.
func (rs Ranges) minus(fr memmap.FileRange, fn func(memmap.FileRange)) {
	at := fr.Start
	for i := sort.Search(len(rs), func(i int) bool { return rs[i].End > fr.Start }); i < len(rs) && rs[i].Start < fr.End; i++ {
		if at < rs[i].Start {
			fn(memmap.FileRange{Start: at, End: rs[i].Start})
		}
		at = max(at, rs[i].End)
	}
	if at < fr.End {
		fn(memmap.FileRange{Start: at, End: fr.End})
	}
}
