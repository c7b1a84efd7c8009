package textdiff

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"unicode/utf8"
)

// maxEdits bounds the search for the shortest edit script: its time and memory
// grow with the square of the script's length.
const maxEdits = 1000

// Edit replaces a[A0:A1] by b[B0:B1].
type Edit struct{ A0, A1, B0, B1 int }

// IsText returns whether b is text: valid UTF-8 without NUL.
func IsText(b []byte) bool { return utf8.Valid(b) && bytes.IndexByte(b, 0) < 0 }

// Lines splits b behind each newline. The lines joined are b.
func Lines(b []byte) []string {
	if len(b) == 0 {
		return nil
	}
	ls := strings.SplitAfter(string(b), "\n")
	if last := len(ls) - 1; ls[last] == "" {
		ls = ls[:last]
	}
	return ls
}

// MarkedLines is Lines for people: a last line without a newline gets one, with the mark
// that diff(1) prints.
func MarkedLines(b []byte) []string {
	ls := Lines(b)
	if last := len(ls) - 1; last >= 0 && !strings.HasSuffix(ls[last], "\n") {
		ls[last] += "\n\\ No newline at end of file\n"
	}
	return ls
}

// Script returns the edits that turn a into b, in order and with equal lines between them.
// They change the fewest lines possible, unless these are more than maxEdits. Script fails
// only when ctx ends.
func Script(ctx context.Context, a, b []string) ([]Edit, error) {
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
		e.A0, e.A1, e.B0, e.B1 = e.A0+skip, e.A1+skip, e.B0+skip, e.B1+skip
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

// shortest is the greedy algorithm of Myers, "An O(ND) Difference Algorithm and Its
// Variations" (1986). If more than maxEdits lines differ, it replaces all lines.
func shortest(ctx context.Context, a, b []int) ([]Edit, error) {
	// reach[maxEdits+1+k] is the furthest index in a on the diagonal k that the edits so
	// far reach. On the diagonal k the index in a is k more than that in b.
	if len(a) == 0 && len(b) == 0 {
		return nil, nil
	}
	if len(a) == 0 || len(b) == 0 {
		return []Edit{{0, len(a), 0, len(b)}}, nil
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
	return []Edit{{0, len(a), 0, len(b)}}, nil
}

// step makes the d-th edit: it returns the index in a that it reaches on the diagonal k, and
// whether it adds a line of b rather than deletes one of a. reach begins at the diagonal -d.
func step(reach []int32, d, k int) (i int, adds bool) {
	switch {
	case d == 0:
		return 0, false
	case k == -d || k != d && reach[d+k-1] < reach[d+k+1]:
		return int(reach[d+k+1]), true
	}
	return int(reach[d+k-1]) + 1, false
}

// backtrack returns the edits that lead to the ends i and j of both sides. It follows them
// backwards.
func backtrack(trace [][]int32, i, j int) []Edit {
	var edits []Edit
	for d := len(trace) - 1; d > 0; d-- {
		k := i - j
		end, adds := step(trace[d], d, k)
		e := Edit{end, end, end - k, end - k}
		if adds {
			e.B0--
		} else {
			e.A0--
		}
		i, j = e.A0, e.B0
		if n := len(edits); n > 0 && edits[n-1].A0 == e.A1 && edits[n-1].B0 == e.B1 {
			edits[n-1].A0, edits[n-1].B0 = e.A0, e.B0 // no equal line between them
			continue
		}
		edits = append(edits, e)
	}
	slices.Reverse(edits)
	return edits
}
