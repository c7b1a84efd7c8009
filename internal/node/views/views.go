package views

import (
	"context"
	"fmt"
	"math"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/launch"
	"ramet.dev/ramet/internal/engine/snapfile"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/node/freezes"
	"ramet.dev/ramet/internal/node/fsview"
	"ramet.dev/ramet/internal/node/memfiles"
	"ramet.dev/ramet/internal/node/sandboxes"
	"ramet.dev/ramet/internal/node/snapdir"
	"ramet.dev/ramet/internal/node/snapshots"
	"ramet.dev/ramet/internal/storage/btree"
	"ramet.dev/ramet/internal/storage/pages"
)

// Config is what Views work with.
type Config struct {
	Sandboxes *sandboxes.Registry
	Snapshots *snapshots.Set
	Freezes   *freezes.Table
	MemFiles  *memfiles.Table
	Images    Images
}

// Images opens images.
type Images interface {
	OpenImage(id string) (*os.File, error)
}

// Views opens views. It is safe for concurrent use.
type Views struct{ cfg Config }

// New returns what opens views.
func New(cfg Config) *Views { return &Views{cfg} }

// Open returns the files of the sandbox or snapshot that ref refers to. Of names
// that both have, the sandbox's counts.
func (v *Views) Open(ctx context.Context, ref string) (*fsview.View, error) {
	if !api.IsID(api.KindSnapshot, ref) {
		b, err := v.cfg.Sandboxes.Find(ctx, ref)
		if err == nil {
			if s := v.cfg.Snapshots.Get(b.Record().Hibernation); s != nil {
				return v.ofHibernated(ctx, b, s)
			}
			return v.OfSandbox(ctx, b)
		}
		if api.CodeOf(err) != api.CodeNotFound || api.IsID(api.KindSandbox, ref) {
			return nil, err
		}
		if _, err := v.cfg.Snapshots.Find(ctx, ref); err != nil {
			return nil, api.NotFound("sandbox or snapshot", ref)
		}
	}
	s, err := v.cfg.Snapshots.Find(ctx, ref)
	if err != nil {
		return nil, err
	}
	return v.ofSnapshot(ctx, s)
}

// OfSandbox has the sentry keep the present files. The sandbox goes on.
func (v *Views) OfSandbox(ctx context.Context, b *sandboxes.Instance) (*fsview.View, error) {
	if err := b.Start.Wait(ctx); err != nil {
		return nil, err
	}
	s, origin, err := v.holdRunning(b)
	if err != nil {
		return nil, err
	}
	rec := b.Record()
	view := &fsview.View{ID: b.ID, Image: rec.Sandbox.Image, At: time.Now(), Lineage: rec.Lineage()}
	view.OnClose(func() { v.cfg.Freezes.Drop(origin) })
	view.History = origin.Follow(fsview.ForkPoint{Line: s.Key(), Seq: math.MaxInt64})
	err = v.OfSentry(ctx, view, s, origin)
	if err != nil {
		view.Close()
		return nil, v.cfg.Sandboxes.Explain(b, s, err)
	}
	return view, nil
}

// holdRunning returns the sentry of b and the freeze that it was made from, if
// any, on which the caller then owns a reference.
func (v *Views) holdRunning(b *sandboxes.Instance) (*launch.Sentry, *freezes.Freeze, error) {
	s, err := b.Running(api.StateRunning, api.StatePaused)
	if err != nil {
		return nil, nil, err
	}
	origin, now := b.Origin(v.cfg.Freezes)
	if now != s {
		v.cfg.Freezes.Drop(origin)
		return nil, nil, api.Errorf(api.CodeSandboxDied, "sandbox %s was given another state meanwhile", b.ID)
	}
	return s, origin, nil
}

// OfSentry has the sentry s keep its present files for view, and opens them.
func (v *Views) OfSentry(ctx context.Context, view *fsview.View, s *launch.Sentry, origin *freezes.Freeze) error {
	name := s.FilesName()
	if err := v.cfg.MemFiles.Add(name, s.Files()); err != nil {
		return err
	}
	view.OnClose(func() { v.cfg.MemFiles.Release(name) })
	// As with a freeze's, a pin of this name is dropped by the next daemon.
	id := api.NewID(api.KindSnapshot)
	view.OnClose(func() { v.cfg.Freezes.Unpin(s, id) })
	var viewed wire.Viewed
	if _, err := s.Call(ctx, &wire.Call{Op: wire.OpView, View: &wire.View{ID: id, SelfFiles: name}}, &viewed); err != nil {
		return err
	}
	if err := viewed.Files.Check(len(viewed.Generations)); err != nil {
		return api.Errorf(api.CodeCorrupt, "the sandbox says where its files are: %w", err)
	}
	if err := freezes.CheckGenerations(s, origin, viewed.Generations); err != nil {
		return err
	}
	view.Pin, view.Root = id, viewed.Files.Root
	return v.openFiles(view, &viewed.Files, viewed.Generations)
}

// ofSnapshot returns the files of s.
func (v *Views) ofSnapshot(ctx context.Context, s *snapshots.Snapshot) (*fsview.View, error) {
	f, err := s.Open(ctx)
	if err != nil {
		return nil, err
	}
	rec := s.Record()
	view := &fsview.View{ID: s.ID, Image: rec.Snapshot.Image, At: rec.Snapshot.CreatedAt, Lineage: rec.Lineage(), History: f.History}
	view.OnClose(func() { v.cfg.Freezes.Drop(f) })
	if err := v.openFiles(view, &f.Files, f.Generations); err != nil {
		view.Close()
		return nil, err
	}
	return view, nil
}

// OfFreeze returns the files of f, which is of an image, until the view is closed.
func (v *Views) OfFreeze(f *freezes.Freeze, image string) (*fsview.View, error) {
	v.cfg.Freezes.Hold(f, 1)
	view := &fsview.View{ID: f.ID, Image: image, History: f.History}
	view.OnClose(func() { v.cfg.Freezes.Drop(f) })
	if err := v.openFiles(view, &f.Files, f.Generations); err != nil {
		view.Close()
		return nil, err
	}
	return view, nil
}

// ofHibernated returns the files of b, which is on disk as s. It does not wake b.
func (v *Views) ofHibernated(ctx context.Context, b *sandboxes.Instance, s *snapshots.Snapshot) (*fsview.View, error) {
	view, err := v.ofSnapshot(ctx, s)
	if err == nil {
		view.ID = b.ID
	}
	return view, err
}

// openFiles opens the tree that files describes. gens names its generations.
func (v *Views) openFiles(view *fsview.View, files *snapfile.Files, gens []string) error {
	if err := v.cfg.MemFiles.Acquire(gens); err != nil {
		return err
	}
	view.OnClose(func() { v.cfg.MemFiles.Release(gens...) })
	open, err := v.cfg.MemFiles.Files(gens)
	if err != nil {
		return err
	}
	segments := make([]pages.Segment, len(files.Segments))
	for i, s := range files.Segments {
		segments[i] = pages.Segment{Start: pages.Page(s.Start), End: pages.Page(s.End), File: open[s.Gen]}
	}
	image, err := v.cfg.Images.OpenImage(view.Image)
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

// MergeBase returns the files from which two views went different ways. The id of the
// result is that of a snapshot, a freeze or the image.
func (v *Views) MergeBase(ctx context.Context, a, b *fsview.View) (*fsview.View, error) {
	if a.Image != b.Image {
		return nil, api.Errorf(api.CodeConflict, "%s and %s are of different images", a.ID, b.ID)
	}
	if a.History == nil || b.History == nil {
		return nil, api.Errorf(api.CodeConflict, "it is not known when %s and %s parted: they were forked by an earlier version of Ramet", a.ID, b.ID)
	}
	p, ok := fsview.MergeBase(a.History, b.History)
	if !ok {
		view := &fsview.View{ID: a.Image, Image: a.Image}
		if err := v.openFiles(view, &snapfile.Files{}, nil); err != nil {
			view.Close()
			return nil, err
		}
		return view, nil
	}
	s := v.cfg.Snapshots.Get(p.Freeze)
	f := v.cfg.Freezes.Lookup(p.Freeze)
	if f != nil && len(f.Files.Segments) > 0 {
		return v.ofFreeze(f, a.Image)
	}
	v.cfg.Freezes.Drop(f)
	if s != nil && s.State() == api.SnapshotReady {
		return v.ofSnapshot(ctx, s)
	}
	return nil, api.Errorf(api.CodeConflict, "the files from which %s and %s went different ways are gone: they are kept as long as a sandbox or a snapshot in memory "+
		"that was made from them, or they themselves as a snapshot; a snapshot on disk keeps only its own", a.ID, b.ID)
}

// ofFreeze returns the files of f, on which it takes over a reference.
func (v *Views) ofFreeze(f *freezes.Freeze, image string) (*fsview.View, error) {
	view := &fsview.View{ID: f.ID, Image: image}
	view.OnClose(func() { v.cfg.Freezes.Drop(f) })
	names := f.Generations
	if names == nil {
		names = f.FileNames
	}
	files, names := onlyFiles(&f.Files, names)
	if err := v.openFiles(view, &files, names); err != nil {
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
