package merge

import (
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
)

// Strategy says what becomes of conflicts.
type Strategy int

// The strategies. Ours and Theirs decide about what is in conflict only: lines of
// a text, single attributes, else the whole of a path. Of several sides that are
// merged with Theirs, the last one wins.
const (
	Leave Strategy = iota // paths in conflict stay as ours has them
	Ours
	Theirs
)

func (s Strategy) decides() bool { return s != Leave }

// Change is a path that differs from a base. Of a renamed directory, From and Path
// stand for all that was and is below.
type Change struct {
	Path    string
	From    string // for what was renamed
	Renamed bool
}

// Side is a tree to be merged.
type Side struct {
	Name       string
	Base, Tree Tree
	// Ours and Theirs say what differs from Base in the plan's tree and in Tree.
	Ours, Theirs []Change
}

// Applied is a path that a merge changes.
type Applied struct {
	Path     string
	OldPath  string // where it was, if it is moved
	From     string // the side that it comes from, the last if it is of several
	Old, New *File  // nil if there is nothing
	Merged   bool   // New is made of what several have
}

// Plan is a merge. It is not safe for concurrent use.
type Plan struct {
	ours     Tree
	strategy Strategy
	within   func(path string) bool

	// entries are the paths that change, and names where they are.
	entries   map[string]*entry
	names     map[string]map[string]bool
	sides     []Side
	conflicts []Conflict
	moves     *moves // nil until they are asked for, see findMoves
}

// entry is what will be at a path.
type entry struct {
	file   *File // nil: nothing
	from   int   // index in sides
	merged bool
	link   string // see decision
}

// New returns a plan that changes nothing yet. Only paths that within accepts are
// changed.
func New(ours Tree, s Strategy, within func(path string) bool) *Plan {
	return &Plan{ours: ours, strategy: s, within: within, entries: map[string]*entry{}, names: map[string]map[string]bool{}}
}

// Conflicts returns the conflicts in the order in which they were met.
func (p *Plan) Conflicts() []Conflict { return p.conflicts }

// lookup returns what will be at path as far as is planned.
func (p *Plan) lookup(ctx context.Context, path string) (*File, error) {
	if e, ok := p.entries[path]; ok {
		return e.file, nil
	}
	return p.ours.Lookup(ctx, path)
}

// list returns the names that will be in a directory, as far as is planned.
func (p *Plan) list(ctx context.Context, dir string) ([]string, error) {
	names, err := p.ours.List(ctx, dir)
	if err != nil {
		return nil, err
	}
	all := map[string]bool{}
	for _, n := range names {
		all[n] = true
	}
	for n := range p.names[dir] {
		all[n] = p.entries[join(dir, n)].file != nil
	}
	maps.DeleteFunc(all, func(_ string, there bool) bool { return !there })
	return slices.Sorted(maps.Keys(all)), nil
}

func join(dir, name string) string { return strings.TrimSuffix(dir, "/") + "/" + name }

// set notes what will be at path.
func (p *Plan) set(at string, e *entry) {
	p.entries[at] = e
	dir, name := path.Dir(at), path.Base(at)
	if p.names[dir] == nil {
		p.names[dir] = map[string]bool{}
	}
	p.names[dir][name] = true
}

// Merge plans to bring what a side changed. On an error the plan is of no use any
// more.
func (p *Plan) Merge(ctx context.Context, side Side) error {
	changed, err := p.paths(ctx, side.Base, side.Tree, side.Theirs)
	if err != nil {
		return err
	}
	known, err := p.paths(ctx, side.Base, p.ours, side.Ours)
	if err != nil {
		return err
	}
	s := structure{p: p, side: &side, decisions: map[string]*decision{}}
	for at := range changed {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		d := &decision{}
		if d.base, err = side.Base.Lookup(ctx, at); err != nil {
			return err
		}
		if d.ours, err = p.lookup(ctx, at); err != nil {
			return err
		}
		if d.theirs, err = side.Tree.Lookup(ctx, at); err != nil {
			return err
		}
		if _, planned := p.entries[at]; planned || known[at] {
			if err := p.decide(ctx, d); err != nil {
				return fmt.Errorf("merge %s: %w", at, err)
			}
		} else {
			d.file = d.theirs
		}
		s.decisions[at] = d
	}
	if err := s.nameAgain(ctx); err != nil {
		return err
	}
	if err := s.settle(ctx); err != nil {
		return err
	}
	p.sides, p.moves = append(p.sides, side), nil
	return p.adopt(ctx, s.decisions)
}

// paths returns every path that changes name, renamed directories with all that
// is and was below.
func (p *Plan) paths(ctx context.Context, base, tree Tree, changes []Change) (map[string]bool, error) {
	all := map[string]bool{}
	for _, c := range changes {
		if !c.Renamed {
			all[c.Path] = p.within(c.Path)
			continue
		}
		for root, t := range map[string]Tree{c.From: base, c.Path: tree} {
			err := walk(ctx, t, root, func(at string) error {
				all[at] = p.within(at)
				return nil
			})
			if err != nil {
				return nil, err
			}
		}
	}
	maps.DeleteFunc(all, func(_ string, in bool) bool { return !in })
	return all, nil
}

// walk calls fn for a path and all that is below, directories first.
func walk(ctx context.Context, t Tree, at string, fn func(at string) error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err := fn(at); err != nil {
		return err
	}
	names, err := t.List(ctx, at)
	if err != nil {
		return err
	}
	for _, n := range names {
		if err := walk(ctx, t, join(at, n), fn); err != nil {
			return err
		}
	}
	return nil
}

// adopt makes decisions part of the plan.
func (p *Plan) adopt(ctx context.Context, decisions map[string]*decision) error {
	last := len(p.sides) - 1
	for _, at := range slices.Sorted(maps.Keys(decisions)) {
		d := decisions[at]
		if c := d.conflict; c != nil {
			c.Path, c.From, c.Base, c.Ours, c.Theirs = at, p.sides[last].Name, d.base, d.ours, d.theirs
			if e := p.entries[at]; e != nil {
				c.OursFrom = p.sides[e.from].Name
			}
			p.conflicts = append(p.conflicts, *c)
		}
	}
	for _, at := range slices.Sorted(maps.Keys(decisions)) {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		d := decisions[at]
		equal, err := same(ctx, d.file, d.ours)
		if err != nil {
			return err
		}
		if equal {
			continue
		}
		if equal, err = same(ctx, d.file, d.theirs); err != nil {
			return err
		} else if equal {
			d.file = d.theirs
		}
		// Of both it is also where theirs has all that ours has.
		merged := !equal || d.both && d.conflict == nil
		e := &entry{file: d.file, from: last, merged: merged && d.link == "", link: d.link}
		p.set(at, e)
		if err := p.setLinks(ctx, d, e, decisions); err != nil {
			return err
		}
	}
	return nil
}

// setLinks has a change of a file come to the names that ours gave it since: they are
// one file, and stay so. Names that it had in the base are theirs to decide about.
func (p *Plan) setLinks(ctx context.Context, d *decision, e *entry, decisions map[string]*decision) error {
	if d.file == nil || d.ours == nil || d.ours.Links < 2 || !sameFile(d.base, d.ours) || !sameFile(d.base, d.theirs) {
		return nil
	}
	names, err := p.ours.Names(ctx, d.ours)
	if err != nil {
		return err
	}
	for _, at := range names {
		if decisions[at] != nil || p.entries[at] != nil || !p.within(at) {
			continue
		}
		before, err := p.sides[e.from].Base.Lookup(ctx, at)
		if err != nil {
			return err
		}
		if !sameFile(before, d.base) {
			p.set(at, e)
		}
	}
	return nil
}

// Applied returns what changes, in the order of paths. Of what is below a directory
// that is moved, only what changes besides.
func (p *Plan) Applied(ctx context.Context) ([]Applied, error) {
	ms, err := p.findMoves(ctx)
	if err != nil {
		return nil, err
	}
	var all []Applied
	for _, at := range ms.paths {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		old, m, err := p.before(ctx, ms, at)
		if err != nil {
			return nil, err
		}
		now, err := p.lookup(ctx, at)
		if err != nil {
			return nil, err
		}
		a := Applied{Path: at, Old: old, New: now}
		if m != nil && at == m.to {
			a.OldPath = m.from
		} else if equal, err := same(ctx, old, now); err != nil {
			return nil, err
		} else if equal {
			continue
		}
		if e := p.entries[at]; e != nil {
			a.From, a.Merged = p.sides[e.from].Name, e.merged
		} else { // it was in what is moved, and is not any more
			a.From = p.sides[p.entries[m.to].from].Name
		}
		all = append(all, a)
	}
	return all, nil
}
