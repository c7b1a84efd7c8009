package compare

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/interp"
)

// busyGuests has one context in each sandbox, which is busy while it is asked for its variables.
type busyGuests struct {
	Guests
	asked sync.Map // of *atomic.Int32, by ref
}

func (g *busyGuests) Contexts(_ context.Context, ref string) ([]api.Context, error) {
	n, _ := g.asked.LoadOrStore(ref, new(atomic.Int32))
	state := api.ContextIdle
	if n.(*atomic.Int32).Load() > 0 {
		state = api.ContextBusy
	}
	return []api.Context{{Name: "python", Language: "python", State: state}}, nil
}

func (g *busyGuests) Variables(_ context.Context, ref, _ string) ([]interp.Variable, error) {
	n, _ := g.asked.LoadOrStore(ref, new(atomic.Int32))
	n.(*atomic.Int32).Add(1)
	defer n.(*atomic.Int32).Add(-1)
	return []interp.Variable{{Name: "x", Digest: ref}}, nil
}

// Comparisons of one sandbox with many others at once do not find it busy with each other.
func TestComparisonsAtOnce(t *testing.T) {
	c := New(Config{Guests: &busyGuests{}})
	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() {
			changes, err := c.variables(t.Context(), "base", fmt.Sprint("child", i%10))
			if err != nil || len(changes) != 1 {
				t.Errorf("%v %v", changes, err)
			}
		})
	}
	all.Wait()
	if len(c.turns.taken) != 0 {
		t.Errorf("turns are left: %v", c.turns.taken)
	}
}

func TestATurnIsNotWaitedForByOneThatIsGone(t *testing.T) {
	var all turns
	done, err := all.take(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("gone")
	cancel(gone)
	if _, err := all.take(ctx, "a"); !errors.Is(err, gone) {
		t.Errorf("take = %v", err)
	}
	done()
	if done, err = all.take(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	done()
}
