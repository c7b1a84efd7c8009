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
	"ramet.dev/ramet/internal/storage/cowfs"
)

// fsView is the files of a sandbox or snapshot as they are at one moment. They
// stay so until close, whatever the sandbox does meanwhile.
type fsView struct {
	id    string
	image string
	at    time.Time
	line  []string // ids of what it descends from, itself the last
	files *cowfs.Files
	// history is what led here, see point; nil if that is not known.
	history []forkPoint
	// pin and root name the files to the sentry of a sandbox.
	pin  string
	root uint64
	undo []func()
}

func (m *fsView) close() {
	for _, undo := range slices.Backward(m.undo) {
		undo()
	}
}

// openView returns the files of the sandbox or snapshot that ref refers to. Of names
// that both have, the sandbox's counts.
func (m *Node) openView(ctx context.Context, ref string) (*fsView, error) {
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
		if _, err := m.resolveSnapshot(ctx, ref); err != nil {
			return nil, api.NotFound("sandbox or snapshot", ref)
		}
	}
	s, err := m.resolveSnapshot(ctx, ref)
	if err != nil {
		return nil, err
	}
	return m.viewSnapshot(ctx, s)
}

// viewInstance has the sentry keep the present files. The sandbox goes on.
func (m *Node) viewInstance(ctx context.Context, b *instance) (*fsView, error) {
	if err := b.made(ctx); err != nil {
		return nil, err
	}
	s, origin, err := m.holdRunning(b)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	mo := &fsView{id: b.id, image: b.rec.Sandbox.Image, at: time.Now(), line: append(slices.Clone(b.rec.Ancestors), b.id)}
	b.mu.Unlock()
	mo.undo = append(mo.undo, func() { m.drop(origin) })
	mo.history = origin.follow(forkPoint{Line: s.Key(), Seq: math.MaxInt64})
	err = m.pinFiles(ctx, mo, s, origin)
	if err != nil {
		mo.close()
		return nil, m.explain(b, s, err)
	}
	return mo, nil
}

// holdRunning returns the sentry of b and the freeze that it was made from, if
// any, on which the caller then owns a reference.
func (m *Node) holdRunning(b *instance) (*launch.Sentry, *freeze, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s, err := b.running(api.StateRunning, api.StatePaused)
	if err != nil {
		return nil, nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.sentry != s {
		return nil, nil, api.Errorf(api.CodeSandboxDied, "sandbox %s was given another state meanwhile", b.id)
	}
	if b.freeze != nil {
		b.freeze.refs++
	}
	return s, b.freeze, nil
}

func (m *Node) pinFiles(ctx context.Context, mo *fsView, s *launch.Sentry, origin *freeze) error {
	name := s.FilesName()
	if err := m.gens.add(name, s.Files()); err != nil {
		return err
	}
	mo.undo = append(mo.undo, func() { m.gens.release(name) })
	// As with a freeze's, a pin of this name is dropped by the next daemon.
	id := api.NewID(api.KindSnapshot)
	mo.undo = append(mo.undo, func() { m.release(&freeze{id: id, source: s}) })
	var v wire.Viewed
	if _, err := s.Call(ctx, &wire.Call{Op: wire.OpView, View: &wire.View{ID: id, SelfFiles: name}}, &v); err != nil {
		return err
	}
	if err := v.Files.Check(len(v.Generations)); err != nil {
		return api.Errorf(api.CodeCorrupt, "the sandbox says where its files are: %w", err)
	}
	if err := (&freeze{source: s, parent: origin}).checkGenerations(v.Generations); err != nil {
		return err
	}
	mo.pin, mo.root = id, v.Files.Root
	return m.openFiles(mo, &v.Files, v.Generations)
}

func (m *Node) viewSnapshot(ctx context.Context, s *snapshot) (*fsView, error) {
	f, err := m.source(ctx, s)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	mo := &fsView{id: s.id, image: s.rec.Snapshot.Image, at: s.rec.Snapshot.CreatedAt, line: append(slices.Clone(s.rec.Ancestors), s.id), history: f.history}
	s.mu.Unlock()
	mo.undo = append(mo.undo, func() { m.drop(f) })
	if err := m.openFiles(mo, &f.files, f.generations); err != nil {
		mo.close()
		return nil, err
	}
	return mo, nil
}

// viewHibernated returns the files of b, which is on disk as s and is not woken for
// it.
func (m *Node) viewHibernated(ctx context.Context, b *instance, s *snapshot) (*fsView, error) {
	mo, err := m.viewSnapshot(ctx, s)
	if err == nil {
		mo.id = b.id
	}
	return mo, err
}

// openFiles opens the tree that files describes, with its generations' names.
func (m *Node) openFiles(mo *fsView, files *snapfile.Files, gens []string) error {
	if err := m.gens.acquire(gens); err != nil {
		return err
	}
	mo.undo = append(mo.undo, func() { m.gens.release(gens...) })
	open, err := m.gens.files(gens)
	if err != nil {
		return err
	}
	segments := make([]cowfs.Segment, len(files.Segments))
	for i, s := range files.Segments {
		segments[i] = cowfs.Segment{Start: cowfs.Page(s.Start), End: cowfs.Page(s.End), File: open[s.Gen]}
	}
	image, err := m.mapImage(mo.image)
	if err != nil {
		return err
	}
	mo.undo = append(mo.undo, func() { _ = unix.Munmap(image) }) // its arguments are right
	if mo.files, err = cowfs.NewFiles(cowfs.OpenView(segments, cowfs.Page(files.Root)), image); err != nil {
		return api.Errorf(api.CodeCorrupt, "open files of %s: %w", mo.id, err)
	}
	return nil
}

func (m *Node) mapImage(id string) ([]byte, error) {
	f, err := m.openImage(id)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := mapWhole(f)
	if err != nil {
		return nil, fmt.Errorf("map image: %w", err)
	}
	return data, nil
}
