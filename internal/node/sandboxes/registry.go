package sandboxes

import (
	"context"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/launch"
	"ramet.dev/ramet/internal/node/freezes"
	"ramet.dev/ramet/internal/node/timer"
	"ramet.dev/ramet/internal/node/visibility"
	"ramet.dev/ramet/internal/observe/events"
	"ramet.dev/ramet/internal/service/access"
	"ramet.dev/ramet/internal/storage/store"
)

// Listener is told what becomes of sandboxes. Its methods are called without a lock after
// Instance.Op.
type Listener interface {
	// Began is called when b goes on in s. channel is the gateway's end of the channel that s was
	// begun with, and is closed afterwards; nil if it has none, or has kept one that it had.
	Began(b *Instance, s *launch.Sentry, channel *os.File)
	// Failed is called when s, in which b was, has ended by itself.
	Failed(b *Instance, s *launch.Sentry)
	// Ending is called before s, in which b was until now, is ended.
	Ending(b *Instance, s *launch.Sentry)
	// Replaced is called when sandboxes have got another state: they may not need the
	// snapshots any more that they could return to.
	Replaced()
	// Removing returns what is to be stored when b is gone, besides that its records are.
	Removing(b *Instance) []store.Change
	// Removed is called when b is gone.
	Removed(b *Instance)
	// Forgotten is called when b is gone and its state is another sandbox's.
	Forgotten(b *Instance)
}

// Config is what a registry works with.
type Config struct {
	Store   *store.Store
	Freezes *freezes.Table
	Clock   timer.Clock
	Log     *slog.Logger
	// Timeout bounds calls to sentries that are to end: what one that hangs does not give
	// back goes when it ends.
	Timeout  time.Duration
	Listener Listener
}

// Registry holds the sandboxes. It is safe for concurrent use.
type Registry struct {
	// Names is the names of the sandboxes.
	Names Names
	// Events is what happened to the sandboxes.
	Events *EventLog

	store    *store.Store
	freezes  *freezes.Table
	clock    timer.Clock
	log      *slog.Logger
	timeout  time.Duration
	listener Listener

	mu   sync.Mutex
	byID map[string]*Instance

	watchers sync.WaitGroup
	closing  chan struct{} // closed by Close: sentries are left alone
}

// NewRegistry returns a registry without sandboxes.
func NewRegistry(c Config) *Registry {
	r := &Registry{
		store: c.Store, freezes: c.Freezes, clock: c.Clock, log: c.Log, timeout: c.Timeout, listener: c.Listener,
		byID: map[string]*Instance{}, closing: make(chan struct{}),
	}
	r.Names.ids = map[owned]string{}
	r.Events = &EventLog{r, events.New(keptEvents)}
	return r
}

// Close leaves the sentries alone, which run on.
func (r *Registry) Close() { close(r.closing) }

// Wait waits until no sentry is watched any more, after Close.
func (r *Registry) Wait() { r.watchers.Wait() }

// Find returns the sandbox that the caller calls ref, an id or a name.
func (r *Registry) Find(ctx context.Context, ref string) (*Instance, error) {
	if err := api.ValidRef(api.KindSandbox, "id", ref); err != nil {
		return nil, err
	}
	caller := access.From(ctx)
	if err := caller.Known(); err != nil {
		return nil, err
	}
	id := r.Names.id(caller.Tenant, ref)
	b := r.Get(id)
	if b == nil || !visibility.Found(ctx, id, b) {
		return nil, api.NotFound("sandbox", ref)
	}
	return b, nil
}

// Get returns the sandbox called id, whoever sees it, or nil.
func (r *Registry) Get(id string) *Instance {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.byID[id]
}

// All returns all sandboxes, whoever sees them.
func (r *Registry) All() []*Instance {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Values(r.byID))
}

// Visible returns the sandboxes that the caller sees.
func (r *Registry) Visible(ctx context.Context) []*Instance { return visibility.Of(ctx, r.All()) }

// OldestFirst sorts sandboxes, without the descriptions of all of them.
func OldestFirst(list []*Instance) []*Instance {
	type place struct {
		at time.Time
		b  *Instance
	}
	order := make([]place, len(list))
	for i, b := range list {
		b.mu.Lock()
		order[i] = place{b.rec.Sandbox.CreatedAt, b}
		b.mu.Unlock()
	}
	slices.SortFunc(order, func(a, b place) int { return a.at.Compare(b.at) })
	for i, p := range order {
		list[i] = p.b
	}
	return list
}

// In returns the sandbox that runs in s, or nil.
func (r *Registry) In(s *launch.Sentry) *Instance {
	for _, b := range r.All() {
		if b.Sentry() == s {
			return b
		}
	}
	return nil
}

// InUse reports whether a sandbox runs in s. One that was removed or replaced is
// about to end, if it has not, and all its memory goes with it.
func (r *Registry) InUse(s *launch.Sentry) bool {
	select {
	case <-s.Done():
		return false
	default:
	}
	return r.In(s) != nil
}

// Keeps reports whether a sandbox may return to a private snapshot by itself.
func (r *Registry) Keeps(sandbox, snapshot string) bool {
	b := r.Get(sandbox)
	if b == nil {
		return false
	}
	rec := b.Record()
	return rec.Hibernation == snapshot || rec.Base == snapshot || b.Timeline.Has(snapshot)
}

// Gone reports whether b was destroyed.
func (r *Registry) Gone(b *Instance) bool { return r.Get(b.ID) != b }

// Explain turns err, of a call to s that kept nobody from ending the sandbox's
// sentry meanwhile, into one that says so if that is what happened.
func (r *Registry) Explain(b *Instance, s *launch.Sentry, err error) error {
	if api.CodeOf(err) != api.CodeSandboxDied {
		return err
	}
	removed := r.Gone(b)
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case removed:
		return api.Errorf(api.CodeSandboxDied, "sandbox %s was removed meanwhile", b.ID)
	case b.rec.Sandbox.State == api.StateHibernated:
		return api.Errorf(api.CodeSandboxDied, "sandbox %s was hibernated meanwhile", b.ID)
	case b.sentry != nil && b.sentry != s:
		return api.Errorf(api.CodeSandboxDied, "sandbox %s was given another state meanwhile, by a rollback or a promotion", b.ID)
	}
	return err
}
