package merge

import (
	"context"
	"maps"
	"path"
	"slices"
	"strings"
)

// move is something that a side renamed and that can be renamed in ours as well,
// with all below. On paths it is much that goes and much that comes; but a directory
// that a process works in stays the one it is, and nothing is copied.
type move struct{ from, to string }

// moves are those of a plan. None has to do with another.
type moves struct {
	all      []*move
	from, to map[string]*move
	above    map[string]bool // what has an end of a move below it
	// paths are those at which something may have to be done, or is different from
	// ours, besides moves, in their order.
	paths []string
}

// under returns the move that a path is at or below the end of, if any, of those by
// one end.
func under(ends map[string]*move, at string) *move {
	for len(ends) > 0 {
		if m := ends[at]; m != nil || at == "/" {
			return m
		}
		at = path.Dir(at)
	}
	return nil
}

// touches says whether a path has to do with any move.
func (ms *moves) touches(at string) bool {
	return ms.above[at] || under(ms.from, at) != nil || under(ms.to, at) != nil
}

func (ms *moves) add(m *move) {
	ms.all = append(ms.all, m)
	ms.from[m.from], ms.to[m.to] = m, m
	for _, at := range []string{m.from, m.to} {
		for at != "/" {
			if at = path.Dir(at); ms.above[at] {
				break // and so is all above that
			}
			ms.above[at] = true
		}
	}
}

// after returns where a path of ours is when all moves were made.
func (ms *moves) after(at string) string {
	if m := under(ms.from, at); m != nil {
		return m.to + at[len(m.from):]
	}
	return at
}

// findMoves finds what is to be moved: all of it leaves the one place, the same file
// is at the other, and nothing is in its way. A file whose contents change as well is
// better made anew. It looks once after each Merge.
func (p *Plan) findMoves(ctx context.Context) (*moves, error) {
	if p.moves != nil {
		return p.moves, nil
	}
	ms := &moves{from: map[string]*move{}, to: map[string]*move{}, above: map[string]bool{}}
	for i := range p.sides {
		side := &p.sides[i]
		for _, c := range side.Theirs {
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			from, to := p.entries[c.From], p.entries[c.Path]
			if !c.Renamed || from == nil || to == nil || from.file != nil || to.file == nil || to.from != i {
				continue
			}
			m := &move{c.From, c.Path}
			if ms.touches(m.from) || ms.touches(m.to) || below(m.to, m.from) || below(m.from, m.to) {
				continue
			}
			if ok, err := p.movable(ctx, side, m, to.file); err != nil {
				return nil, err
			} else if ok {
				ms.add(m)
			}
		}
	}
	var err error
	if ms.paths, err = p.besides(ctx, ms); err != nil {
		return nil, err
	}
	p.moves = ms
	return ms, nil
}

func (p *Plan) movable(ctx context.Context, side *Side, m *move, f *File) (bool, error) {
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

// before returns what is at a path when all moves were made and nothing else, and
// the move that brought it there, if one did.
func (p *Plan) before(ctx context.Context, ms *moves, at string) (*File, *move, error) {
	m := under(ms.to, at)
	if m != nil {
		at = m.from + at[len(m.to):]
	}
	f, err := p.ours.Lookup(ctx, at)
	return f, m, err
}

// besides returns the paths of moves.
func (p *Plan) besides(ctx context.Context, ms *moves) ([]string, error) {
	paths := map[string]bool{}
	for at := range p.entries {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if under(ms.from, at) == nil {
			paths[at] = true
		}
	}
	for _, m := range ms.all {
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
