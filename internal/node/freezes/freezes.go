package freezes

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/launch"
	"ramet.dev/ramet/internal/engine/snapfile"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/node/fsview"
	"ramet.dev/ramet/internal/node/memfiles"
	"ramet.dev/ramet/internal/storage/store"
)

// Freeze is a moment of a sandbox, see the package comment. All but its references is
// immutable once sandboxes can be made of it.
type Freeze struct {
	// ID is a snapshot's: a freeze may become a snapshot.
	ID string
	// Generations are the memory files that the state refers to. The freeze holds a
	// reference on each.
	Generations []string
	// Files says where in Generations the files are.
	Files snapfile.Files
	// FileNames are the generations that Files counts, where Generations is nil: a freeze
	// of an earlier daemon that no living sandbox was made from.
	FileNames []string
	// History is what led here, the freeze itself the last; nil if an earlier version
	// kept none.
	History []fsview.ForkPoint
	// Engine names what can load the state.
	Engine string
	// State is the snapshot file. It is nil after a restart of the daemon, when no more
	// children can be made unless the freeze is a snapshot on disk that is opened.
	State *os.File

	source *launch.Sentry // nil for a freeze that is on disk
	parent *Freeze        // the freeze that the source came from
	refs   int            // guarded by Table.mu
}

// Record is what is stored of a freeze that sandboxes depend on.
type Record struct {
	Source string `json:"source,omitempty"` // key of the pinned sentry; empty on disk
	Parent string `json:"parent,omitempty"` // freeze that the source came from
	// Generations are the memory files that its children map, in their order: the
	// children's sentries are not asked. nil in records of versions that did not keep
	// them.
	Generations []memfiles.Record `json:"generations"`
	// Files says where in Generations the files are, for comparing.
	Files   snapfile.Files     `json:"files,omitzero"`
	History []fsview.ForkPoint `json:"history,omitempty"`
}

// Follow returns the history of next, which comes after f. A nil f is the beginning of a
// created sandbox. The result is nil if the history of f is not known.
func (f *Freeze) Follow(next fsview.ForkPoint) []fsview.ForkPoint {
	if f == nil {
		return []fsview.ForkPoint{next}
	}
	if f.History == nil {
		return nil
	}
	return fsview.Extend(f.History, next)
}

// Table holds the freezes. It is safe for concurrent use.
type Table struct {
	memFiles *memfiles.Table
	store    *store.Store
	log      *slog.Logger
	timeout  time.Duration
	inUse    func(*launch.Sentry) bool

	mu      sync.Mutex
	freezes map[string]*Freeze
}

// New returns a table without freezes. timeout bounds calls to sentries: what a sentry
// that hangs does not give back goes when it ends. inUse reports whether a sandbox runs in
// a sentry.
func New(memFiles *memfiles.Table, records *store.Store, log *slog.Logger, timeout time.Duration, inUse func(*launch.Sentry) bool) *Table {
	return &Table{memFiles: memFiles, store: records, log: log, timeout: timeout, inUse: inUse, freezes: map[string]*Freeze{}}
}

// Freeze freezes the sandbox in source, which was made from origin, with rest for good.
// It takes over a reference on origin, which may be nil, and the caller owns a reference
// on the result.
func (t *Table) Freeze(ctx context.Context, source *launch.Sentry, origin *Freeze, rest bool) (*Freeze, *wire.Frozen, error) {
	f := &Freeze{ID: api.NewID(api.KindSnapshot), source: source, parent: origin, refs: 1}
	frozen, err := t.freeze(ctx, f, rest)
	if err != nil {
		if f.State != nil {
			f.State.Close()
		}
		t.Drop(origin)
		return nil, nil, err
	}
	f.History = origin.Follow(fsview.ForkPoint{Freeze: f.ID, Line: source.Key(), Seq: frozen.Seq})
	t.mu.Lock()
	defer t.mu.Unlock()
	t.freezes[f.ID] = f
	return f, frozen, nil
}

// freeze has the source of f make its snapshot file, and takes references on the
// generations.
func (t *Table) freeze(ctx context.Context, f *Freeze, rest bool) (*wire.Frozen, error) {
	file, err := launch.NewFile("snapshot")
	if err != nil {
		return nil, err
	}
	f.State = file
	key := f.source.Key()
	if err := t.memFiles.Add(key, f.source.Memory()); err != nil {
		return nil, deathOf(f.source, err)
	}
	defer t.memFiles.Release(key) // the list has it, if any page is in it
	if err := t.memFiles.Add(f.source.FilesName(), f.source.Files()); err != nil {
		return nil, deathOf(f.source, err)
	}
	defer t.memFiles.Release(f.source.FilesName())
	var frozen wire.Frozen
	ctx, cancel := context.WithTimeoutCause(ctx, t.timeout, api.Errorf(api.CodeTimeout, "the sandbox was not frozen within %v", t.timeout))
	defer cancel()
	_, err = f.source.Call(ctx, &wire.Call{Op: wire.OpFreeze, Freeze: &wire.Freeze{ID: f.ID, Self: key, SelfFiles: f.source.FilesName(), Rest: rest}}, &frozen, f.State)
	if err == nil {
		var sealed *os.File
		if sealed, err = launch.Seal(f.State); err == nil {
			f.State = sealed
		}
	}
	if err == nil {
		err = CheckGenerations(f.source, f.parent, frozen.Generations)
	}
	if err == nil {
		if err = frozen.Files.Check(len(frozen.Generations)); err != nil {
			err = api.Errorf(api.CodeCorrupt, "the sandbox says where its files are: %w", err)
		}
	}
	if err == nil {
		err = t.memFiles.Acquire(frozen.Generations)
	}
	if err != nil {
		t.Unpin(f.source, f.ID) // it may have been frozen all the same
		return nil, err
	}
	f.Generations, f.Files = frozen.Generations, frozen.Files
	return &frozen, nil
}

// deathOf returns why s ended if err is that its files are closed, which happens then.
// Any other err is returned as it is.
func deathOf(s *launch.Sentry, err error) error {
	if errors.Is(err, os.ErrClosed) {
		return s.End()
	}
	return err
}

// CheckGenerations refuses memory that source, which was made from origin, has no part
// in: a sentry that was taken over could ask for the memory of a stranger.
func CheckGenerations(source *launch.Sentry, origin *Freeze, names []string) error {
	for _, n := range names {
		if n != source.Key() && n != source.FilesName() && (origin == nil || !slices.Contains(origin.Generations, n)) {
			return api.Errorf(api.CodeCorrupt, "the sandbox refers to memory %q, which is not of its ancestors", n)
		}
	}
	return nil
}

// Opened adds a freeze of a snapshot on disk whose state is open, and returns it. The
// table takes over a reference on each generation, and the caller owns one on the result.
// The freeze gets another id if there is one of that id: sandboxes were restored from the
// snapshot when it was in memory, or of another version.
func (t *Table) Opened(f Freeze) *Freeze {
	f.refs = 1
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.freezes[f.ID] != nil {
		f.ID = api.NewID(api.KindSnapshot)
	}
	t.freezes[f.ID] = &f
	return &f
}

// Reopen gives f, which an earlier daemon made sandboxes from, the open state of its
// snapshot. The generations are the same, and the caller keeps its references on them.
func (f *Freeze) Reopen(opened Freeze) { f.State, f.Files = opened.State, opened.Files }

// Hold takes n references on f, which may be nil. The caller holds one, or keeps its
// owner from dropping one.
func (t *Table) Hold(f *Freeze, n int) {
	if f == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	f.refs += n
}

// Lookup returns the freeze called id, on which the caller owns a reference, or nil.
func (t *Table) Lookup(id string) *Freeze {
	t.mu.Lock()
	defer t.mu.Unlock()
	f := t.freezes[id]
	if f != nil {
		f.refs++
	}
	return f
}

// Drop gives up a reference on f, which may be nil; with the last one the pages that f
// pinned go back to the host.
func (t *Table) Drop(f *Freeze) {
	for f != nil {
		t.mu.Lock()
		f.refs--
		last := f.refs == 0
		if last {
			delete(t.freezes, f.ID)
		}
		t.mu.Unlock()
		if !last {
			return
		}
		if f.source != nil {
			t.Unpin(f.source, f.ID)
		}
		if err := t.store.Apply(context.Background(), store.Change{Table: store.Freezes, ID: f.ID}); err != nil {
			t.log.Warn("forget freeze", "freeze", f.ID, "error", err)
		}
		t.memFiles.Release(f.Generations...)
		if f.State != nil {
			f.State.Close()
		}
		f = f.parent
	}
}

// Unpin has source drop the pins of the freeze or view called id. A source that has
// ended has no pins.
func (t *Table) Unpin(source *launch.Sentry, id string) {
	select {
	case <-source.Done():
		return
	default:
	}
	ctx, cancel := context.WithTimeout(context.Background(), t.timeout)
	defer cancel()
	_, err := source.Call(ctx, &wire.Call{Op: wire.OpRelease, Release: &wire.Release{ID: id}}, nil)
	if err != nil && api.CodeOf(err) != api.CodeSandboxDied && t.inUse(source) {
		t.log.Warn("release frozen memory", "freeze", id, "error", err)
	}
}

// Stored returns the change that stores the record of f, on which the caller holds a
// reference.
func (t *Table) Stored(f *Freeze) store.Change {
	r := Record{Generations: t.memFiles.Records(f.Generations), Files: f.Files, History: f.History}
	if f.source != nil {
		r.Source = f.source.Key()
	}
	if f.parent != nil {
		r.Parent = f.parent.ID
	}
	return store.Change{Table: store.Freezes, ID: f.ID, Doc: r}
}

// maxGenerations is how many memory files a sandbox can be made of: the message that
// makes it has the snapshot file and the image as well.
const maxGenerations = wire.MaxFiles - 2

// OpenFiles returns the memory files that a sandbox made of f maps. They are the table's.
func (t *Table) OpenFiles(f *Freeze) ([]*os.File, error) {
	if n := len(f.Generations); n > maxGenerations {
		return nil, api.Errorf(api.CodeLimit, "the sandbox is spread over %d files, its own and those of its ancestors, and one can be made of %d: "+
			"take a snapshot of it on disk and roll it back to that, or restore that, which makes them one", n, maxGenerations)
	}
	return t.memFiles.Files(f.Generations)
}

// DependsOn reports whether a freeze has memory of s.
func (t *Table) DependsOn(s *launch.Sentry) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, f := range t.freezes {
		if f.source == s {
			return true
		}
	}
	return false
}

// Pinned returns how many freezes pin memory of a sentry.
func (t *Table) Pinned() (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, f := range t.freezes {
		if f.source != nil {
			n++
		}
	}
	return n
}
