package selfcontrol

import (
	"errors"
	"slices"
	"sync"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/storage/store"
)

// TestBudgetIsShared has many relatives use one budget at the same time, some of
// whose forks fail or lose children.
func TestBudgetIsShared(t *testing.T) {
	g := NewBudget("g", Spending{Forks: 100, Snapshots: 3})
	var mu sync.Mutex
	var recorded Spending
	made := 0
	var relatives sync.WaitGroup
	for i := range 40 {
		relatives.Add(1)
		go func() {
			defer relatives.Done()
			for range 10 {
				done, err := g.reserve(3, 0)
				if err != nil {
					if api.CodeOf(err) != api.CodeLimit {
						t.Error(err)
					}
					continue
				}
				n := i % 4 // so many children of three
				err = g.Spend(n, 0, func(c store.Change) error {
					if n == 0 {
						return errors.New("the fork failed")
					}
					mu.Lock()
					defer mu.Unlock()
					recorded = c.Doc.(Spending)
					made += n
					return nil
				})
				if (err != nil) != (n == 0) {
					t.Errorf("spend %d: %v", n, err)
				}
				done()
			}
		}()
	}
	relatives.Wait()
	if got := g.Used(); got != recorded || got.UsedForks != made || made > 100 || made == 0 || g.reservedForks != 0 {
		t.Errorf("%d were made; used %+v, recorded %+v, %d reserved", made, got, recorded, g.reservedForks)
	}
	if _, err := g.reserve(0, 4); api.CodeOf(err) != api.CodeLimit {
		t.Errorf("four snapshots of three: %v", err)
	}
	done, err := g.reserve(0, 3)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.reserve(0, 1); api.CodeOf(err) != api.CodeLimit {
		t.Errorf("one while three are made: %v", err)
	}
	done()
	if _, err := g.reserve(0, 1); err != nil {
		t.Errorf("one after three failed: %v", err)
	}
}

// TestChangesOfMetadata refuses keys that were set from outside.
func TestChangesOfMetadata(t *testing.T) {
	v := "v"
	labels := api.Labels{"user": "1"}
	if err := mayChange(labels, map[string]*string{"user": nil}); api.CodeOf(err) != api.CodeConflict {
		t.Errorf("a key from outside: %v", err)
	}
	if err := mayChange(labels, map[string]*string{"mine": &v, "other": nil}); err != nil {
		t.Error(err)
	}
}

// TestGrantsOfOlderVersions move their tags to the record that has the metadata.
func TestGrantsOfOlderVersions(t *testing.T) {
	claimed := []string{"kept"}
	old := &Grant{Budget: "g", Tags: []string{"b", "a"}}
	for _, g := range []*Grant{nil, {Budget: "g"}} {
		if got := g.Migrate(&claimed); got != g || !slices.Equal(claimed, []string{"kept"}) {
			t.Errorf("%+v became %+v with %v", g, got, claimed)
		}
	}
	if got := old.Migrate(&claimed); got.Budget != "g" || len(got.Tags) != 0 || !slices.Equal(claimed, []string{"a", "b"}) || len(old.Tags) != 2 {
		t.Errorf("%+v with %v", got, claimed)
	}
	if (*Grant)(nil).Inherited(true) != nil {
		t.Error("no right became one")
	}
}
