package pages

import (
	"os"
	"path/filepath"
	"testing"
)

// TestFewAddresses has a process that has no room for the largest mapping.
func TestFewAddresses(t *testing.T) {
	defer func(sizes []int) { ownMappings = sizes }(ownMappings)
	ownMappings = []int{1 << 60, 1 << 30}
	own, err := os.Create(filepath.Join(t.TempDir(), "own"))
	if err != nil {
		t.Fatal(err)
	}
	s, err := NewStore(own, 7, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if want := Page(7 + 1<<30/PageSize); s.most != want {
		t.Errorf("the store ends with page %d, not %d", s.most, want)
	}
	s.Bound(100)
	fresh, err := os.Create(filepath.Join(t.TempDir(), "fresh"))
	if err != nil {
		t.Fatal(err)
	}
	defer fresh.Close()
	if err := s.MoveTo(int(fresh.Fd())); err != nil {
		t.Fatal(err)
	}
	if s.most != 100 {
		t.Errorf("a fork of the store ends with page %d, not 100", s.most)
	}

	ownMappings = []int{1 << 60}
	another, err := os.Create(filepath.Join(t.TempDir(), "another"))
	if err != nil {
		t.Fatal(err)
	}
	defer another.Close()
	if _, err := NewStore(another, 1, nil); err == nil {
		t.Error("a store has more memory than there are addresses")
	}
}
