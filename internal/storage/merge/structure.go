package merge

import (
	"context"
	"maps"
	"path"
	"slices"
)

// structure makes one tree of decisions about single paths.
type structure struct {
	p         *Plan
	side      *Side
	decisions map[string]*decision
}

// nameAgain has new names that theirs gave to a file that was there before be names
// of that file, whatever becomes of it.
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

// settle goes through the decisions until nothing is put below what is no
// directory, and no directory goes that something stays in. Each round takes back
// decisions or forces them, for good, so it comes to an end.
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

// at returns what will be at a path.
func (s *structure) at(ctx context.Context, at string) (*File, error) {
	if d := s.decisions[at]; d != nil {
		return d.file, nil
	}
	return s.p.lookup(ctx, at)
}

// giveParents looks for what is put where no directory will be above it. paths
// are sorted, so that what is above was looked at before.
func (s *structure) giveParents(ctx context.Context, paths []string) (fixed bool, err error) {
	for _, at := range paths {
		if ctx.Err() != nil {
			return false, context.Cause(ctx)
		}
		d := s.decisions[at]
		if d.file == nil || d.ours != nil { // what ours has is keepDirs' business
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
			d.file = nil // there is no directory in ours
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

// forceDir makes a path the directory that theirs has, and all above.
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

// keepDirs looks for directories that are to go although something stays in them.
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
			d.conflict = nil // what stays says it
		}
	}
	return fixed, nil
}

// forceAway removes what ours has at a path and below.
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
