package node

import (
	"context"
	"errors"
	"os"
	"slices"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/launch"
	"ramet.dev/ramet/internal/engine/snapfile"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/node/fsview"
	"ramet.dev/ramet/internal/node/memfiles"
	"ramet.dev/ramet/internal/node/snapdir"
	"ramet.dev/ramet/internal/storage/store"
)

// freezeRecord is what is stored of a freeze that boxes depend on: a new daemon
// needs it to know which pins to keep.
type freezeRecord struct {
	Source string `json:"source,omitempty"` // key of the pinned sentry; empty on disk
	Parent string `json:"parent,omitempty"` // freeze that the source came from
	// Generations are the memory files that its children map, in their order:
	// the children's sentries are not asked. nil in records of versions that did
	// not keep them.
	Generations []memfiles.Record `json:"generations"`
	// Files says where in Generations the files are, for comparing.
	Files   snapfile.Files     `json:"files,omitzero"`
	History []fsview.ForkPoint `json:"history,omitempty"`
}

// freeze is a moment of a sandbox, see the package comment. All but refs is
// immutable once it can be restored from.
type freeze struct {
	id     string
	source *launch.Sentry // nil for one that is on disk
	parent *freeze
	// generations are the memory files that the state refers to; a freeze
	// holds a reference on each.
	generations []string
	// files says where in generations the files are.
	files snapfile.Files
	// fileNames are the generations that files counts, where generations is nil: a
	// freeze of an earlier daemon that no living sandbox was made from.
	fileNames []string
	// history is what led here, the freeze itself the last; nil if an earlier
	// version kept none.
	history []fsview.ForkPoint
	// file is the snapshot file; nil after a restart of the daemon, when no
	// more children can be made unless it is a snapshot on disk that is opened.
	file *os.File
	// stamp is that of file, of a snapshot on disk, when it was compared with its digest.
	// Guarded by the snapshot's mu.
	stamp snapdir.Stamp

	refs int // guarded by Manager.mu
}

// recordOf returns the record of f, on whose generations the caller holds a
// reference.
func (m *Node) recordOf(f *freeze) freezeRecord {
	r := freezeRecord{Generations: m.memFiles.Records(f.generations), Files: f.files, History: f.history}
	if f.source != nil {
		r.Source = f.source.Key()
	}
	if f.parent != nil {
		r.Parent = f.parent.id
	}
	return r
}

// freezeBox freezes a running box, or one that is to rest from then on and may be
// paused. The caller holds box.op and owns a reference on the result.
func (m *Node) freezeBox(ctx context.Context, b *instance, rest bool) (*freeze, *wire.Frozen, error) {
	states := []api.State{api.StateRunning, api.StatePaused}
	if !rest {
		states = states[:1]
	}
	sentry, err := b.running(states...)
	if err != nil {
		return nil, nil, err
	}
	if err := m.canFreeze(b); err != nil {
		return nil, nil, err
	}
	file, err := launch.NewFile("snapshot")
	if err != nil {
		return nil, nil, err
	}
	// The id is a snapshot's: a freeze may become one.
	f := &freeze{id: api.NewID(api.KindSnapshot), source: sentry, file: file, parent: m.holdOrigin(b), refs: 1}
	frozen, err := m.freezeAs(ctx, f, rest)
	if err != nil {
		f.file.Close()
		m.drop(f.parent)
		return nil, nil, err
	}
	m.metric(FigurePause, frozen.PauseMS)
	f.history = f.parent.follow(fsview.ForkPoint{Freeze: f.id, Line: sentry.Key(), Seq: frozen.Seq})
	m.mu.Lock()
	defer m.mu.Unlock()
	m.freezes[f.id] = f
	return f, frozen, nil
}

// holdOrigin returns the freeze that b was made from, if any. The caller owns a
// reference: should b end in the middle of being frozen, the pages it inherited
// must stay as they are.
func (m *Node) holdOrigin(b *instance) *freeze {
	m.mu.Lock()
	defer m.mu.Unlock()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.freeze != nil {
		b.freeze.refs++
	}
	return b.freeze
}

// freezeAs has the source of f make its snapshot file, and takes references on
// the generations.
func (m *Node) freezeAs(ctx context.Context, f *freeze, rest bool) (*wire.Frozen, error) {
	key := f.source.Key()
	if err := m.memFiles.Add(key, f.source.Memory()); err != nil {
		return nil, deathOf(f.source, err)
	}
	defer m.memFiles.Release(key) // the list has it, if any page is in it
	if err := m.memFiles.Add(f.source.FilesName(), f.source.Files()); err != nil {
		return nil, deathOf(f.source, err)
	}
	defer m.memFiles.Release(f.source.FilesName())
	var frozen wire.Frozen
	ctx, cancel := context.WithTimeoutCause(ctx, m.patience, api.Errorf(api.CodeTimeout, "the sandbox was not frozen within %v", m.patience))
	defer cancel()
	_, err := f.source.Call(ctx, &wire.Call{Op: wire.OpFreeze, Freeze: &wire.Freeze{ID: f.id, Self: key, SelfFiles: f.source.FilesName(), Rest: rest}}, &frozen, f.file)
	if err == nil {
		var sealed *os.File
		if sealed, err = launch.Seal(f.file); err == nil {
			f.file = sealed
		}
	}
	if err == nil {
		err = f.checkGenerations(frozen.Generations)
	}
	if err == nil {
		if err = frozen.Files.Check(len(frozen.Generations)); err != nil {
			err = api.Errorf(api.CodeCorrupt, "the sandbox says where its files are: %w", err)
		}
	}
	if err == nil {
		err = m.memFiles.Acquire(frozen.Generations)
	}
	if err != nil {
		m.release(f) // it may have been frozen all the same
		return nil, err
	}
	f.generations, f.files = frozen.Generations, frozen.Files
	return &frozen, nil
}

// deathOf returns why s ended if err is that its files are closed, which happens
// then, and err else.
func deathOf(s *launch.Sentry, err error) error {
	if errors.Is(err, os.ErrClosed) {
		return s.End()
	}
	return err
}

// checkGenerations refuses memory that the source has no part in: a sentry that
// was taken over could ask for that of a stranger.
func (f *freeze) checkGenerations(names []string) error {
	for _, n := range names {
		if n != f.source.Key() && n != f.source.FilesName() && (f.parent == nil || !slices.Contains(f.parent.generations, n)) {
			return api.Errorf(api.CodeCorrupt, "the sandbox refers to memory %q, which is not of its ancestors", n)
		}
	}
	return nil
}

// maxGenerations is how many memory files a sandbox can be made of: the message
// that makes it has the snapshot file and the image as well.
const maxGenerations = wire.MaxFiles - 2

// childFiles returns the descriptors that a child of f is loaded from. Only the
// second, the image, is the caller's.
func (m *Node) childFiles(f *freeze, image string) ([]*os.File, error) {
	if n := len(f.generations); n > maxGenerations {
		return nil, api.Errorf(api.CodeLimit, "the sandbox is spread over %d files, its own and those of its ancestors, and one can be made of %d: "+
			"take a snapshot of it on disk and roll it back to that, or restore that, which makes them one", n, maxGenerations)
	}
	gens, err := m.memFiles.Files(f.generations)
	if err != nil {
		return nil, err
	}
	img, err := m.OpenImage(image)
	if err != nil {
		return nil, err
	}
	return append([]*os.File{f.file, img}, gens...), nil
}

// hold takes n references on f.
func (m *Node) hold(f *freeze, n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f.refs += n
}

// drop gives up a reference on f, which may be nil; with the last one the pages
// it pinned go back to the host.
func (m *Node) drop(f *freeze) {
	for f != nil {
		m.mu.Lock()
		f.refs--
		last := f.refs == 0
		if last {
			delete(m.freezes, f.id)
		}
		m.mu.Unlock()
		if !last {
			return
		}
		m.unpin(f)
		m.memFiles.Release(f.generations...)
		if f.file != nil {
			f.file.Close()
		}
		f = f.parent
	}
}

// unpin tells the source to let go. A source that has ended has no pins.
func (m *Node) unpin(f *freeze) {
	m.release(f)
	if err := m.store.Apply(context.Background(), store.Change{Table: store.Freezes, ID: f.id}); err != nil {
		m.log.Warn("forget freeze", "freeze", f.id, "error", err)
	}
}

// patience bounds calls that freeze, stop or clean up: a sentry that hangs must not
// keep its sandbox from being destroyed, nor others waiting. What it did not give back
// goes when it ends.
const patience = 30 * time.Second

// release has the source of f, if it still runs, drop the pins.
func (m *Node) release(f *freeze) {
	if f.source == nil {
		return
	}
	select {
	case <-f.source.Done():
		return
	default:
	}
	ctx, cancel := context.WithTimeout(context.Background(), m.patience)
	defer cancel()
	_, err := f.source.Call(ctx, &wire.Call{Op: wire.OpRelease, Release: &wire.Release{ID: f.id}}, nil)
	if err != nil && api.CodeOf(err) != api.CodeSandboxDied && m.inUse(f.source) {
		m.log.Warn("release frozen memory", "freeze", f.id, "error", err)
	}
}

// inUse reports whether a sandbox runs in s. One that was removed or replaced is
// about to end, if it has not, and all its memory goes with it.
func (m *Node) inUse(s *launch.Sentry) bool {
	select {
	case <-s.Done():
		return false
	default:
	}
	return slices.ContainsFunc(m.all(), func(b *instance) bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.sentry == s
	})
}

// follow returns the history of next, which comes after f. A nil f is the beginning of a
// created sandbox. The result is nil if the history of f is not known.
func (f *freeze) follow(next fsview.ForkPoint) []fsview.ForkPoint {
	if f == nil {
		return []fsview.ForkPoint{next}
	}
	if f.history == nil {
		return nil
	}
	return fsview.Extend(f.history, next)
}
