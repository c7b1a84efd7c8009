package node

import (
	"context"
	"slices"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/snapfile"
)

// forkPoint is a moment in the history of files: what a sentry had when it was frozen,
// or has now. A history is the points at which one sentry's state became another's,
// from the sandbox that was created on. Ids of sandboxes would not do: a rollback
// or a promotion gives a sandbox the history of another.
type forkPoint struct {
	Freeze string `json:"freeze"` // id; empty for now
	Line   string `json:"line"`   // the sentry's key
	// Seq orders the points of one line.
	Seq int64 `json:"seq"`
}

// follow returns the history of what comes next after f, which is nil for a
// sandbox that was created. It is nil if that of f is not known.
func (f *freeze) follow(next forkPoint) []forkPoint {
	if f == nil {
		return []forkPoint{next}
	}
	if f.history == nil {
		return nil
	}
	return append(slices.Clone(f.history), next)
}

// mergeBase returns the last point that two histories have in common. ok is false if
// that is the image. No history is empty, and at most one of them goes on to now on
// one line.
func mergeBase(a, b []forkPoint) (p forkPoint, ok bool) {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	if n < len(a) && n < len(b) && a[n].Line == b[n].Line {
		if a[n].Seq < b[n].Seq {
			return a[n], true
		}
		return b[n], true
	}
	if n == 0 {
		return forkPoint{}, false
	}
	return a[n-1], true
}

// base returns the files at the moment at which two parted. Its id is that of a
// snapshot or freeze, or the image's.
func (m *Node) base(ctx context.Context, a, b *fsView) (*fsView, error) {
	if a.image != b.image {
		return nil, api.Errorf(api.CodeConflict, "%s and %s are of different images", a.id, b.id)
	}
	if a.history == nil || b.history == nil {
		return nil, api.Errorf(api.CodeConflict, "it is not known when %s and %s parted: they were forked by an earlier version of Ramet", a.id, b.id)
	}
	p, ok := mergeBase(a.history, b.history)
	if !ok {
		mo := &fsView{id: a.image, image: a.image}
		if err := m.openFiles(mo, &snapfile.Files{}, nil); err != nil {
			mo.close()
			return nil, err
		}
		return mo, nil
	}
	m.mu.Lock()
	f, s := m.freezes[p.Freeze], m.snaps[p.Freeze]
	if f != nil {
		f.refs++
	}
	m.mu.Unlock()
	if f != nil && len(f.files.Segments) > 0 {
		return m.viewFreeze(f, a.image)
	}
	m.drop(f)
	if s != nil && s.view().State == api.SnapshotReady {
		return m.viewSnapshot(ctx, s)
	}
	return nil, api.Errorf(api.CodeConflict, "the files from which %s and %s went different ways are gone: they are kept as long as a sandbox or a snapshot in memory "+
		"that was made from them, or they themselves as a snapshot; a snapshot on disk keeps only its own", a.id, b.id)
}

// viewFreeze returns the files of f, on which it takes over a reference.
func (m *Node) viewFreeze(f *freeze, image string) (*fsView, error) {
	mo := &fsView{id: f.id, image: image, undo: []func(){func() { m.drop(f) }}}
	names := f.generations
	if names == nil {
		names = f.fileNames
	}
	files, names := onlyFiles(&f.files, names)
	if err := m.openFiles(mo, &files, names); err != nil {
		mo.close()
		return nil, err
	}
	return mo, nil
}

// onlyFiles leaves out generations that have no files.
func onlyFiles(files *snapfile.Files, gens []string) (snapfile.Files, []string) {
	out := snapfile.Files{Root: files.Root, Segments: slices.Clone(files.Segments)}
	var names []string
	for i := range out.Segments {
		s := &out.Segments[i]
		n := slices.Index(names, gens[s.Gen])
		if n < 0 {
			n = len(names)
			names = append(names, gens[s.Gen])
		}
		s.Gen = uint32(n)
	}
	return out, names
}
