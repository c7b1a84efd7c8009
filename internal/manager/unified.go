package manager

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

const (
	// contextLines stand around each change of a unified diff.
	contextLines = 3
	// maxEdits bounds the search for the shortest edit script: its time and
	// memory grow with the square of the script's length.
	maxEdits = 1000
)

// edit replaces a[a0:a1] by b[b0:b1].
type edit struct{ a0, a1, b0, b1 int }

// unified returns the unified diff of the lines of a file that was at oldPath, empty
// if there are no edits.
func unified(oldPath, path string, edits []edit, a, b []string) string {
	if len(edits) == 0 {
		return ""
	}
	var out strings.Builder
	fmt.Fprintf(&out, "--- a%s\n+++ b%s\n", oldPath, path)
	for len(edits) > 0 {
		n := 1
		for n < len(edits) && edits[n].a0-edits[n-1].a1 <= 2*contextLines {
			n++
		}
		writeHunk(&out, edits[:n], a, b)
		edits = edits[n:]
	}
	return out.String()
}

// writeHunk writes edits as one hunk.
func writeHunk(out *strings.Builder, edits []edit, a, b []string) {
	first, last := edits[0], edits[len(edits)-1]
	before := min(contextLines, first.a0, first.b0)
	after := min(contextLines, len(a)-last.a1, len(b)-last.b1)
	write := func(mark byte, lines []string) {
		for _, l := range lines {
			out.WriteByte(mark)
			out.WriteString(l)
		}
	}
	fmt.Fprintf(out, "@@ -%s +%s @@\n", span(first.a0-before, last.a1+after), span(first.b0-before, last.b1+after))
	at := first.a0 - before
	for _, e := range edits {
		write(' ', a[at:e.a0])
		write('-', a[e.a0:e.a1])
		write('+', b[e.b0:e.b1])
		at = e.a1
	}
	write(' ', a[at:last.a1+after])
}

// span names the lines from the index start up to end as diff(1) does.
func span(start, end int) string {
	switch end - start {
	case 0:
		return fmt.Sprintf("%d,0", start)
	case 1:
		return fmt.Sprint(start + 1)
	}
	return fmt.Sprintf("%d,%d", start+1, end-start)
}

// script returns the edits that make b of a, in order and with equal lines
// between them. They are the fewest lines possible unless that takes more than
// maxEdits.
func script(ctx context.Context, a, b []string) ([]edit, error) {
	ids := map[string]int{}
	x, y := number(ids, a), number(ids, b)
	skip := 0
	for skip < len(x) && skip < len(y) && x[skip] == y[skip] {
		skip++
	}
	x, y = x[skip:], y[skip:]
	for len(x) > 0 && len(y) > 0 && x[len(x)-1] == y[len(y)-1] {
		x, y = x[:len(x)-1], y[:len(y)-1]
	}
	edits, err := shortest(ctx, x, y)
	for i := range edits {
		e := &edits[i]
		e.a0, e.a1, e.b0, e.b1 = e.a0+skip, e.a1+skip, e.b0+skip, e.b1+skip
	}
	return edits, err
}

// number gives equal lines equal numbers.
func number(ids map[string]int, lines []string) []int {
	out := make([]int, len(lines))
	for i, l := range lines {
		id, ok := ids[l]
		if !ok {
			id = len(ids)
			ids[l] = id
		}
		out[i] = id
	}
	return out
}

// shortest is the greedy algorithm of Myers, "An O(ND) Difference Algorithm and
// Its Variations" (1986). If more than maxEdits lines differ it replaces all.
func shortest(ctx context.Context, a, b []int) ([]edit, error) {
	// reach[maxEdits+1+k] is how far into a one gets on the diagonal k, where
	// the index in a is k more than that in b, with the edits made so far.
	if len(a) == 0 && len(b) == 0 {
		return nil, nil
	}
	if len(a) == 0 || len(b) == 0 {
		return []edit{{0, len(a), 0, len(b)}}, nil
	}
	const zero = maxEdits + 1
	var reach [2*zero + 1]int32
	var trace [][]int32 // for each number of edits, reach before its last one, from diagonal -d to d
	for d := range maxEdits + 1 {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		trace = append(trace, slices.Clone(reach[zero-d:zero+d+1]))
		for k := -d; k <= d; k += 2 {
			i, _ := step(reach[zero-d:], d, k)
			for i < len(a) && i-k < len(b) && a[i] == b[i-k] {
				i++
			}
			if i >= len(a) && i-k >= len(b) {
				return backtrack(trace, len(a), len(b)), nil
			}
			reach[zero+k] = int32(i)
		}
	}
	return []edit{{0, len(a), 0, len(b)}}, nil
}

// step makes the d-th edit: it returns how far into a that gets on the diagonal
// k, and whether a line of b is added rather than one of a deleted. reach begins
// at the diagonal -d.
func step(reach []int32, d, k int) (i int, adds bool) {
	switch {
	case d == 0:
		return 0, false
	case k == -d || k != d && reach[d+k-1] < reach[d+k+1]:
		return int(reach[d+k+1]), true
	}
	return int(reach[d+k-1]) + 1, false
}

// backtrack finds the way to the ends i and j of both sides, from there.
func backtrack(trace [][]int32, i, j int) []edit {
	var edits []edit
	for d := len(trace) - 1; d > 0; d-- {
		k := i - j
		end, adds := step(trace[d], d, k)
		e := edit{end, end, end - k, end - k}
		if adds {
			e.b0--
		} else {
			e.a0--
		}
		i, j = e.a0, e.b0
		if n := len(edits); n > 0 && edits[n-1].a0 == e.a1 && edits[n-1].b0 == e.b1 {
			edits[n-1].a0, edits[n-1].b0 = e.a0, e.b0 // no equal line between them
			continue
		}
		edits = append(edits, e)
	}
	slices.Reverse(edits)
	return edits
}
