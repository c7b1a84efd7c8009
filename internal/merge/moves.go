package merge

import (
	"context"
	"maps"
	"slices"
	"strings"
)

// move is something that a side renamed and that can be renamed in ours as well,
// with all below. On paths it is much that goes and much that comes; but a directory
// that a process works in stays the one it is, and nothing is copied.
type move struct{ from, to string }

// moves finds what is to be moved: all of it leaves the one place, the same file is
// at the other, and nothing is in its way. A file whose contents change as well is
// better made anew.
func (p *Plan) moves(ctx context.Context) ([]move, error) {
	var all []move
	for i := range p.sides {
		side := &p.sides[i]
		for _, c := range side.Theirs {
			from, to := p.entries[c.From], p.entries[c.Path]
			if !c.Renamed || from == nil || to == nil || from.file != nil || to.file == nil || to.from != i {
				continue
			}
			m := move{c.From, c.Path}
			if slices.ContainsFunc(all, m.touches) || below(m.to, m.from) || below(m.from, m.to) {
				continue
			}
			if ok, err := p.movable(ctx, side, m, to.file); err != nil {
				return nil, err
			} else if ok {
				all = append(all, m)
			}
		}
	}
	return all, nil
}

func (p *Plan) movable(ctx context.Context, side *Side, m move, f *File) (bool, error) {
	var have [4]*File // nothing may be at the last
	for i, w := range []struct {
		tree Tree
		at   string
	}{{p.ours, m.from}, {side.Base, m.from}, {side.Tree, m.to}, {p.ours, m.to}} {
		var err error
		if have[i], err = w.tree.Lookup(ctx, w.at); err != nil {
			return false, err
		}
	}
	old, base, theirs := have[0], have[1], have[2]
	if have[3] != nil || old == nil || base == nil || theirs == nil || old.Inode != base.Inode || base.Inode != theirs.Inode || old.kind() != f.kind() {
		return false, nil
	}
	if f.IsDir() {
		return true, nil
	}
	if old.Links > 1 {
		return false, nil // links are looked after elsewhere
	}
	return sameData(ctx, old, f)
}

// below says whether a path is dir or below it.
func below(path, dir string) bool {
	return strings.HasPrefix(path, dir) && (len(path) == len(dir) || dir == "/" || path[len(dir)] == '/')
}

// touches says whether two moves have to do with each other.
func (m move) touches(n move) bool {
	for _, a := range []string{m.from, m.to} {
		for _, b := range []string{n.from, n.to} {
			if below(a, b) || below(b, a) {
				return true
			}
		}
	}
	return false
}

// before returns what is at a path when all moves were made and nothing else, and
// the move that brought it there, if one did.
func (p *Plan) before(ctx context.Context, moves []move, at string) (*File, *move, error) {
	for i := range moves {
		if m := &moves[i]; below(at, m.to) {
			f, err := p.ours.Lookup(ctx, m.from+at[len(m.to):])
			return f, m, err
		}
	}
	f, err := p.ours.Lookup(ctx, at)
	return f, nil, err
}

// moved returns the paths at which something may have to be done, or is different
// from ours, besides moves, in their order.
func (p *Plan) moved(ctx context.Context, moves []move) ([]string, error) {
	paths := map[string]bool{}
	for at := range p.entries {
		if !slices.ContainsFunc(moves, func(m move) bool { return below(at, m.from) }) {
			paths[at] = true
		}
	}
	for _, m := range moves {
		err := walk(ctx, p.ours, m.from, func(at string) error {
			paths[m.to+at[len(m.from):]] = true
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return slices.Sorted(maps.Keys(paths)), nil
}
