package names

import (
	"slices"
	"strconv"
	"strings"
	"testing"
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
		if got := Selected(c.glob, c.rel); got != c.want {
			t.Errorf("Selected(%q, %q) = %t", c.glob, c.rel, got)
		}
	}
	// It must not take exponential time.
	if Selected(strings.Repeat("**/*a/", 200)+"b", strings.Repeat("aaa/", 400)+"c") {
		t.Error("what does not end with b is selected")
	}
}

func TestCheckGlob(t *testing.T) {
	for glob, ok := range map[string]bool{"": true, "*": true, "[a": false, "a/[": false, `a\`: false, "**/x": true} {
		if err := CheckGlob(glob); (err == nil) != ok {
			t.Errorf("CheckGlob(%q) = %v", glob, err)
		}
	}
}

func TestSmallest(t *testing.T) {
	var all []string
	keep := First(10)
	for i := range 1000 {
		all = append(all, strconv.Itoa(i*7919%1000))
		keep.Add(all[i])
	}
	slices.Sort(all)
	if got := keep.Sorted(); !slices.Equal(got, all[:10]) {
		t.Errorf("kept %q", got)
	}
}
