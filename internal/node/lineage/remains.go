package lineage

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"sync"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/node/sandboxes"
	"ramet.dev/ramet/internal/node/selfcontrol"
	"ramet.dev/ramet/internal/node/snapshots"
	"ramet.dev/ramet/internal/storage/store"
)

// goneRecord is kept of a sandbox or a snapshot that is gone, as long as a descendant lives:
// it has the names that people gave it.
type goneRecord struct {
	Name  string `json:"name,omitempty"`
	Label string `json:"label,omitempty"`
}

// Remains keeps the names and budgets that outlive sandboxes and snapshots, as long as
// descendants live. It is safe for concurrent use.
type Remains struct {
	sandboxes *sandboxes.Registry
	snapshots *snapshots.Set
	budgets   *selfcontrol.Budgets
	store     *store.Store
	log       *slog.Logger

	mu   sync.Mutex
	gone map[string]goneRecord // names of gone sandboxes and snapshots that have living descendants, by id
}

// NewRemains returns the remains of what was in registry and set.
func NewRemains(registry *sandboxes.Registry, set *snapshots.Set, budgets *selfcontrol.Budgets, records *store.Store, log *slog.Logger) *Remains {
	return &Remains{sandboxes: registry, snapshots: set, budgets: budgets, store: records, log: log, gone: map[string]goneRecord{}}
}

// SandboxGone is called when a sandbox is not listed any more. It returns the changes to be
// stored.
func (r *Remains) SandboxGone(b *sandboxes.Instance) []store.Change {
	return r.note(b.Lineage(), goneRecord{Name: b.View().Name})
}

// SnapshotGone is called when a snapshot is gone. It returns the changes to be stored.
func (r *Remains) SnapshotGone(rec *snapshots.Record) []store.Change {
	return r.note(rec.Lineage(), goneRecord{Name: rec.Snapshot.Name, Label: rec.Label})
}

// note is called when the last of line is gone. It keeps the name of that if something
// lives that descends from it, forgets those names of line that nothing needs any more, and
// returns the changes to be stored.
func (r *Remains) note(line []string, called goneRecord) (changes []store.Change) {
	needed := r.needed(line)
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, id := range line {
		_, kept := r.gone[id]
		switch {
		case i == len(line)-1 && needed[id] && called != goneRecord{}:
			r.gone[id] = called
			changes = append(changes, store.Change{Table: store.Gone, ID: id, Doc: called})
		case kept && !needed[id]:
			delete(r.gone, id)
			changes = append(changes, store.Change{Table: store.Gone, ID: id})
		}
	}
	return changes
}

// needed returns those of ids from which something descends that lives.
func (r *Remains) needed(ids []string) map[string]bool {
	of, needed := map[string]bool{}, map[string]bool{}
	for _, id := range ids {
		of[id] = true
	}
	note := func(line []string) {
		for _, id := range line {
			if of[id] {
				needed[id] = true
			}
		}
	}
	for _, b := range r.sandboxes.All() {
		note(b.Lineage())
	}
	for _, s := range r.snapshots.All() {
		note(s.Ancestors())
	}
	return needed
}

// names returns the names of gone sandboxes and snapshots, by id.
func (r *Remains) names() map[string]goneRecord {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.gone)
}

// ReadNames reads the names of gone sandboxes and snapshots, when all other records have
// been read, and returns the changes that forget the names without living descendants.
func (r *Remains) ReadNames(ctx context.Context) (changes []store.Change, err error) {
	err = r.store.Each(ctx, store.Gone, func(id string, doc []byte) error {
		var g goneRecord
		if err := json.Unmarshal(doc, &g); err != nil {
			return api.Errorf(api.CodeCorrupt, "record of the name of %s, which is gone: %w", id, err)
		}
		r.gone[id] = g
		return nil
	})
	ids := make([]string, 0, len(r.gone))
	for id := range r.gone {
		ids = append(ids, id)
	}
	needed := r.needed(ids)
	for _, id := range ids {
		if !needed[id] {
			delete(r.gone, id)
			changes = append(changes, store.Change{Table: store.Gone, ID: id})
		}
	}
	return changes, err
}

// Grant adds the budget of a sandbox that is to control itself, and returns what is to be
// stored.
func (r *Remains) Grant(rec *sandboxes.Record) []store.Change {
	if rec.Control == nil {
		return nil
	}
	return []store.Change{r.budgets.Grant(rec.Control.Budget, rec.Sandbox.SelfControl)}
}

// DropBudget removes the budget of a grant, which may be nil, if no sandbox and no
// snapshot has it any more.
func (r *Remains) DropBudget(g *selfcontrol.Grant) {
	if g == nil || r.budgetsHad()[g.Budget] {
		return
	}
	if err := r.store.Apply(context.Background(), r.budgets.Drop(g.Budget)); err != nil {
		r.log.Warn("forget a budget", "budget", g.Budget, "error", err) // the next start does
	}
}

// budgetsHad returns the budgets that a sandbox or a snapshot has.
func (r *Remains) budgetsHad() map[string]bool {
	had := map[string]bool{}
	for _, s := range r.snapshots.All() {
		if control := s.Control(); control != nil {
			had[control.Budget] = true
		}
	}
	for _, b := range r.sandboxes.All() {
		if control := b.Record().Control; control != nil {
			had[control.Budget] = true
		}
	}
	return had
}

// ReadBudgets reads the budgets that a sandbox or snapshot still has after all else was
// read, and returns the changes that forget others.
func (r *Remains) ReadBudgets(ctx context.Context) (changes []store.Change, err error) {
	had := r.budgetsHad()
	err = r.store.Each(ctx, store.Grants, func(id string, doc []byte) error {
		if !had[id] {
			changes = append(changes, store.Change{Table: store.Grants, ID: id})
			return nil
		}
		if err := r.budgets.Load(id, doc); err != nil {
			return api.Errorf(api.CodeCorrupt, "record of grant %s: %w", id, err)
		}
		return nil
	})
	return changes, err
}
