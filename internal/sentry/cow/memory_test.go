package cow

import (
	"slices"
	"strconv"
	"testing"

	"gvisor.dev/gvisor/pkg/sentry/memmap"
	"gvisor.dev/gvisor/pkg/sentry/pgalloc"
	"gvisor.dev/gvisor/pkg/sentry/usage"
	"pgregory.net/rapid"
)

// TestCounts adds and takes away ranges at random.
func TestCounts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var c counts
		var want model
		var held []Ranges
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			rs, more := normalize(drawRanges(t)), 1
			if len(held) > 0 && rapid.Bool().Draw(t, "less") {
				i := rapid.IntRange(0, len(held)-1).Draw(t, "which")
				rs, more = held[i], -1
				held = slices.Delete(held, i, i+1)
			} else {
				held = append(held, rs)
			}
			before, kept := c, slices.Clone(c)
			var told []memmap.FileRange
			c = c.plus(rs, more, func(part memmap.FileRange, before, after int) {
				told = append(told, part)
				for p := part.Start / page; p < part.End/page; p++ {
					if want[p] != before || after != before+more {
						t.Fatalf("page %d is held %d times, not %d, and then %d", p, before, want[p], after)
					}
					want[p] = after
				}
			})
			if modelOf(told) != modelOf(rs) {
				t.Fatalf("of %v it told %v", rs, told)
			}
			if !slices.Equal(before, kept) {
				t.Fatalf("what was %v became %v", kept, before)
			}
			var got model
			for i, h := range c {
				if h.Length() == 0 || h.n == 0 || i > 0 && (h.Start < c[i-1].End || h.Start == c[i-1].End && h.n == c[i-1].n) {
					t.Fatalf("%v is not sorted, apart and as short as it can be", c)
				}
				for p := h.Start / page; p < h.End/page; p++ {
					got[p] = h.n
				}
			}
			if got != want {
				t.Fatalf("%v is %v, not %v", c, got, want)
			}
			all := []memmap.FileRange{}
			for _, rs := range held {
				all = append(all, rs...)
			}
			if want := normalize(all); !slices.Equal(c.ranges(), want) {
				t.Fatalf("%v holds %v, not %v", c, c.ranges(), want)
			}
		}
	})
}

// TestPinsHoldOneReference pins and releases at random: a page has one reference more
// while any freeze has it, and only then.
func TestPinsHoldOneReference(t *testing.T) {
	m := newMemory(t)
	fr, err := m.mf.Allocate(modelPages*page, pgalloc.AllocOpts{Kind: usage.Anonymous})
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		for n := range rapid.IntRange(1, 12).Draw(t, "steps") {
			if ids := m.PinNames(); len(ids) > 0 && rapid.Bool().Draw(t, "release") {
				slices.Sort(ids)
				if id := rapid.SampledFrom(ids).Draw(t, "which"); !m.Release(id) {
					t.Fatalf("%s is not pinned", id)
				}
			} else {
				ranges := normalize(drawRanges(t))
				for i := range ranges {
					ranges[i].Start, ranges[i].End = ranges[i].Start+fr.Start, ranges[i].End+fr.Start
				}
				m.pin(strconv.Itoa(n), ranges)
			}
			var all []memmap.FileRange
			for _, rs := range m.pins {
				all = append(all, rs...)
			}
			var shared Ranges
			for at := fr.Start; at < fr.End; at += page {
				one := memmap.FileRange{Start: at, End: at + page}
				if got, _ := m.mf.FirstSharedRange(one); got == one {
					shared = append(shared, one)
				}
			}
			if want := normalize(all); !slices.Equal(normalize(shared), want) {
				t.Fatalf("%v has more than one reference, not %v", normalize(shared), want)
			}
		}
		for _, id := range m.PinNames() {
			m.Release(id)
		}
	})
}
