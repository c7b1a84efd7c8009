package snapshots

import (
	"context"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/node/freezes"
	"ramet.dev/ramet/internal/node/memfiles"
	"ramet.dev/ramet/internal/node/timer"
	"ramet.dev/ramet/internal/node/visibility"
	"ramet.dev/ramet/internal/service/access"
	"ramet.dev/ramet/internal/storage/paths"
	"ramet.dev/ramet/internal/storage/store"
)

// Config says where a set of snapshots is kept, and has the functions of the node that the
// set calls.
type Config struct {
	Paths    paths.Paths
	Store    *store.Store
	MemFiles *memfiles.Table
	Freezes  *freezes.Table
	Alarms   *timer.Queue // has the expiry of each snapshot, by id
	Log      *slog.Logger
	Engines  Engines
	// Keeps reports whether a sandbox may return to a private snapshot. It is called with
	// Set.mu held.
	Keeps func(sandbox, snapshot string) bool
	// Gone returns the changes to be stored when a snapshot is gone, besides its record.
	Gone func(*Record) []store.Change
	// Dropped is told of a snapshot that is gone from the records.
	Dropped func(*Record)
	// Panicked logs a panic that was recovered, and returns the error for the caller.
	Panicked func(doing string, v any) error
}

// Engines are what restores snapshots.
type Engines interface {
	// Knows reports whether an engine can be used.
	Knows(name string) bool
	// Keep has the engine of this daemon outlive it.
	Keep() error
}

// Set holds the snapshots of a node. It is safe for concurrent use.
type Set struct {
	paths    paths.Paths
	store    *store.Store
	memFiles *memfiles.Table
	freezes  *freezes.Table
	alarms   *timer.Queue
	log      *slog.Logger
	engines  Engines
	keeps    func(sandbox, snapshot string) bool
	gone     func(*Record) []store.Change
	dropped  func(*Record)
	panicked func(doing string, v any) error

	flattening sync.Mutex // held while a snapshot on disk is written anew

	mu    sync.Mutex
	byID  map[string]*Snapshot
	names map[owned]string // to ids
}

// owned is a name, which is one tenant's.
type owned struct{ tenant, name string }

// New returns a set without snapshots.
func New(c Config) *Set {
	return &Set{
		paths: c.Paths, store: c.Store, memFiles: c.MemFiles, freezes: c.Freezes, alarms: c.Alarms, log: c.Log, engines: c.Engines,
		keeps: c.Keeps, gone: c.Gone, dropped: c.Dropped, panicked: c.Panicked,
		byID: map[string]*Snapshot{}, names: map[owned]string{},
	}
}

// Add adds a snapshot that is being made, whose id and state are those of its freeze. The
// snapshot takes over a reference on the freeze.
func (t *Set) Add(f *freezes.Freeze, rec Record) (*Snapshot, error) {
	s := &Snapshot{ID: rec.Snapshot.ID, set: t, rec: rec, freeze: f}
	state := api.SnapshotUploading
	if !rec.Snapshot.OnDisk {
		state = api.SnapshotCreating
	}
	name := owned{rec.Tenant(), rec.Snapshot.Name}
	t.mu.Lock()
	defer t.mu.Unlock()
	if id, taken := t.names[name]; taken && t.byID[id].state != api.SnapshotFailed { // else that one loses it
		return nil, api.Errorf(api.CodeNameTaken, "a snapshot is called %q already", name.name)
	}
	if err := s.condition.become(s.ID, state, ""); err != nil {
		return nil, err
	}
	if name.name != "" {
		t.names[name] = s.ID
	}
	t.byID[s.ID] = s
	return s, nil
}

// freeName gives up the name of s, if it has one. The caller holds t.mu.
func (t *Set) freeName(s *Snapshot) {
	if name := (owned{s.rec.Tenant(), s.rec.Snapshot.Name}); t.names[name] == s.ID {
		delete(t.names, name)
	}
}

// removeFiles removes the directory of a snapshot. What stays is collected at the next
// start.
func (t *Set) removeFiles(id string) {
	if dir, err := t.paths.Snapshot(id); err == nil {
		os.RemoveAll(dir)
	}
}

// Get returns the snapshot called id, whoever sees it, or nil.
func (t *Set) Get(id string) *Snapshot {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.byID[id]
}

// All returns all snapshots, whoever sees them.
func (t *Set) All() []*Snapshot {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Values(t.byID))
}

// Visible returns the snapshots that the caller sees.
func (t *Set) Visible(ctx context.Context) []*Snapshot { return visibility.Of(ctx, t.All()) }

// Find returns the snapshot that ref, an id or a name, refers to.
func (t *Set) Find(ctx context.Context, ref string) (*Snapshot, error) {
	if err := api.ValidRef(api.KindSnapshot, "snapshot", ref); err != nil {
		return nil, err
	}
	caller := access.From(ctx)
	if err := caller.Known(); err != nil {
		return nil, err
	}
	t.mu.Lock()
	id := ref
	if named, ok := t.names[owned{caller.Tenant, ref}]; ok {
		id = named
	}
	s := t.byID[id]
	t.mu.Unlock()
	if s == nil || !visibility.Found(ctx, id, s) {
		return nil, api.NotFound("snapshot", ref)
	}
	return s, nil
}

// Count returns how many snapshots are in each state.
func (t *Set) Count() map[api.SnapshotState]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := map[api.SnapshotState]int{}
	for _, s := range t.byID {
		n[s.state]++
	}
	return n
}

// Arm sets when snapshots are to be deleted.
func (t *Set) Arm(list ...*Snapshot) {
	for _, s := range list {
		if v := s.View(); v.ExpiresAt != nil && v.State == api.SnapshotReady {
			t.alarms.Set(s.ID, *v.ExpiresAt)
		}
	}
}

// retain is called when a snapshot has become ready. It deletes the oldest snapshots of the
// tree, as many as exceed the number that the tree may keep. It counts and deletes only
// snapshots that are ready and have no name.
func (t *Set) retain(s *Snapshot) {
	rec := s.Record()
	life := rec.Source.Lifecycle
	if life == nil || life.KeepSnapshots == 0 || rec.Private != "" {
		return
	}
	var list []api.Snapshot
	for _, x := range t.All() {
		r := x.Record()
		if r.root() == rec.root() && r.Private == "" && r.Snapshot.Name == "" && r.Snapshot.State == api.SnapshotReady {
			list = append(list, r.Snapshot)
		}
	}
	slices.SortFunc(list, func(a, b api.Snapshot) int { return b.CreatedAt.Compare(a.CreatedAt) })
	for _, old := range list[min(life.KeepSnapshots, len(list)):] {
		t.Expire(old.ID)
	}
}

// Expire deletes a snapshot whose time is over. Its dependents lose nothing: its files stay
// as long as they are needed.
func (t *Set) Expire(id string) {
	t.mu.Lock()
	s := t.byID[id]
	due := s != nil && s.settled() && s.condition.become(id, api.SnapshotDeleted, "") == nil
	if due {
		t.freeName(s)
	}
	t.mu.Unlock()
	if !due {
		return
	}
	s.markDeleted()
	t.Collect()
}
