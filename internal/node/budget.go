package node

import (
	"context"
	"encoding/json"
	"slices"
	"sync"

	"golang.org/x/time/rate"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/storage/store"
)

// controlGrant is what is stored of a sandbox's right to control itself. It is never
// changed in place: records share it.
type controlGrant struct {
	// Grant is the budget, which the sandbox has in common with all that
	// descend from the one that it was granted to.
	Grant string `json:"grant"`
	// Made says that its parent asked for it, by itself.
	Made bool `json:"made,omitempty"`
	// Snapshots are those that it, or an ancestor before it parted from that,
	// asked for by itself, oldest first. It may return to them.
	Snapshots []string `json:"snapshots,omitempty"`
	// Tags are the keys of metadata that it or an ancestor set by itself, and so
	// may change.
	Tags []string `json:"tags,omitempty"`
}

// inherited returns the right of what is made from a sandbox with the right r.
func (r *controlGrant) inherited(made bool) *controlGrant {
	if r == nil {
		return nil
	}
	out := *r
	out.Made = made
	return &out
}

// retagged returns the right after keys of metadata were changed: by the sandbox,
// which may change those again that it set, or from outside.
func (r *controlGrant) retagged(change map[string]*string, byItself bool) *controlGrant {
	if r == nil {
		return nil
	}
	out := *r
	out.Tags = slices.DeleteFunc(slices.Clone(r.Tags), func(k string) bool { _, changed := change[k]; return changed })
	if byItself {
		for k, v := range change {
			if v != nil {
				out.Tags = append(out.Tags, k)
			}
		}
	}
	return &out
}

// additions returns the change that sets all of metadata.
func additions(metadata map[string]string) map[string]*string {
	change := map[string]*string{}
	for k, v := range metadata {
		change[k] = &v
	}
	return change
}

// mayChange refuses keys that were set from outside: who set them relies on them.
func (r *controlGrant) mayChange(metadata map[string]string, change map[string]*string) error {
	for k := range change {
		if _, set := metadata[k]; set && !slices.Contains(r.Tags, k) {
			return api.Errorf(api.CodeConflict, "metadata %s was set from outside, and only can be changed there", k)
		}
	}
	return nil
}

// budgetRecord is what is stored of a grant.
type budgetRecord struct {
	Forks         int `json:"forks"`
	Snapshots     int `json:"snapshots"`
	UsedForks     int `json:"used_forks"`
	UsedSnapshots int `json:"used_snapshots"`
}

// budget is a budget that a tree of sandboxes shares.
type budget struct {
	id string
	// Requests of one tree: so many at once, and at this pace. A guest must not
	// occupy the daemon.
	slots chan struct{}
	pace  *rate.Limiter

	mu  sync.Mutex
	rec budgetRecord
	// For what is being made.
	reservedForks, reservedSnapshots int
}

const (
	// A request costs one, and one that makes sentries or reads trees of files
	// costs more.
	requestsPerSecond = 20
	requestBurst      = 80
	costlyRequest     = 4
	requestsAtOnce    = 4
)

func newBudget(id string, rec budgetRecord) *budget {
	return &budget{id: id, rec: rec, slots: make(chan struct{}, requestsAtOnce), pace: rate.NewLimiter(requestsPerSecond, requestBurst)}
}

// reserve sets part of the budget aside until done is called, so that requests of
// several relatives together cannot exceed it.
func (g *budget) reserve(forks, snapshots int) (done func(), err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	used, kept := g.rec.UsedForks+g.reservedForks, g.rec.UsedSnapshots+g.reservedSnapshots
	switch {
	case used+forks > g.rec.Forks:
		return nil, api.Errorf(api.CodeLimit, "forks: %d of %d that this sandbox and its relatives may make are used, and %d more were asked for", used, g.rec.Forks, forks)
	case kept+snapshots > g.rec.Snapshots:
		return nil, api.Errorf(api.CodeLimit, "snapshots: %d of %d that this sandbox and its relatives may make are used", kept, g.rec.Snapshots)
	}
	g.reservedForks += forks
	g.reservedSnapshots += snapshots
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.reservedForks -= forks
		g.reservedSnapshots -= snapshots
	}, nil
}

// spend uses up part of the budget that was reserved, if commit succeeds. It
// records the change that it is given in one transaction with what was made, so
// that a daemon that dies leaves both or neither.
func (g *budget) spend(forks, snapshots int, commit func(store.Change) error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	rec := g.rec
	rec.UsedForks += forks
	rec.UsedSnapshots += snapshots
	if err := commit(store.Change{Table: store.Grants, ID: g.id, Doc: rec}); err != nil {
		return err
	}
	g.rec = rec
	return nil
}

func (g *budget) used() budgetRecord {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.rec
}

func (m *Node) budget(id string) *budget {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.budgets[id]
}

// forget drops the grant of r, which may be nil, if nothing has it any more.
func (m *Node) forget(r *controlGrant) {
	if r == nil {
		return
	}
	for _, s := range m.allSnapshots() {
		if s.rec.Control != nil && s.rec.Control.Grant == r.Grant {
			return
		}
	}
	for _, b := range m.all() {
		b.mu.Lock()
		has := b.rec.Control != nil && b.rec.Control.Grant == r.Grant
		b.mu.Unlock()
		if has {
			return
		}
	}
	m.mu.Lock()
	delete(m.budgets, r.Grant)
	m.mu.Unlock()
	if err := m.store.Apply(context.Background(), store.Change{Table: store.Grants, ID: r.Grant}); err != nil {
		m.log.Warn("forget a budget", "grant", r.Grant, "error", err) // the next start does
	}
}

// Bounds of what a sandbox may be allowed to do by itself.
const (
	maxSelfForks     = 1000
	maxSelfDepth     = 32
	maxSelfSnapshots = 100
)

func validSelfControl(c *api.SelfControl) error {
	switch {
	case c == nil:
		return nil
	case c.Forks < 1 || c.Forks > maxSelfForks:
		return api.Invalid("self_control.forks", "%d is not from 1 to %d", c.Forks, maxSelfForks)
	case c.Depth < 1 || c.Depth > maxSelfDepth:
		return api.Invalid("self_control.depth", "%d is not from 1 to %d", c.Depth, maxSelfDepth)
	case c.Snapshots < 0 || c.Snapshots > maxSelfSnapshots:
		return api.Invalid("self_control.snapshots", "%d is not from 0 to %d", c.Snapshots, maxSelfSnapshots)
	}
	return nil
}

// readGrants reads the budgets that something still has, and forgets others. It
// comes after all else was read.
func (r *recovery) readGrants() error {
	var had []string
	for _, b := range r.m.instances {
		if b.rec.Control != nil {
			had = append(had, b.rec.Control.Grant)
		}
	}
	for _, s := range r.m.snaps {
		if s.rec.Control != nil {
			had = append(had, s.rec.Control.Grant)
		}
	}
	return r.m.store.Each(r.ctx, store.Grants, func(id string, doc []byte) error {
		if !slices.Contains(had, id) {
			r.changes = append(r.changes, store.Change{Table: store.Grants, ID: id})
			return nil
		}
		var rec budgetRecord
		if err := json.Unmarshal(doc, &rec); err != nil {
			return corrupt("grant", id, err)
		}
		r.m.budgets[id] = newBudget(id, rec)
		return nil
	})
}
