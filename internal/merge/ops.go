package merge

import (
	"context"
	"maps"
	"slices"
)

// OpKind says what an Op does.
type OpKind int

// The kinds of operations.
const (
	// Remove takes away a file or an empty directory.
	Remove OpKind = iota
	// Create makes File where nothing is.
	Create
	// Link gives the file at From another name, where nothing is.
	Link
	// SetAttrs gives what is at Path the attributes of File: permissions, owner
	// and extended attributes.
	SetAttrs
)

// Op is a step of making a plan's result.
type Op struct {
	Kind OpKind
	Path string
	From string // of Link
	File *File  // of Create and SetAttrs
	Old  *File  // of Remove and SetAttrs: what is there now
}

// Ops returns what makes the plan's result of ours, in an order in which each can
// be done: all that goes first, what is below a directory before that; then all that
// comes, directories first.
func (p *Plan) Ops(ctx context.Context) ([]Op, error) {
	var gone, come, attrs []Op
	for _, at := range slices.Sorted(maps.Keys(p.entries)) {
		f := p.entries[at].file
		old, err := p.ours.Lookup(ctx, at)
		if err != nil {
			return nil, err
		}
		inPlace := false
		if old != nil && f != nil && old.kind() == f.kind() {
			if inPlace, err = sameData(ctx, old, f); err != nil {
				return nil, err
			}
		}
		if inPlace {
			if inPlace, err = p.allNames(ctx, old, f); err != nil {
				return nil, err
			}
		}
		switch {
		case inPlace && !sameAttrs(old, f):
			attrs = append(attrs, Op{Kind: SetAttrs, Path: at, File: f, Old: old})
			continue
		case inPlace:
			continue
		}
		if old != nil {
			gone = append(gone, Op{Kind: Remove, Path: at, Old: old})
		}
		if f != nil {
			come = append(come, Op{Kind: Create, Path: at, File: f})
		}
	}
	slices.Reverse(gone)
	links, err := p.linked(ctx, come)
	if err != nil {
		return nil, err
	}
	come = slices.DeleteFunc(come, func(o Op) bool { return links[o.Path] != "" })
	ops := append(gone, come...)
	for _, at := range slices.Sorted(maps.Keys(links)) {
		ops = append(ops, Op{Kind: Link, Path: at, From: links[at]})
	}
	return append(ops, attrs...), nil
}

// allNames says whether all names that a file of ours will have get the attributes
// of f. If not, those that do are to be another file.
func (p *Plan) allNames(ctx context.Context, old, f *File) (bool, error) {
	if old.IsDir() || old.Links < 2 || sameAttrs(old, f) {
		return true, nil
	}
	names, err := p.ours.Names(ctx, old)
	if err != nil {
		return false, err
	}
	for _, at := range names {
		there, err := p.lookup(ctx, at)
		if err != nil {
			return false, err
		}
		if there != nil && !sameAttrs(there, f) {
			return false, nil
		}
	}
	return true, nil
}

// linked finds those that need not be created, because they are another name of a
// file that is there or will be: it returns where. What was one file on the side
// that it comes from, or in ours, stays one if it is the same everywhere.
func (p *Plan) linked(ctx context.Context, come []Op) (map[string]string, error) {
	type id struct {
		side  int
		inode uint64
	}
	const ours = -1
	links, firsts := map[string]string{}, map[id]Op{}
	for _, o := range come {
		e := p.entries[o.Path]
		if e.link != "" {
			f, err := p.lookup(ctx, e.link)
			if err != nil {
				return nil, err
			}
			if equal, err := same(ctx, f, o.File); err != nil {
				return nil, err
			} else if equal {
				links[o.Path] = e.link
				continue
			}
		}
		if o.File.IsDir() || o.File.Links < 2 {
			continue
		}
		key := id{e.from, o.File.Inode}
		if e.merged {
			key.side = ours
		}
		if first, ok := firsts[key]; ok {
			equal, err := same(ctx, first.File, o.File)
			if err != nil {
				return nil, err
			}
			if equal {
				links[o.Path] = first.Path
			}
			continue
		}
		at := ""
		if !e.merged {
			var err error
			if at, err = p.otherName(ctx, p.sides[e.from].Tree, o.File); err != nil {
				return nil, err
			}
		}
		if at != "" {
			links[o.Path] = at
			continue
		}
		firsts[key] = o
	}
	for at, to := range links {
		for links[to] != "" {
			to = links[to]
		}
		links[at] = to
	}
	return links, nil
}

// otherName returns a path at which ours has a file of a side already, the same as
// it is there, that does not change.
func (p *Plan) otherName(ctx context.Context, side Tree, f *File) (string, error) {
	names, err := side.Names(ctx, f)
	if err != nil {
		return "", err
	}
	for _, at := range names {
		if p.entries[at] != nil {
			continue
		}
		old, err := p.ours.Lookup(ctx, at)
		if err != nil {
			return "", err
		}
		if old == nil || old.kind() != f.kind() {
			continue
		}
		if equal, err := same(ctx, old, f); equal || err != nil {
			return at, err
		}
	}
	return "", nil
}
