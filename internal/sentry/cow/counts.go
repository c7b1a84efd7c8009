package cow

import "gvisor.dev/gvisor/pkg/sentry/memmap"

// counts says how often file ranges are held: sorted, apart, none of them empty or held
// by nobody. It is not changed.
type counts []counted

type counted struct {
	memmap.FileRange
	n int
}

// plus returns the counts after rs were held so many times more, or fewer. It calls fn for
// each part of them in order, with its count before and after. The effort is that of going
// through both once.
func (c counts) plus(rs Ranges, more int, fn func(part memmap.FileRange, before, after int)) counts {
	out := make(counts, 0, len(c)+2*len(rs))
	put := func(from, to uint64, n int) {
		if last := len(out) - 1; from == to || n == 0 {
			return
		} else if last >= 0 && out[last].End == from && out[last].n == n {
			out[last].End = to
			return
		}
		out = append(out, counted{memmap.FileRange{Start: from, End: to}, n})
	}
	var rest counted // of those of c, the first that is not in out yet
	next := func() {
		if rest = (counted{}); len(c) > 0 {
			rest, c = c[0], c[1:]
		}
	}
	next()
	for _, r := range rs {
		for at := r.Start; at < r.End; {
			switch {
			case rest.n != 0 && rest.End <= at:
				put(rest.Start, rest.End, rest.n)
				next()
			case rest.n != 0 && rest.Start < at:
				put(rest.Start, at, rest.n)
				rest.Start = at
			default: // up to where the count changes
				part := memmap.FileRange{Start: at, End: r.End}
				before := 0
				if rest.n != 0 && rest.Start == at {
					part.End, before = min(part.End, rest.End), rest.n
					rest.Start = part.End
				} else if rest.n != 0 {
					part.End = min(part.End, rest.Start)
				}
				fn(part, before, before+more)
				put(part.Start, part.End, before+more)
				at = part.End
			}
		}
	}
	for ; rest.n != 0; next() {
		put(rest.Start, rest.End, rest.n)
	}
	return out
}

// ranges returns what is held at all.
func (c counts) ranges() Ranges {
	var rs Ranges
	for _, h := range c {
		if last := len(rs) - 1; last >= 0 && rs[last].End == h.Start {
			rs[last].End = h.End
			continue
		}
		rs = append(rs, h.FileRange)
	}
	return rs
}
