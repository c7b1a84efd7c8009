package merge

import (
	"context"
	"maps"
	"path"
	"slices"
)

// structure changes decisions about single paths so that the result is a tree.
type structure struct {
	p         *Plan
	side      *Side
	decisions map[string]*decision
}

// nameAgain makes the names that theirs gave to a file of the base names of that file in
// the result, whatever its decision is.
func (s *structure) nameAgain(ctx context.Context) error {
	for _, at := range slices.Sorted(maps.Keys(s.decisions)) {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		d := s.decisions[at]
		if d.base != nil || d.ours != nil || d.theirs == nil || d.theirs.IsDir() || d.theirs.Links < 2 {
			continue
		}
		names, err := s.side.Tree.Names(ctx, d.theirs)
		if err != nil {
			return err
		}
		for _, other := range names {
			base, err := s.side.Base.Lookup(ctx, other)
			if err != nil {
				return err
			}
			ours, err := s.p.ours.Lookup(ctx, other)
			if err != nil {
				return err
			}
			if !sameFile(base, d.theirs) || !sameFile(base, ours) {
				continue
			}
			if f, err := s.at(ctx, other); err != nil {
				return err
			} else if f != nil && f.kind() == d.theirs.kind() {
				d.file, d.link = f, other
				break
			}
		}
	}
	return nil
}

// settle changes decisions until every new file has a directory above it, and no directory
// is removed that a file stays in. Each round takes back decisions or forces them, for good,
// so settle comes to an end.
func (s *structure) settle(ctx context.Context) error {
	for again := true; again; {
		again = false
		for _, fix := range []func(context.Context, []string) (bool, error){s.giveParents, s.keepDirs} {
			fixed, err := fix(ctx, slices.Sorted(maps.Keys(s.decisions)))
			if err != nil {
				return err
			}
			again = again || fixed
		}
	}
	return nil
}

// at returns the file at a path after the decisions.
func (s *structure) at(ctx context.Context, at string) (*File, error) {
	if d := s.decisions[at]; d != nil {
		return d.file, nil
	}
	return s.p.lookup(ctx, at)
}

// giveParents finds new files without a directory above them, and takes them back or forces
// the directory. paths are sorted, so that directories are seen before their entries.
func (s *structure) giveParents(ctx context.Context, paths []string) (fixed bool, err error) {
	for _, at := range paths {
		if ctx.Err() != nil {
			return false, context.Cause(ctx)
		}
		d := s.decisions[at]
		if d.file == nil || d.ours != nil { // files of ours are left to keepDirs
			continue
		}
		parent, err := s.at(ctx, path.Dir(at))
		if err != nil {
			return false, err
		}
		if parent.IsDir() {
			continue
		}
		fixed = true
		if s.p.strategy != Theirs {
			d.disagree(s.p.strategy, Directory)
			d.file = nil // ours has no directory for it
			continue
		}
		if d.conflict == nil {
			d.disagree(Theirs, Directory)
		}
		if err := s.forceDir(ctx, path.Dir(at)); err != nil {
			return false, err
		}
	}
	return fixed, nil
}

// forceDir makes a path, and the paths above, the directories that theirs has.
func (s *structure) forceDir(ctx context.Context, dir string) error {
	for ; ; dir = path.Dir(dir) {
		d := s.decisions[dir]
		if d == nil {
			d = &decision{}
			var err error
			if d.ours, err = s.p.lookup(ctx, dir); err != nil || d.ours.IsDir() {
				return err
			}
			if d.theirs, err = s.side.Tree.Lookup(ctx, dir); err != nil {
				return err
			}
			if d.base, err = s.side.Base.Lookup(ctx, dir); err != nil {
				return err
			}
			s.decisions[dir] = d
		}
		if d.file.IsDir() {
			return nil
		}
		d.disagree(Theirs, Directory)
	}
}

// keepDirs finds directories that are to be removed although files stay in them, and keeps
// them or forces the files away.
func (s *structure) keepDirs(ctx context.Context, paths []string) (fixed bool, err error) {
	for _, at := range slices.Backward(paths) {
		if ctx.Err() != nil {
			return false, context.Cause(ctx)
		}
		d := s.decisions[at]
		if !d.ours.IsDir() || d.file.IsDir() {
			continue
		}
		names, err := s.p.list(ctx, at)
		if err != nil {
			return false, err
		}
		stays, unknown := false, false
		for _, n := range names {
			child := join(at, n)
			f, err := s.at(ctx, child)
			if err != nil {
				return false, err
			}
			if f == nil {
				continue
			}
			if s.p.strategy == Theirs && s.p.within(child) {
				if err := s.forceAway(ctx, child); err != nil {
					return false, err
				}
				fixed = true
				continue
			}
			stays = true
			unknown = unknown || s.decisions[child] == nil
		}
		if !stays {
			continue
		}
		fixed = true
		gone := d.theirs == nil
		d.disagree(Ours, Directory)
		d.conflict.Resolved = s.p.strategy == Ours
		if gone && !unknown {
			d.conflict = nil // the files that stay have the conflict
		}
	}
	return fixed, nil
}

// forceAway decides that the file of ours at a path is removed.
func (s *structure) forceAway(ctx context.Context, at string) error {
	d := s.decisions[at]
	if d == nil {
		d = &decision{}
		var err error
		if d.ours, err = s.p.lookup(ctx, at); err != nil {
			return err
		}
		if d.base, err = s.side.Base.Lookup(ctx, at); err != nil {
			return err
		}
		s.decisions[at] = d
	}
	d.disagree(Theirs, Directory)
	d.file = nil
	return nil
}
