package textdiff

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func mustMerge(t *testing.T, base, ours, theirs string) []Chunk {
	t.Helper()
	chunks, err := Merge(context.Background(), []byte(base), []byte(ours), []byte(theirs))
	if err != nil {
		t.Fatal(err)
	}
	checkMerge(t, chunks, base, ours, theirs)
	return chunks
}

// conflicts says whether any of chunks is in conflict.
func conflicts(chunks []Chunk) bool {
	return slices.ContainsFunc(chunks, func(c Chunk) bool { return c.Conflict })
}

// checkMerge checks what holds of all merges: the parts of each side are that
// side, and a part is in conflict if and only if both changed it differently.
func checkMerge(t *testing.T, chunks []Chunk, base, ours, theirs string) {
	t.Helper()
	var b, o, th []string
	for _, c := range chunks {
		if c.BaseAt != len(b) || c.OursAt != len(o) || c.TheirsAt != len(th) {
			t.Fatalf("chunk %+v is not at %d, %d, %d", c, len(b), len(o), len(th))
		}
		b, o, th = append(b, c.Base...), append(o, c.Ours...), append(th, c.Theirs...)
		differ := !slices.Equal(c.Base, c.Ours) && !slices.Equal(c.Base, c.Theirs) && !slices.Equal(c.Ours, c.Theirs)
		if differ != c.Conflict {
			t.Fatalf("chunk %+v is wrong about its conflict", c)
		}
	}
	for _, s := range [][2]string{{base, strings.Join(b, "")}, {ours, strings.Join(o, "")}, {theirs, strings.Join(th, "")}} {
		if s[0] != s[1] {
			t.Fatalf("parts of %q are %q", s[0], s[1])
		}
	}
}

func TestMerge(t *testing.T) {
	const conflict = "conflict"
	for name, c := range map[string]struct{ base, ours, theirs, want string }{
		"nothing":             {"", "", "", ""},
		"apart":               {"1\n2\n3\n4\n5\n", "one\n2\n3\n4\n5\n", "1\n2\n3\n4\nfive\n", "one\n2\n3\n4\nfive\n"},
		"one line between":    {"1\n2\n3\n", "one\n2\n3\n", "1\n2\nthree\n", "one\n2\nthree\n"},
		"neighbours":          {"1\n2\n", "one\n2\n", "1\ntwo\n", conflict},
		"same line":           {"1\n2\n3\n", "1\na\n3\n", "1\nb\n3\n", conflict},
		"same change":         {"1\n2\n3\n", "1\nx\n3\n", "1\nx\n3\n", "1\nx\n3\n"},
		"same and another":    {"1\n2\n3\n4\n5\n", "x\n2\n3\n4\n5\n", "x\n2\n3\n4\ny\n", "x\n2\n3\n4\ny\n"},
		"both add at an end":  {"1\n", "1\na\n", "1\nb\n", conflict},
		"add at both ends":    {"1\n", "0\n1\n", "1\n2\n", "0\n1\n2\n"},
		"delete and change":   {"1\n2\n3\n", "1\n3\n", "1\ntwo\n3\n", conflict},
		"delete the same":     {"1\n2\n3\n", "1\n3\n", "1\n3\n", "1\n3\n"},
		"only theirs":         {"1\n", "1\n", "2\n", "2\n"},
		"only ours":           {"1\n", "2\n", "1\n", "2\n"},
		"without an end":      {"1\n2\n3", "1\n2\n3\n", "0\n2\n3", "0\n2\n3\n"},
		"an end and a line":   {"1\n2", "1\n2\n", "1\n2\n3\n", conflict},
		"both make it anew":   {"", "a\n", "b\n", conflict},
		"carriage returns":    {"1\r\n2\r\n3\r\n", "one\r\n2\r\n3\r\n", "1\r\n2\r\nthree\r\n", "one\r\n2\r\nthree\r\n"},
		"theirs within ours":  {"1\n2\n3\n4\n5\n", "1\na\nb\nc\n5\n", "1\n2\nx\n4\n5\n", conflict},
		"one spans two edits": {"1\n2\n3\n4\n5\n", "a\n2\n3\n4\nb\n", "x\ny\nz\n", conflict},
	} {
		t.Run(name, func(t *testing.T) {
			chunks := mustMerge(t, c.base, c.ours, c.theirs)
			if conflicts(chunks) != (c.want == conflict) {
				t.Fatalf("conflict: %v, want %q: %+v", conflicts(chunks), c.want, chunks)
			}
			if got := string(Text(chunks, Ours)); c.want != conflict && got != c.want {
				t.Errorf("got %q, not %q", got, c.want)
			}
		})
	}
}

// TestMergePrefers checks that a side decides what is in conflict and nothing else.
func TestMergePrefers(t *testing.T) {
	chunks := mustMerge(t, "1\n2\n3\n4\n5\n6\n7\n", "one\n2\n3\nours\n5\n6\n7\n", "1\n2\n3\ntheirs\n5\n6\nseven\n")
	for side, want := range map[Side]string{Ours: "one\n2\n3\nours\n5\n6\nseven\n", Theirs: "one\n2\n3\ntheirs\n5\n6\nseven\n"} {
		if got := string(Text(chunks, side)); got != want {
			t.Errorf("side %d: %q, not %q", side, got, want)
		}
	}
}

func TestMergeEndsWithContext(t *testing.T) {
	ctx, cancel := context.WithCancelCause(context.Background())
	gone := errors.New("gone")
	cancel(gone)
	if _, err := Merge(ctx, []byte("a\n"), []byte("b\n"), []byte("c\n")); !errors.Is(err, gone) {
		t.Errorf("cancelled: %v", err)
	}
}

// mergeLaws checks what holds whatever the texts are.
func mergeLaws(t *testing.T, base, a, b string) {
	t.Helper()
	for _, c := range []struct{ base, ours, theirs, want string }{
		{base, a, a, a}, {base, base, a, a}, {base, a, base, a}, {base, base, base, base},
	} {
		chunks := mustMerge(t, c.base, c.ours, c.theirs)
		if got := string(Text(chunks, Ours)); conflicts(chunks) || got != c.want {
			t.Fatalf("merge(%q, %q, %q) is %q, conflict %v", c.base, c.ours, c.theirs, got, conflicts(chunks))
		}
	}
	there, back := mustMerge(t, base, a, b), mustMerge(t, base, b, a)
	if conflicts(there) != conflicts(back) {
		t.Fatalf("merge(%q, %q, %q) depends on the order", base, a, b)
	}
	if x, y := Text(there, Ours), Text(back, Theirs); !bytes.Equal(x, y) {
		t.Fatalf("merge(%q, %q, %q) is %q or %q", base, a, b, x, y)
	}
}

// TestMergeDisjoint changes blocks that are apart on either side: the result has
// all changes.
func TestMergeDisjoint(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		var base, a, b, want strings.Builder
		for block := range 1 + rng.IntN(12) {
			// Lines that occur once, and are more than a block has, keep blocks
			// apart: else there can be a script as short that matches two blocks.
			fence := ""
			for i := range 8 {
				fence += fmt.Sprint("= ", block, i, "\n")
			}
			old, changed := randomText(rng), randomText(rng)
			sides := rng.IntN(3)
			for _, w := range []struct {
				to      *strings.Builder
				changes bool
			}{{&base, false}, {&a, sides == 1}, {&b, sides == 2}, {&want, sides > 0}} {
				text := old
				if w.changes {
					text = changed
				}
				w.to.WriteString(fence + text)
			}
		}
		base.WriteString("end\n")
		a.WriteString("end\n")
		b.WriteString("end\n")
		want.WriteString("end\n")
		chunks := mustMerge(t, base.String(), a.String(), b.String())
		if got := string(Text(chunks, Ours)); conflicts(chunks) || got != want.String() {
			t.Fatalf("merge(%q, %q, %q) is %q, not %q", base.String(), a.String(), b.String(), got, want.String())
		}
		mergeLaws(t, base.String(), a.String(), b.String())
	}
}

// randomText returns some lines of a small alphabet.
func randomText(rng *rand.Rand) string {
	var out strings.Builder
	for range rng.IntN(4) {
		out.WriteString(string(rune('a'+rng.IntN(4))) + "\n")
	}
	return out.String()
}

// FuzzMerge merges any texts.
func FuzzMerge(f *testing.F) {
	f.Add("1\n2\n3\n", "1\n3\n", "1\ntwo\n3")
	f.Add("", "a", "a\n")
	f.Add("\n\n\n", "\n", "\n\n\n\n\xff")
	f.Fuzz(func(t *testing.T, base, a, b string) { mergeLaws(t, base, a, b) })
}
