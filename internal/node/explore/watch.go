package explore

import (
	"context"
	"sync"
	"time"

	"ramet.dev/ramet/api"
)

// watchEvery is how often the memory of attempts is read.
const watchEvery = 500 * time.Millisecond

// watch holds the attempts of a round to the limit of memory.
type watch struct {
	r     *run
	stops map[int]context.CancelCauseFunc
	done  chan struct{}
	work  sync.WaitGroup
}

func (r *run) newWatch(members []int) *watch {
	return &watch{r: r, stops: make(map[int]context.CancelCauseFunc, len(members)), done: make(chan struct{})}
}

// add makes an attempt one that may be stopped. All are added before run is called.
func (w *watch) add(i int, stop context.CancelCauseFunc) { w.stops[i] = stop }

// run watches until end is called, if there is a limit.
func (w *watch) run(ctx context.Context) {
	limit := float64(w.r.plan.Limits.MemoryMiB)
	if limit == 0 {
		return
	}
	w.work.Go(func() {
		tick := time.NewTicker(watchEvery)
		defer tick.Stop()
		for {
			select {
			case <-w.done:
				return
			case <-ctx.Done():
				return
			case <-tick.C:
				w.enforce(ctx, limit)
			}
		}
	})
}

// end ends the watch, and waits for that.
func (w *watch) end() {
	close(w.done)
	w.work.Wait()
}

// enforce stops the attempt of the round that has the most memory, if all attempts of the exploration
// that are there, those of earlier rounds as well, together have too much. Its
// sandbox goes with it: what it keeps would count on. An attempt that succeeds meanwhile stays.
func (w *watch) enforce(ctx context.Context, limit float64) {
	total, most, largest := 0., 0., -1
	for _, i := range w.r.everyone() {
		stop, runs := w.stops[i]
		if runs && stop == nil || w.r.dropped[i] && w.r.rec.Keep != api.KeepAll {
			continue
		}
		mib, err := w.r.explorer.cfg.Sandboxes.PrivateMiB(ctx, w.r.attempt(i).Sandbox)
		if err != nil {
			continue // it is gone, or about to
		}
		if total += mib; runs && mib > most && w.r.attempt(i).State != api.AttemptSucceeded {
			most, largest = mib, i
		}
	}
	if total <= limit || largest < 0 {
		return
	}
	e := api.Errorf(api.CodeLimit, "limits.memory_mib: the attempts have %.0f MiB together, more than %.0f, and this one has the most, %.0f MiB", total, limit, most)
	stopped := w.r.change(largest, api.AttemptStopped, func(a *api.Attempt) { a.StoppedEarly, a.Error = true, e })
	if !stopped && w.r.attempt(largest).State == api.AttemptSucceeded {
		return
	}
	w.stops[largest](e)
	w.stops[largest] = nil
	w.r.destroy([]string{w.r.attempt(largest).Sandbox})
}
