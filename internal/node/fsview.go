package node

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/launch"
	"ramet.dev/ramet/internal/engine/snapfile"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/node/freezes"
	"ramet.dev/ramet/internal/node/fsview"
	"ramet.dev/ramet/internal/node/snapdir"
	"ramet.dev/ramet/internal/node/snapshots"
	"ramet.dev/ramet/internal/storage/btree"
	"ramet.dev/ramet/internal/storage/pages"
)

// openView returns the files of the sandbox or snapshot that ref refers to. Of names
// that both have, the sandbox's counts.
func (m *Node) openView(ctx context.Context, ref string) (*fsview.View, error) {
	if !api.IsID(api.KindSnapshot, ref) {
		b, err := m.resolve(ctx, ref)
		if err == nil {
			if s := m.hibernated(b); s != nil {
				return m.viewHibernated(ctx, b, s)
			}
			return m.viewInstance(ctx, b)
		}
		if api.CodeOf(err) != api.CodeNotFound || api.IsID(api.KindSandbox, ref) {
			return nil, err
		}
		if _, err := m.snapshots.Find(ctx, ref); err != nil {
			return nil, api.NotFound("sandbox or snapshot", ref)
		}
	}
	s, err := m.snapshots.Find(ctx, ref)
	if err != nil {
		return nil, err
	}
	return m.viewSnapshot(ctx, s)
}

// viewInstance has the sentry keep the present files. The sandbox goes on.
func (m *Node) viewInstance(ctx context.Context, b *instance) (*fsview.View, error) {
	if err := b.made(ctx); err != nil {
		return nil, err
	}
	s, origin, err := m.holdRunning(b)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	view := &fsview.View{ID: b.id, Image: b.rec.Sandbox.Image, At: time.Now(), Lineage: append(slices.Clone(b.rec.Ancestors), b.id)}
	b.mu.Unlock()
	view.OnClose(func() { m.freezes.Drop(origin) })
	view.History = origin.Follow(fsview.ForkPoint{Line: s.Key(), Seq: math.MaxInt64})
	err = m.pinFiles(ctx, view, s, origin)
	if err != nil {
		view.Close()
		return nil, m.explain(b, s, err)
	}
	return view, nil
}

// holdRunning returns the sentry of b and the freeze that it was made from, if
// any, on which the caller then owns a reference.
func (m *Node) holdRunning(b *instance) (*launch.Sentry, *freezes.Freeze, error) {
	s, err := b.running(api.StateRunning, api.StatePaused)
	if err != nil {
		return nil, nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.sentry != s {
		return nil, nil, api.Errorf(api.CodeSandboxDied, "sandbox %s was given another state meanwhile", b.id)
	}
	m.freezes.Hold(b.freeze, 1)
	return s, b.freeze, nil
}

// pinFiles has the sentry s keep its present files for view, and opens them.
func (m *Node) pinFiles(ctx context.Context, view *fsview.View, s *launch.Sentry, origin *freezes.Freeze) error {
	name := s.FilesName()
	if err := m.memFiles.Add(name, s.Files()); err != nil {
		return err
	}
	view.OnClose(func() { m.memFiles.Release(name) })
	// As with a freeze's, a pin of this name is dropped by the next daemon.
	id := api.NewID(api.KindSnapshot)
	view.OnClose(func() { m.freezes.Unpin(s, id) })
	var v wire.Viewed
	if _, err := s.Call(ctx, &wire.Call{Op: wire.OpView, View: &wire.View{ID: id, SelfFiles: name}}, &v); err != nil {
		return err
	}
	if err := v.Files.Check(len(v.Generations)); err != nil {
		return api.Errorf(api.CodeCorrupt, "the sandbox says where its files are: %w", err)
	}
	if err := freezes.CheckGenerations(s, origin, v.Generations); err != nil {
		return err
	}
	view.Pin, view.Root = id, v.Files.Root
	return m.openFiles(view, &v.Files, v.Generations)
}

// viewSnapshot returns the files of s.
func (m *Node) viewSnapshot(ctx context.Context, s *snapshots.Snapshot) (*fsview.View, error) {
	f, err := s.Open(ctx)
	if err != nil {
		return nil, err
	}
	rec := s.Record()
	view := &fsview.View{ID: s.ID, Image: rec.Snapshot.Image, At: rec.Snapshot.CreatedAt, Lineage: rec.Lineage(), History: f.History}
	view.OnClose(func() { m.freezes.Drop(f) })
	if err := m.openFiles(view, &f.Files, f.Generations); err != nil {
		view.Close()
		return nil, err
	}
	return view, nil
}

// viewHibernated returns the files of b, which is on disk as s. It does not wake b.
func (m *Node) viewHibernated(ctx context.Context, b *instance, s *snapshots.Snapshot) (*fsview.View, error) {
	view, err := m.viewSnapshot(ctx, s)
	if err == nil {
		view.ID = b.id
	}
	return view, err
}

// openFiles opens the tree that files describes. gens names its generations.
func (m *Node) openFiles(view *fsview.View, files *snapfile.Files, gens []string) error {
	if err := m.memFiles.Acquire(gens); err != nil {
		return err
	}
	view.OnClose(func() { m.memFiles.Release(gens...) })
	open, err := m.memFiles.Files(gens)
	if err != nil {
		return err
	}
	segments := make([]pages.Segment, len(files.Segments))
	for i, s := range files.Segments {
		segments[i] = pages.Segment{Start: pages.Page(s.Start), End: pages.Page(s.End), File: open[s.Gen]}
	}
	image, err := m.OpenImage(view.Image)
	if err != nil {
		return err
	}
	defer image.Close()
	data, err := snapdir.MapFile(image)
	if err != nil {
		return fmt.Errorf("map image: %w", err)
	}
	view.OnClose(func() { _ = unix.Munmap(data) }) // its arguments are right
	return view.Open(btree.OpenView(segments, pages.Page(files.Root)), data)
}

// openMergeBase returns the files from which two views went different ways. The id of the
// result is that of a snapshot, a freeze or the image.
func (m *Node) openMergeBase(ctx context.Context, a, b *fsview.View) (*fsview.View, error) {
	if a.Image != b.Image {
		return nil, api.Errorf(api.CodeConflict, "%s and %s are of different images", a.ID, b.ID)
	}
	if a.History == nil || b.History == nil {
		return nil, api.Errorf(api.CodeConflict, "it is not known when %s and %s parted: they were forked by an earlier version of Ramet", a.ID, b.ID)
	}
	p, ok := fsview.MergeBase(a.History, b.History)
	if !ok {
		view := &fsview.View{ID: a.Image, Image: a.Image}
		if err := m.openFiles(view, &snapfile.Files{}, nil); err != nil {
			view.Close()
			return nil, err
		}
		return view, nil
	}
	s := m.snapshots.Get(p.Freeze)
	f := m.freezes.Lookup(p.Freeze)
	if f != nil && len(f.Files.Segments) > 0 {
		return m.viewFreeze(f, a.Image)
	}
	m.freezes.Drop(f)
	if s != nil && s.State() == api.SnapshotReady {
		return m.viewSnapshot(ctx, s)
	}
	return nil, api.Errorf(api.CodeConflict, "the files from which %s and %s went different ways are gone: they are kept as long as a sandbox or a snapshot in memory "+
		"that was made from them, or they themselves as a snapshot; a snapshot on disk keeps only its own", a.ID, b.ID)
}

// viewFreeze returns the files of f, on which it takes over a reference.
func (m *Node) viewFreeze(f *freezes.Freeze, image string) (*fsview.View, error) {
	view := &fsview.View{ID: f.ID, Image: image}
	view.OnClose(func() { m.freezes.Drop(f) })
	names := f.Generations
	if names == nil {
		names = f.FileNames
	}
	files, names := onlyFiles(&f.Files, names)
	if err := m.openFiles(view, &files, names); err != nil {
		view.Close()
		return nil, err
	}
	return view, nil
}

// onlyFiles returns files without the generations that none of their segments is in.
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
