package manager

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"ramet.dev/ramet/internal/cowfs"
	"ramet.dev/ramet/internal/sandbox"
)

// TestUnified compares with what diff -u prints.
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
		x, y := lines([]byte(c.a)), lines([]byte(c.b))
		edits, err := script(context.Background(), x, y)
		if got := unified("/f", "/f", edits, x, y); err != nil || got != c.want {
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
		edits, err := script(context.Background(), a, b)
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
func checkScript(t *testing.T, edits []edit, a, b []string) int {
	t.Helper()
	var out []string
	at, size := 0, 0
	for i, e := range edits {
		if i > 0 && e.a0 == at || e.a0 == e.a1 && e.b0 == e.b1 {
			t.Fatalf("edits touch or are empty: %v", edits)
		}
		out = append(append(out, a[at:e.a0]...), b[e.b0:e.b1]...)
		at = e.a1
		size += e.a1 - e.a0 + e.b1 - e.b0
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
	rng := rand.New(rand.NewPCG(1, 2))
	text := func() []string {
		out := make([]string, maxHunkFile/2)
		for i := range out {
			out[i] = string(rune('a'+rng.IntN(20))) + "\n"
		}
		return out
	}
	a, b := text(), text()
	began := time.Now()
	edits, err := script(context.Background(), a, b)
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
	if _, err := script(ctx, a, b); !errors.Is(err, gone) {
		t.Errorf("cancelled: %v", err)
	}
}

// TestHunks checks which changes are compared line by line, and what those are
// told that are not.
func TestHunks(t *testing.T) {
	const text, binary, big = 1, 2, 3 // inodes
	files := func(suffix string) reader {
		return func(_ context.Context, n *cowfs.Node) ([]byte, error) {
			switch n.Ino {
			case binary:
				return []byte("a\x00" + suffix), nil
			case big:
				return []byte(strings.Repeat(suffix, 1000)), nil
			}
			return []byte("text\n" + suffix + "\n"), nil
		}
	}
	file := func(ino cowfs.Ino, size uint64) cowfs.Node {
		return cowfs.Node{Ino: ino, Attr: cowfs.Attr{Mode: cowfs.TypeReg, Size: size}}
	}
	const modified, data = cowfs.Modified, cowfs.DiffersData
	dir := cowfs.Node{Ino: text, Attr: cowfs.Attr{Mode: cowfs.TypeDir}}
	all := []struct {
		cowfs.Change
		hunks               bool
		reason              sandbox.NoHunks
		insertions, deleted int
	}{
		{cowfs.Change{Kind: modified, Old: file(text, 9), New: file(text, 9), Differs: data}, true, "", 1, 1},
		{cowfs.Change{Kind: modified, Old: file(text, 9), New: file(text, 9), Differs: cowfs.DiffersMode}, false, "", 0, 0},
		{cowfs.Change{Kind: cowfs.Renamed, From: "/old", Old: file(text, 9), New: file(text, 9)}, false, "", 0, 0},
		{cowfs.Change{Kind: modified, Old: dir, New: dir, Differs: cowfs.DiffersMode}, false, "", 0, 0},
		{cowfs.Change{Kind: modified, Old: dir, New: file(text, 9), Differs: cowfs.DiffersType}, true, "", 2, 0},
		{cowfs.Change{Kind: cowfs.Deleted, Old: file(text, 9)}, true, "", 0, 2},
		{cowfs.Change{Kind: modified, Old: file(binary, 9), New: file(binary, 9), Differs: data}, false, sandbox.NoHunksBinary, 0, 0},
		{cowfs.Change{Kind: modified, Old: file(text, 9), New: file(text, maxHunkFile+1), Differs: data}, false, sandbox.NoHunksTooLarge, 0, 0},
		{cowfs.Change{Kind: modified, Old: file(text, maxHunkFile+1), New: file(text, 9), Differs: data}, false, sandbox.NoHunksTooLarge, 0, 0},
		{cowfs.Change{Kind: cowfs.Added, New: file(big, 3000)}, true, "", 1, 0},
		{cowfs.Change{Kind: modified, Old: file(big, 3000), New: file(big, 3000), Differs: data}, true, "", 1, 1},
		{cowfs.Change{Kind: modified, Old: file(big, 3000), New: file(big, 3000), Differs: data}, false, sandbox.NoHunksLimit, 1, 1},
		{cowfs.Change{Kind: modified, Old: file(text, 9), New: file(text, 9), Differs: data}, false, sandbox.NoHunksLimit, 0, 0},
	}
	var changes []sandbox.Change
	var from []cowfs.Change
	for i := range all {
		all[i].Path = fmt.Sprint("/", i)
		from = append(from, all[i].Change)
		changes = append(changes, describe(&all[i].Change))
	}
	ctx := context.Background()
	h := hunker{old: files("old"), new: files("new"), hunks: true, left: 13000, unread: maxRead}
	if err := h.addTo(ctx, changes, from); err != nil {
		t.Fatal(err)
	}
	for i, c := range changes {
		w := all[i]
		if (c.Hunks != "") != w.hunks || c.NoHunks != w.reason || c.Insertions != w.insertions || c.Deletions != w.deleted {
			t.Errorf("%s %s: +%d -%d, hunks %.60q, reason %q, want %+v", c.Kind, c.Path, c.Insertions, c.Deletions, c.Hunks, c.NoHunks, w)
		}
	}
	counted := []sandbox.Change{describe(&from[0]), describe(&from[0])}
	h = hunker{old: files("old"), new: files("new"), left: maxHunks, unread: 30}
	if err := h.addTo(ctx, counted, []cowfs.Change{from[0], from[0]}); err != nil {
		t.Fatal(err)
	}
	if counted[0].Hunks != "" || counted[0].Insertions != 1 || counted[1].NoHunks != sandbox.NoHunksLimit {
		t.Errorf("counted, and one that would be read after too much: %+v", counted)
	}
	broken := errors.New("broken")
	h = hunker{old: files("old"), new: func(context.Context, *cowfs.Node) ([]byte, error) { return nil, broken }, left: maxHunks, unread: maxRead}
	if err := h.addTo(ctx, changes, from); !errors.Is(err, broken) {
		t.Errorf("a file that cannot be read: %v", err)
	}
}
