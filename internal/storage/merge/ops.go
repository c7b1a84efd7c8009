package merge

import (
	"context"
	"maps"
	"slices"
)

// OpKind is the kind of an operation.
type OpKind int

// The kinds of operations.
const (
	// Remove removes a file or an empty directory.
	Remove OpKind = iota
	// Create makes File at a free path.
	Create
	// Link gives the file at From another name, at a free path.
	Link
	// SetAttrs gives the file at Path the attributes of File: permissions, owner and
	// extended attributes.
	SetAttrs
	// Take puts aside the file at Path, a directory with all files below. Each Take has a
	// Place that puts the file that was taken at From to Path, a free path.
	Take
	Place
)

// Op is a step of making a plan's result.
type Op struct {
	Kind OpKind
	Path string
	From string // of Link and Place
	File *File  // of Create and SetAttrs
	Old  *File  // of Remove and SetAttrs: the file at Path before
}

// opList collects the operations of a plan.
type opList struct {
	p                      *Plan
	moves                  *moves
	taken, gone, come, set []Op
	inside                 map[string][]Op // removals below a placed directory, by its path
}

// Ops returns the operations that turn ours into the plan's result, in an order in which
// they can be performed: moved files are taken first; then files are removed, a directory
// after its entries; then files are created or placed, a directory before its entries; last
// come links and attributes.
func (p *Plan) Ops(ctx context.Context) ([]Op, error) {
	ms, err := p.findMoves(ctx)
	if err != nil {
		return nil, err
	}
	l := opList{p: p, moves: ms, inside: map[string][]Op{}}
	for _, at := range ms.paths {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err := l.add(ctx, at); err != nil {
			return nil, err
		}
	}
	return l.ordered(ctx)
}

// add adds the operations at a path.
func (l *opList) add(ctx context.Context, at string) error {
	old, m, err := l.p.before(ctx, l.moves, at)
	if err != nil {
		return err
	}
	f, err := l.p.lookup(ctx, at)
	if err != nil {
		return err
	}
	if m != nil && at == m.to {
		l.taken = append(l.taken, Op{Kind: Take, Path: m.from})
		l.come = append(l.come, Op{Kind: Place, Path: at, From: m.from})
	}
	inPlace, err := l.staysInPlace(ctx, old, f)
	switch {
	case err != nil:
		return err
	case inPlace && !sameAttrs(old, f):
		l.set = append(l.set, Op{Kind: SetAttrs, Path: at, File: f, Old: old})
		return nil
	case inPlace:
		return nil
	}
	if old != nil && m != nil {
		l.inside[m.to] = append(l.inside[m.to], Op{Kind: Remove, Path: at, Old: old})
	} else if old != nil {
		l.gone = append(l.gone, Op{Kind: Remove, Path: at, Old: old})
	}
	if f != nil {
		l.come = append(l.come, Op{Kind: Create, Path: at, File: f})
	}
	return nil
}

// staysInPlace returns whether old becomes f by a change of attributes at most.
func (l *opList) staysInPlace(ctx context.Context, old, f *File) (bool, error) {
	if old == nil || f == nil || old.kind() != f.kind() {
		return false, nil
	}
	if equal, err := sameData(ctx, old, f); !equal || err != nil {
		return false, err
	}
	return l.allNames(ctx, old, f)
}

// ordered returns all operations in their order.
func (l *opList) ordered(ctx context.Context) ([]Op, error) {
	links, err := l.p.linked(ctx, l.come)
	if err != nil {
		return nil, err
	}
	ops := l.taken
	for _, o := range slices.Backward(l.gone) {
		ops = append(ops, o)
	}
	for _, o := range l.come {
		if links[o.Path] != "" && o.Kind == Create {
			continue
		}
		ops = append(ops, o)
		if o.Kind == Place {
			for _, o := range slices.Backward(l.inside[o.Path]) {
				ops = append(ops, o)
			}
		}
	}
	for _, at := range slices.Sorted(maps.Keys(links)) {
		ops = append(ops, Op{Kind: Link, Path: at, From: links[at]})
	}
	return append(ops, l.set...), nil
}

// allNames returns whether all names that a file of ours will have get the attributes of f.
// If not, the names that do are to be another file.
func (l *opList) allNames(ctx context.Context, old, f *File) (bool, error) {
	if old.IsDir() || old.Links < 2 || sameAttrs(old, f) {
		return true, nil
	}
	names, err := l.p.ours.Names(ctx, old)
	if err != nil {
		return false, err
	}
	for _, at := range names {
		there, err := l.p.lookup(ctx, l.moves.after(at))
		if err != nil {
			return false, err
		}
		if there != nil && !sameAttrs(there, f) {
			return false, nil
		}
	}
	return true, nil
}

// linked finds the paths that need not be created because they are another name of a file
// that exists or will exist: it returns the path of that file for each. Names of one file,
// on the side that they come from or in ours, stay names of one file if all of them get the
// same contents and attributes.
func (p *Plan) linked(ctx context.Context, come []Op) (map[string]string, error) {
	type id struct {
		side  int
		inode uint64
	}
	const ours = -1
	links, firsts := map[string]string{}, map[id]Op{}
	for _, o := range come {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if o.Kind != Create {
			continue
		}
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

// otherName returns an unchanged path at which ours has the same file as a side, or "".
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
