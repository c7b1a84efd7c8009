package textdiff

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// contextLines is the number of unchanged lines before and after each change of a unified
// diff.
const contextLines = 3

// Unified returns the unified diff of the lines of a file that was at oldPath, empty
// if there are no edits. The lines are those of MarkedLines.
func Unified(oldPath, path string, edits []Edit, a, b []string) string {
	if len(edits) == 0 {
		return ""
	}
	var out strings.Builder
	fmt.Fprintf(&out, "--- %s\n+++ %s\n", quoted("a"+oldPath), quoted("b"+path))
	for len(edits) > 0 {
		n := 1
		for n < len(edits) && edits[n].A0-edits[n-1].A1 <= 2*contextLines {
			n++
		}
		writeHunk(&out, edits[:n], a, b)
		edits = edits[n:]
	}
	return out.String()
}

// quoted returns a path in the form that it has in headers of git and patch: as a string of
// C if it is not UTF-8, or has bytes that would end the line or are special in such strings.
func quoted(path string) string {
	isText := utf8.ValidString(path)
	special := func(b byte) bool { return b < ' ' || b == 0x7f || b == '"' || b == '\\' || b > 0x7f && !isText }
	plain := true
	for i := range len(path) {
		plain = plain && !special(path[i])
	}
	if plain {
		return path
	}
	out := []byte{'"'}
	for i := range len(path) {
		switch b := path[i]; {
		case b == '"' || b == '\\':
			out = append(out, '\\', b)
		case special(b):
			out = fmt.Appendf(out, "\\%03o", b)
		default:
			out = append(out, b)
		}
	}
	return string(append(out, '"'))
}

// writeHunk writes edits as one hunk.
func writeHunk(out *strings.Builder, edits []Edit, a, b []string) {
	first, last := edits[0], edits[len(edits)-1]
	before := min(contextLines, first.A0, first.B0)
	after := min(contextLines, len(a)-last.A1, len(b)-last.B1)
	write := func(mark byte, lines []string) {
		for _, l := range lines {
			out.WriteByte(mark)
			out.WriteString(l)
		}
	}
	fmt.Fprintf(out, "@@ -%s +%s @@\n", span(first.A0-before, last.A1+after), span(first.B0-before, last.B1+after))
	at := first.A0 - before
	for _, e := range edits {
		write(' ', a[at:e.A0])
		write('-', a[e.A0:e.A1])
		write('+', b[e.B0:e.B1])
		at = e.A1
	}
	write(' ', a[at:last.A1+after])
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
