package merge

import (
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
)

// Strategy says how conflicts are decided.
type Strategy int

// The strategies. Ours and Theirs decide only about the part that is in conflict: lines of
// a text or single attributes, otherwise the whole path. Of several sides that are merged
// with Theirs, the last one wins.
const (
	Leave Strategy = iota // paths in conflict stay as ours has them
	Ours
	Theirs
)

func (s Strategy) decides() bool { return s != Leave }

// Change is a path that differs from a base. For a renamed directory, From and Path include
// all paths below.
type Change struct {
	Path    string
	From    string // the old path of a renamed file
	Renamed bool
}

// Side is a tree to be merged.
type Side struct {
	Name       string
	Base, Tree Tree
	// Ours and Theirs are the differences from Base of the plan's tree and of Tree.
	Ours, Theirs []Change
}

// Applied is a path that a merge changes.
type Applied struct {
	Path     string
	OldPath  string // the path before, if it is moved
	From     string // the side that the change comes from, the last of several
	Old, New *File  // nil if there is no file
	Merged   bool   // New combines several files
}

// Plan is a merge. It is not safe for concurrent use.
type Plan struct {
	ours     Tree
	strategy Strategy
	within   func(path string) bool

	// entries are the changed paths. names are the same by directory and name.
	entries   map[string]*entry
	names     map[string]map[string]bool
	sides     []Side
	conflicts []Conflict
	moves     *moves // nil until they are asked for, see findMoves
}

// entry is the planned state of a path.
type entry struct {
	file   *File // nil: no file
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

// lookup returns the file at path after the plan so far.
func (p *Plan) lookup(ctx context.Context, path string) (*File, error) {
	if e, ok := p.entries[path]; ok {
		return e.file, nil
	}
	return p.ours.Lookup(ctx, path)
}

// list returns the names in a directory after the plan so far.
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

// set plans the state of a path.
func (p *Plan) set(at string, e *entry) {
	p.entries[at] = e
	dir, name := path.Dir(at), path.Base(at)
	if p.names[dir] == nil {
		p.names[dir] = map[string]bool{}
	}
	p.names[dir][name] = true
}

// Merge adds the changes of a side to the plan. After an error the plan must not be used.
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

// paths returns every path of changes, and all paths below renamed directories, old and new.
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

// walk calls fn for a path and all paths below, a directory before its entries.
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
		// If both changed, the result is merged also where it equals theirs, as theirs
		// then has all changes of ours.
		merged := !equal || d.both && d.conflict == nil
		e := &entry{file: d.file, from: last, merged: merged && d.link == "", link: d.link}
		p.set(at, e)
		if err := p.setLinks(ctx, d, e, decisions); err != nil {
			return err
		}
	}
	return nil
}

// setLinks plans the change of a file for the names that ours gave it since the base: they
// are one file, and stay so. Names from the base are decided by themselves.
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

// Applied returns the changes in the order of paths. Of the paths below a moved directory it
// has only those that change besides.
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
		} else { // it is removed from a moved directory
			a.From = p.sides[p.entries[m.to].from].Name
		}
		all = append(all, a)
	}
	return all, nil
}
