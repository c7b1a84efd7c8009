package explore

import (
	"context"
	"slices"
	"sync"
	"time"

	"ramet.dev/ramet/api"
)

// record is what is stored of an exploration. It has what is needed to end it, and nothing of the
// plan that is not in the table: its environment and its files are in memory only.
type record struct {
	Exploration api.Exploration   `json:"exploration"`
	Tenant      string            `json:"tenant"`
	Line        []string          `json:"line"` // ancestors of the explored sandbox, and itself
	Keep        api.ExploreKeep   `json:"keep"`
	Merge       *api.ExploreMerge `json:"merge,omitempty"`
	// Idle is the idle timeout of the explored sandbox, which attempts do not have: one that waits
	// for others must not be put to rest. Those that are kept get it in the end.
	Idle int64 `json:"idle_ms,omitempty"`
	// Failure is why it is finishing without a result.
	Failure *api.Error `json:"failure,omitempty"`
}

// table is the record of an exploration with its events. It is the only owner of states. It is safe
// for concurrent use.
type table struct {
	explorer *Explorer

	mu        sync.Mutex
	rec       record
	ends      int         // of attempts, for their order
	order     map[int]int // when attempts have succeeded
	events    []api.ExplorationEvent
	base      int64         // the number before that of the first event
	changed   chan struct{} // closed by the next event
	restarted bool          // an earlier daemon began it
}

func (t *table) id() string { return t.rec.Exploration.ID } // which never changes

// become changes the state, and refuses what States does not allow. Nothing else assigns a state.
func (t *table) become(to api.ExplorationState) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	x := &t.rec.Exploration
	if err := States.Check(x.ID, x.State, to); err != nil {
		return err
	}
	x.State = to
	if to.Final() {
		now := time.Now().UTC()
		x.EndedAt, x.DurationMS = &now, float64(now.Sub(x.CreatedAt))/float64(time.Millisecond)
	}
	t.event(api.ExplorationEvent{Kind: api.ExplorationChanged, Ended: x.Ended, Winner: x.Winner, Error: x.Error})
	return nil
}

// change changes attempt i, and publishes that. A state that AttemptStates does not allow is a
// defect: the attempt stays as it is.
func (t *table) change(i int, to api.AttemptState, change func(*api.Attempt)) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	a := &t.rec.Exploration.Children[i]
	if !AttemptStates.Allows(a.State, to) {
		return false
	}
	a.State = to
	if change != nil {
		change(a)
	}
	if to == api.AttemptSucceeded {
		t.ends++
		t.order[i] = t.ends
	}
	about := brief(a)
	t.event(api.ExplorationEvent{Kind: api.AttemptChanged, Attempt: &about})
	return true
}

// edit changes the exploration without publishing it.
func (t *table) edit(change func(*api.Exploration)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	change(&t.rec.Exploration)
}

// attempt returns attempt i as it is now.
func (t *table) attempt(i int) api.Attempt {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.rec.Exploration.Children[i]
}

// view returns the exploration as it is now. Lists in it are not changed any more, but by being
// replaced.
func (t *table) view() *api.Exploration {
	t.mu.Lock()
	defer t.mu.Unlock()
	x := t.rec.Exploration
	x.Children = slices.Clone(x.Children)
	x.Rounds = slices.Clone(x.Rounds)
	return &x
}

// brief returns an attempt without what may be large.
func brief(a *api.Attempt) api.Attempt {
	b := *a
	b.Stdout, b.Stderr, b.Value, b.Diff, b.Variables = "", "", "", nil, nil
	return b
}

// save stores the exploration.
func (t *table) save(ctx context.Context) error {
	t.mu.Lock()
	doc := t.rec
	doc.Exploration.Children = slices.Clone(doc.Exploration.Children)
	doc.Exploration.Rounds = slices.Clone(doc.Exploration.Rounds)
	t.mu.Unlock()
	return t.explorer.cfg.Records.Save(context.WithoutCancel(ctx), doc.Exploration.ID, doc)
}

// keep is save, where a failure is only logged: the next daemon then finds an older record.
func (t *table) keep(ctx context.Context) {
	if err := t.save(ctx); err != nil {
		t.explorer.cfg.Log.Warn("store an exploration", "id", t.id(), "error", err)
	}
}

// event adds an event. The caller holds t.mu, or nobody else knows t.
func (t *table) event(ev api.ExplorationEvent) {
	x := &t.rec.Exploration
	x.Seq++
	ev.Seq, ev.Time, ev.State = x.Seq, time.Now().UTC(), x.State
	t.events = append(t.events, ev)
	close(t.changed)
	t.changed = make(chan struct{})
}

// read calls each with the events after since.
func (t *table) read(ctx context.Context, since int64, follow bool, each func(api.ExplorationEvent) error) error {
	if since < t.base && (t.restarted || since != 0) {
		t.mu.Lock()
		state := t.rec.Exploration.State
		t.mu.Unlock()
		if err := each(api.ExplorationEvent{Seq: t.base, Time: time.Now().UTC(), State: state, Restarted: true}); err != nil {
			return err
		}
	}
	at := max(0, since-t.base)
	for {
		t.mu.Lock()
		list := t.events[min(at, int64(len(t.events))):]
		changed, final := t.changed, t.rec.Exploration.State.Final()
		t.mu.Unlock()
		for _, ev := range list {
			if err := each(ev); err != nil {
				return err
			}
		}
		at += int64(len(list))
		if final || !follow {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-t.explorer.ctx.Done():
			return context.Cause(t.explorer.ctx)
		}
	}
}

// endRound notes which attempts of the last round go on.
func (t *table) endRound(number int, survivors []int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	rounds := slices.Clone(t.rec.Exploration.Rounds)
	last := &rounds[number-1]
	if last.Survivors = survivors; survivors == nil {
		last.Survivors = []int{}
	}
	t.rec.Exploration.Rounds = rounds
	round := *last
	t.event(api.ExplorationEvent{Kind: api.RoundChanged, Round: &round})
}

// everyone returns the indexes of all attempts.
func (t *table) everyone() []int {
	list := make([]int, len(t.view().Children))
	for i := range list {
		list[i] = i
	}
	return list
}
