package quota

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"ramet.dev/ramet/api"
)

// TestTurnsBound has many operations of two tenants compete, and counts those that are
// under way at once.
func TestTurnsBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := NewTurns("tests", 3, 5, time.Hour)
		var all, most atomic.Int64
		ofTenant := map[string]*atomic.Int64{"a": {}, "b": {}}
		var wg sync.WaitGroup
		for tenant, running := range ofTenant {
			for range 40 {
				wg.Go(func() {
					done, err := turns.Take(t.Context(), tenant)
					if err != nil {
						t.Error(err)
						return
					}
					defer done()
					defer done() // which counts once
					if n := running.Add(1); n > 3 {
						t.Errorf("%d of one tenant are under way", n)
					}
					n := all.Add(1)
					for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
					}
					<-time.After(time.Second) // of the test
					all.Add(-1)
					running.Add(-1)
				})
			}
		}
		wg.Wait()
		if got := most.Load(); got != 5 {
			t.Errorf("at most %d were under way, not 5", got)
		}
		if turns.total != 0 || len(turns.running) != 0 || len(turns.waiting) != 0 {
			t.Errorf("at the end: %+v", turns)
		}
	})
}

// TestTurnsAreRefused: who waits is told in the end, and one tenant does not keep others
// from their turns.
func TestTurnsAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := NewTurns("tests", 2, 3, 30*time.Second)
		take := func(tenant string) func() {
			t.Helper()
			done, err := turns.Take(t.Context(), tenant)
			if err != nil {
				t.Fatal(err)
			}
			return done
		}
		first, second := take("a"), take("a")
		began := time.Now()
		_, err := turns.Take(t.Context(), "a")
		if e := api.AsError(err); e.Code != api.CodeLimit || e.Exceeded == nil || e.Exceeded.Of != "tenant a" || e.Exceeded.Max != 2 || e.Exceeded.Used != 2 || e.Exceeded.RetrySeconds != 3 || time.Since(began) != 30*time.Second {
			t.Errorf("after %v: %+v", time.Since(began), e)
		}
		third := take("b")
		if _, err := turns.Take(t.Context(), "b"); api.AsError(err).Exceeded.Of != "the daemon" {
			t.Errorf("%v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := turns.Take(ctx, "b"); api.CodeOf(err) != api.CodeCanceled {
			t.Errorf("whose client is gone: %v", err)
		}
		// As many as may wait do, and one more is refused at once.
		var wg sync.WaitGroup
		for range 2 * waitingPerTurn {
			wg.Go(func() {
				if done, err := turns.Take(t.Context(), "a"); err == nil {
					done()
				}
			})
		}
		synctest.Wait()
		began = time.Now()
		if _, err := turns.Take(t.Context(), "a"); api.CodeOf(err) != api.CodeLimit || time.Since(began) != 0 {
			t.Errorf("behind a full queue, after %v: %v", time.Since(began), err)
		}
		first()
		second()
		third()
		wg.Wait()
		take("b")()
	})
}
