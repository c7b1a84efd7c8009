package sandboxes

import (
	"slices"
	"sync"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/launch"
	"ramet.dev/ramet/internal/node/freezes"
	"ramet.dev/ramet/internal/node/timeline"
	"ramet.dev/ramet/internal/service/access"
)

// Instance is a sandbox of this daemon. It is safe for concurrent use.
type Instance struct {
	ID string
	// Op is held for writing while the sandbox changes its sentry or ends, and for
	// reading by operations that need it to stay in its sentry.
	Op sync.RWMutex
	// Start is nil unless the sandbox was listed before it was made.
	Start *Start

	FreezeGroup freezes.Group // forks that come at the same time
	Writing     sync.Mutex    // held while a snapshot of it is written to disk, inside of Op
	Timeline    timeline.Log
	Birth       Birth

	mu       sync.Mutex
	rec      Record
	sentry   *launch.Sentry  // nil once it failed, and while it is hibernated
	freeze   *freezes.Freeze // what it was made from, with a reference; nil if it was created
	activity activity
}

// New returns the sandbox of a record, which runs in no sentry.
func New(rec Record) *Instance { return &Instance{ID: rec.Sandbox.ID, rec: rec} }

// View returns the sandbox as users see it, without its memory.
func (b *Instance) View() api.Sandbox {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.rec.Sandbox
}

// Record returns a copy of the record. What it refers to is never changed in place.
func (b *Instance) Record() Record {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.rec
}

// Tenant implements visibility.Thing.
func (b *Instance) Tenant() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.rec.Tenant()
}

// SeenBy implements visibility.Thing.
func (b *Instance) SeenBy(c access.Caller) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return c.Sees(b.rec.Tenant(), b.rec.Lineage())
}

// Lineage returns the ids of what the sandbox descends from, itself the last.
func (b *Instance) Lineage() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.rec.Lineage()
}

// Amend changes the record in memory. Whoever changes what is to outlive the daemon has
// stored it before.
func (b *Instance) Amend(change func(*Record)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change(&b.rec)
}

// Sentry returns the sentry that the sandbox runs in, or nil.
func (b *Instance) Sentry() *launch.Sentry {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.sentry
}

// Running returns the sandbox's sentry, or an error unless its state is one of ok.
func (b *Instance) Running(ok ...api.State) (*launch.Sentry, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := &b.rec.Sandbox
	if slices.Contains(ok, s.State) && b.sentry != nil {
		return b.sentry, nil
	}
	if s.State == api.StateFailed {
		return nil, errFailed(s)
	}
	remedy := ""
	switch s.State {
	case api.StateHibernated:
		remedy = ": wake it first"
	case api.StatePaused:
		remedy = ": resume it first"
	}
	return nil, api.Errorf(api.CodeWrongState, "sandbox %s is %s, not %s%s", b.ID, s.State, ok[0], remedy)
}

// Origin returns the freeze that the sandbox was made from, if any, and the sentry that it
// runs in. The caller then owns a reference on the freeze in t: should the sandbox end, the
// pages it inherited must stay as they are.
func (b *Instance) Origin(t *freezes.Table) (*freezes.Freeze, *launch.Sentry) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t.Hold(b.freeze, 1)
	return b.freeze, b.sentry
}

// Generations returns the memory files that the sandbox inherited.
func (b *Instance) Generations() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.freeze == nil {
		return nil
	}
	return b.freeze.Generations
}

// Take takes the sentry and the freeze from the sandbox, whose watcher then leaves them
// alone, and returns the record that they had.
func (b *Instance) Take() (Record, *launch.Sentry, *freezes.Freeze) {
	b.mu.Lock()
	defer b.mu.Unlock()
	sentry, f := b.sentry, b.freeze
	b.sentry, b.freeze = nil, nil
	return b.rec, sentry, f
}

// Give gives the sandbox a sentry and the reference on a freeze, which may be nil.
func (b *Instance) Give(sentry *launch.Sentry, f *freezes.Freeze) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sentry, b.freeze = sentry, f
}

// Replace makes the sandbox one of another record, sentry and freeze, and returns what it
// had. The record is stored.
func (b *Instance) Replace(rec Record, sentry *launch.Sentry, f *freezes.Freeze) (*launch.Sentry, *freezes.Freeze) {
	b.mu.Lock()
	defer b.mu.Unlock()
	was, origin := b.sentry, b.freeze
	b.rec, b.sentry, b.freeze = rec, sentry, f
	return was, origin
}

// ReplaceRecord makes rec, which is stored, the record of the sandbox if it still runs in
// sentry, and reports whether it does. The caller holds Op.
func (b *Instance) ReplaceRecord(sentry *launch.Sentry, rec Record) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.sentry != sentry {
		return false
	}
	b.rec = rec
	return true
}
