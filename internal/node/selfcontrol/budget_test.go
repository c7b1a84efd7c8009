package selfcontrol

import (
	"errors"
	"maps"
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

func TestGrantTags(t *testing.T) {
	v := "v"
	metadata := map[string]string{"user": "1"}
	r := &Grant{Budget: "g"}
	if err := r.mayChange(metadata, map[string]*string{"user": nil}); api.CodeOf(err) != api.CodeConflict {
		t.Errorf("a key from outside: %v", err)
	}
	own := map[string]*string{"mine": &v, "other": &v}
	if err := r.mayChange(metadata, own); err != nil {
		t.Error(err)
	}
	tagged := r.Retagged(own, true)
	metadata = map[string]string{"user": "1", "mine": "v", "other": "v"}
	if err := tagged.mayChange(metadata, own); err != nil {
		t.Errorf("its own keys: %v", err)
	}
	if len(r.Tags) != 0 {
		t.Errorf("the right was changed in place: %v", r.Tags)
	}
	outside := tagged.Retagged(map[string]*string{"mine": &v}, false)
	if err := outside.mayChange(metadata, map[string]*string{"mine": nil}); api.CodeOf(err) != api.CodeConflict {
		t.Errorf("its own key, set from outside: %v", err)
	}
	if got := slices.Sorted(maps.Keys(own)); !slices.Equal(slices.Sorted(slices.Values(tagged.Tags)), got) {
		t.Errorf("tags %v, want %v", tagged.Tags, got)
	}
	if removed := tagged.Retagged(map[string]*string{"mine": nil}, true); !slices.Equal(removed.Tags, []string{"other"}) {
		t.Errorf("after a removal: %v", removed.Tags)
	}
	if (*Grant)(nil).Retagged(own, true) != nil || (*Grant)(nil).Inherited(true) != nil {
		t.Error("no right became one")
	}
}
