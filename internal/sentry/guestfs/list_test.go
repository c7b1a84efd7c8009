package guestfs

import (
	"path"
	"strings"
	"testing"

	"ramet.dev/ramet/api"
)

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
