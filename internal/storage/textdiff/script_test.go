package textdiff

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestUnified compares with what diff -u prints.
// A name cannot end the line of a header, and so cannot look like a change.
func TestUnifiedQuotesNames(t *testing.T) {
	a, b := []string{"x\n"}, []string{"y\n"}
	edits, err := Script(t.Context(), a, b)
	if err != nil {
		t.Fatal(err)
	}
	got := Unified("/o \xc3\xa9", "/new\n@@ \"\\", edits, a, b)
	want := "--- a/o \xc3\xa9\n+++ \"b/new\\012@@ \\\"\\\\\"\n@@ -1 +1 @@\n-x\n+y\n"
	if got != want {
		t.Errorf("%q, not %q", got, want)
	}
	got = Unified("/\xffo \xc3\xa9", "/n", edits, a, b)
	want = "--- \"a/\\377o \\303\\251\"\n+++ b/n\n@@ -1 +1 @@\n-x\n+y\n"
	if got != want {
		t.Errorf("a name that is not UTF-8: %q, not %q", got, want)
	}
}

func TestUnified(t *testing.T) {
	many := strings.Repeat("x\n", 10)
	for name, c := range map[string]struct{ a, b, want string }{
		"same":      {"a\n", "a\n", ""},
		"replaced":  {"a\nb\nc\n", "a\nB\nc\n", "@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n"},
		"one line":  {"a\n", "b\n", "@@ -1 +1 @@\n-a\n+b\n"},
		"added":     {"", "a\nb\n", "@@ -0,0 +1,2 @@\n+a\n+b\n"},
		"deleted":   {"a\n", "", "@@ -1 +0,0 @@\n-a\n"},
		"no end":    {"a\nb", "a\nb\n", "@@ -1,2 +1,2 @@\n a\n-b\n\\ No newline at end of file\n+b\n"},
		"two hunks": {"a\n" + many + "b\n", "A\n" + many + "B\n", "@@ -1,4 +1,4 @@\n-a\n+A\n x\n x\n x\n@@ -9,4 +9,4 @@\n x\n x\n x\n-b\n+B\n"},
		"one hunk":  {"a\n1\n2\n3\n4\n5\n6\nb\n", "A\n1\n2\n3\n4\n5\n6\nB\n", "@@ -1,8 +1,8 @@\n-a\n+A\n 1\n 2\n 3\n 4\n 5\n 6\n-b\n+B\n"},
	} {
		if c.want != "" {
			c.want = "--- a/f\n+++ b/f\n" + c.want
		}
		x, y := MarkedLines([]byte(c.a)), MarkedLines([]byte(c.b))
		edits, err := Script(context.Background(), x, y)
		if got := Unified("/f", "/f", edits, x, y); err != nil || got != c.want {
			t.Errorf("%s: %v\n%s\nnot\n%s", name, err, got, c.want)
		}
	}
}

// TestScript checks that edits make b of a and are as few as can be.
func TestScript(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		text := func() []string {
			out := make([]string, rng.IntN(20))
			for i := range out {
				out[i] = strconv.Itoa(rng.IntN(5))
			}
			return out
		}
		a, b := text(), text()
		edits, err := Script(context.Background(), a, b)
		if err != nil {
			t.Fatal(err)
		}
		if size := checkScript(t, edits, a, b); size != len(a)+len(b)-2*longestCommon(a, b) {
			t.Fatalf("%v to %v takes %d edits: %v", a, b, size, edits)
		}
	}
}

// checkScript applies edits to a, which must give b, and returns how many lines
// they are.
func checkScript(t *testing.T, edits []Edit, a, b []string) int {
	t.Helper()
	var out []string
	at, size := 0, 0
	for i, e := range edits {
		if i > 0 && e.A0 == at || e.A0 == e.A1 && e.B0 == e.B1 {
			t.Fatalf("edits touch or are empty: %v", edits)
		}
		out = append(append(out, a[at:e.A0]...), b[e.B0:e.B1]...)
		at = e.A1
		size += e.A1 - e.A0 + e.B1 - e.B0
	}
	out = append(out, a[at:]...)
	if fmt.Sprint(out) != fmt.Sprint(b) {
		t.Fatalf("%v makes %v of %v, not %v", edits, out, a, b)
	}
	return size
}

// longestCommon returns the length of the longest common subsequence.
func longestCommon(a, b []string) int {
	row := make([]int, len(b)+1)
	for i := range a {
		diagonal := 0
		for j := range b {
			above := row[j+1]
			row[j+1] = max(above, row[j])
			if a[i] == b[j] {
				row[j+1] = diagonal + 1
			}
			diagonal = above
		}
	}
	return row[len(b)]
}

// TestUnifiedIsBounded compares files that have nothing in common but their
// alphabet and are as long as can be.
func TestUnifiedIsBounded(t *testing.T) {
	const size = 1 << 20 // bytes
	rng := rand.New(rand.NewPCG(1, 2))
	text := func() []string {
		out := make([]string, size/2)
		for i := range out {
			out[i] = string(rune('a'+rng.IntN(20))) + "\n"
		}
		return out
	}
	a, b := text(), text()
	began := time.Now()
	edits, err := Script(context.Background(), a, b)
	if err != nil {
		t.Fatal(err)
	}
	if d := time.Since(began); d > 20*time.Second { // a second, usually
		t.Errorf("it took %v", d)
	}
	checkScript(t, edits, a, b)
	ctx, cancel := context.WithCancelCause(context.Background())
	gone := errors.New("gone")
	cancel(gone)
	if _, err := Script(ctx, a, b); !errors.Is(err, gone) {
		t.Errorf("cancelled: %v", err)
	}
}
