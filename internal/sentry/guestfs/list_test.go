package guestfs

import (
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"

	"ramet.dev/ramet/api"
)

func TestSelected(t *testing.T) {
	for _, c := range []struct {
		glob, rel string
		want      bool
	}{
		{"", "a/b", true}, {"b", "a/b", true}, {"a", "a/b", false}, {"*.go", "a/b.go", true}, {"*.go", "a/b.py", false},
		{"a/b", "a/b", true}, {"a/*", "a/b", true}, {"a/*", "a/b/c", false}, {"a/**", "a/b/c", true}, {"a/**/c", "a/c", true}, {"a/**/c", "a/b/b/c", true},
		{"**/c", "c", true}, {"**/c", "a/b/c", true}, {"**/b/**/d", "a/b/c/d", true}, {"**/b/**/d", "a/c/d", false}, {"/a", "a", true}, {"/a", "b/a", false},
		{"?", "\xff", true}, {"[^a]/b", "c/b", true}, {"a/**/**/b", "a/b", true},
	} {
		if got := selected(c.glob, c.rel); got != c.want {
			t.Errorf("selected(%q, %q) = %t", c.glob, c.rel, got)
		}
	}
	// It must not take exponential time.
	if selected(strings.Repeat("**/*a/", 200)+"b", strings.Repeat("aaa/", 400)+"c") {
		t.Error("what does not end with b is selected")
	}
}

func TestCheckGlob(t *testing.T) {
	for glob, ok := range map[string]bool{"": true, "*": true, "[a": false, "a/[": false, `a\`: false, "**/x": true} {
		if err := checkGlob(glob); (err == nil) != ok {
			t.Errorf("checkGlob(%q) = %v", glob, err)
		}
	}
}

func TestSmallest(t *testing.T) {
	var all []string
	keep := &smallest{most: 10}
	for i := range 1000 {
		all = append(all, strconv.Itoa(i*7919%1000))
		keep.add(all[i])
	}
	slices.Sort(all)
	if got := keep.sorted(); !slices.Equal(got, all[:10]) {
		t.Errorf("kept %q", got)
	}
}

// TestEntryName tries all names of a few parts that matter.
func TestEntryName(t *testing.T) {
	names := []string{""}
	for range 4 {
		var longer []string
		for _, name := range names {
			for _, part := range []string{"", ".", "..", "a", "..a", "...", "\x00"} {
				longer = append(longer, name+"/"+part, part)
			}
		}
		names = append(names, longer...)
	}
	refused := 0
	for _, name := range append(names, strings.Repeat("a", maxEntryName+1)) {
		got, err := entryName(name)
		if err != nil {
			refused++
			if code := api.CodeOf(err); code != api.CodeHostile && (code != api.CodeLimit || len(name) <= maxEntryName) {
				t.Errorf("%q: %v", name, err)
			}
			continue
		}
		if got == "" || path.IsAbs(got) || got != path.Clean(got) || got == ".." || strings.HasPrefix(got, "../") || strings.ContainsRune(got, 0) {
			t.Errorf("%q becomes %q", name, got)
		}
	}
	if refused == 0 || refused == len(names)+1 {
		t.Errorf("%d of %d names were refused", refused, len(names)+1)
	}
}
