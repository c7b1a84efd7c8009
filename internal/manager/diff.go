package manager

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"ramet.dev/ramet/internal/launch"
	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/wire"
)

// identityFiles differ between any two sandboxes, so they are only compared
// when they are asked for by name.
var identityFiles = []string{"/etc/hostname", "/etc/machine-id"}

// Diff compares the files of two running sandboxes. Only what either changed
// since its image is looked at, and contents only where the metadata leaves it
// open.
func (m *Manager) Diff(ctx context.Context, fromRef, toRef string, req sandbox.DiffRequest) (*sandbox.Diff, error) {
	from, err := m.resolve(fromRef)
	if err != nil {
		return nil, err
	}
	to, err := m.resolve(toRef)
	if err != nil {
		return nil, err
	}
	filter, err := newPathFilter(req.Paths)
	if err != nil {
		return nil, err
	}
	a, b := from.view(), to.view()
	if a.Image != b.Image {
		return nil, sandbox.Errorf(sandbox.CodeConflict, "%s and %s are of different images", from.id, to.id)
	}
	d := differ{filter: filter}
	if d.from.sentry, err = from.running(sandbox.StateRunning, sandbox.StatePaused); err != nil {
		return nil, fmt.Errorf("diff: %w", err)
	}
	if d.to.sentry, err = to.running(sandbox.StateRunning, sandbox.StatePaused); err != nil {
		return nil, fmt.Errorf("diff: %w", err)
	}
	changes, err := d.run(ctx)
	if err == nil && req.Hunks {
		h := hunker{old: d.from.read, new: d.to.read, left: maxHunks}
		err = h.addTo(ctx, changes, func(p string) bool { return isFile(d.from.known[p]) })
	}
	if err != nil {
		err = m.explain(from, d.from.sentry, m.explain(to, d.to.sentry, err))
		return nil, fmt.Errorf("diff: %w", err)
	}
	lineOf := func(b *box) []string {
		b.mu.Lock()
		defer b.mu.Unlock()
		return append(slices.Clone(b.rec.Ancestors), b.id)
	}
	return &sandbox.Diff{From: from.id, To: to.id, Base: commonAncestor(lineOf(from), lineOf(to)), Changes: changes}, nil
}

// pathFilter selects paths; an empty one selects all but identityFiles.
type pathFilter []string

func newPathFilter(paths []string) (pathFilter, error) {
	var f pathFilter
	for _, p := range paths {
		if !strings.HasPrefix(p, "/") || strings.ContainsRune(p, 0) {
			return nil, sandbox.Invalid("paths", "%q is not an absolute path", p)
		}
		f = append(f, path.Clean(p))
	}
	return f, nil
}

func (f pathFilter) selects(p string) bool {
	if len(f) == 0 {
		return !slices.Contains(identityFiles, p)
	}
	return slices.ContainsFunc(f, func(dir string) bool { return within(p, dir) })
}

func within(p, dir string) bool { return p == dir || dir == "/" || strings.HasPrefix(p, dir+"/") }

// side is one of the two sandboxes.
type side struct {
	sentry  *launch.Sentry
	changed map[string]wire.Entry // the writable layer
	known   map[string]wire.Entry // present state of what was asked for
}

type differ struct {
	filter   pathFilter
	from, to side
}

func (d *differ) run(ctx context.Context) ([]sandbox.Change, error) {
	if err := d.both(ctx, func(ctx context.Context, s *side) error { return s.loadChanges(ctx, d.filter) }); err != nil {
		return nil, err
	}
	paths, deep := d.candidates()
	if err := d.both(ctx, func(ctx context.Context, s *side) error { return s.describe(ctx, paths, deep) }); err != nil {
		return nil, err
	}
	if err := d.digest(ctx); err != nil {
		return nil, err
	}
	return d.compare(), nil
}

// both runs fn for both sides at once.
func (d *differ) both(ctx context.Context, fn func(context.Context, *side) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return fn(ctx, &d.from) })
	g.Go(func() error { return fn(ctx, &d.to) })
	return g.Wait()
}

func (s *side) loadChanges(ctx context.Context, filter pathFilter) error {
	data, err := s.sentry.Blob(ctx, &wire.Call{Op: wire.OpChanges}, nil)
	if err != nil {
		return err
	}
	var entries []wire.Entry
	if err := json.Unmarshal(data, &entries); err != nil {
		return fmt.Errorf("decode changes: %w", err)
	}
	s.changed = map[string]wire.Entry{}
	for _, e := range entries {
		if filter.selects(e.Path) {
			s.changed[e.Path] = e
		}
	}
	s.known = map[string]wire.Entry{}
	return nil
}

// candidates returns the paths that may differ, and those where all that is
// below may differ too: a side deleted or replaced a directory of the image.
func (d *differ) candidates() (paths, deep []string) {
	seen := map[string]bool{}
	for _, pair := range [][2]*side{{&d.from, &d.to}, {&d.to, &d.from}} {
		for p, e := range pair[0].changed {
			if o, ok := pair[1].changed[p]; ok && same(e, o) && e.Opaque == o.Opaque {
				continue // neither changed it since they parted
			}
			if seen[p] {
				continue
			}
			seen[p] = true
			if e.Mode == 0 || e.Opaque || pair[1].changed[p].Opaque {
				deep = append(deep, p)
			} else {
				paths = append(paths, p)
			}
		}
	}
	return paths, deep
}

// same reports whether two entries are one file that neither side touched since
// they parted: any change of a file gives it a new ctime.
func same(a, b wire.Entry) bool {
	return a.Mode == b.Mode && a.UID == b.UID && a.GID == b.GID && a.Size == b.Size &&
		a.Ino == b.Ino && a.CtimeN == b.CtimeN && a.Link == b.Link
}

func (s *side) describe(ctx context.Context, paths, deep []string) error {
	for _, q := range []struct {
		paths     []string
		recursive bool
	}{{paths, false}, {deep, true}} {
		if len(q.paths) == 0 {
			continue
		}
		entries, err := s.ask(ctx, q.paths, &wire.Describe{Recursive: q.recursive})
		if err != nil {
			return err
		}
		for _, e := range entries {
			if e.Mode != 0 {
				s.known[e.Path] = e
			}
		}
	}
	return nil
}

func (s *side) ask(ctx context.Context, paths []string, req *wire.Describe) ([]wire.Entry, error) {
	data, err := s.sentry.Blob(ctx, &wire.Call{Op: wire.OpDescribe, Describe: req}, paths)
	if err != nil {
		return nil, err
	}
	var entries []wire.Entry
	if err := json.Unmarshal(data, &entries); err != nil {
		return nil, fmt.Errorf("decode descriptions: %w", err)
	}
	return entries, nil
}

// digest has both sides read the files that look alike but are not known to be.
func (d *differ) digest(ctx context.Context) error {
	var unsure []string
	for p, a := range d.from.known {
		b, ok := d.to.known[p]
		if ok && isFile(a) && isFile(b) && a.Size == b.Size && a.Size > 0 && !same(a, b) {
			unsure = append(unsure, p)
		}
	}
	if len(unsure) == 0 {
		return nil
	}
	return d.both(ctx, func(ctx context.Context, s *side) error {
		entries, err := s.ask(ctx, unsure, &wire.Describe{Digests: true})
		for _, e := range entries {
			if s.known[e.Path] = e; e.Mode == 0 { // it vanished meanwhile
				delete(s.known, e.Path)
			}
		}
		return err
	})
}

func isFile(e wire.Entry) bool { return e.Mode&unix.S_IFMT == unix.S_IFREG }

func (d *differ) compare() []sandbox.Change {
	paths := map[string]bool{}
	for p := range d.from.known {
		paths[p] = true
	}
	for p := range d.to.known {
		paths[p] = true
	}
	changes := []sandbox.Change{}
	for _, p := range slices.Sorted(maps.Keys(paths)) {
		a, before := d.from.known[p]
		b, after := d.to.known[p]
		switch {
		case !d.filter.selects(p):
		case before && !after:
			changes = append(changes, sandbox.Change{Path: p, Kind: sandbox.Deleted, Type: typeOf(a), Size: a.Size, Mode: modeOf(a)})
		case !before && after:
			changes = append(changes, sandbox.Change{Path: p, Kind: sandbox.Added, Type: typeOf(b), Size: b.Size, Mode: modeOf(b)})
		case !equal(a, b):
			c := sandbox.Change{Path: p, Kind: sandbox.Modified, Type: typeOf(b), Size: b.Size, OldSize: a.Size, Mode: modeOf(b)}
			if a.Mode != b.Mode {
				c.OldMode = modeOf(a)
			}
			changes = append(changes, c)
		}
	}
	return changes
}

// equal reports whether users see the same file.
func equal(a, b wire.Entry) bool {
	return a.Mode == b.Mode && a.UID == b.UID && a.GID == b.GID && a.Size == b.Size && a.Link == b.Link && a.Digest == b.Digest
}

func typeOf(e wire.Entry) string {
	switch e.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		return "dir"
	case unix.S_IFLNK:
		return "symlink"
	case unix.S_IFIFO:
		return "fifo"
	case unix.S_IFSOCK:
		return "socket"
	case unix.S_IFREG:
		return "file"
	}
	return "device"
}

func modeOf(e wire.Entry) string { return fmt.Sprintf("%04o", e.Mode&0o7777) }
