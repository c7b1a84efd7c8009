package merge

import (
	"context"
	"maps"
	"path"
	"slices"
	"strings"
)

// move is a rename by a side that can be made in ours as well, with all files below. Without
// moves a rename would remove files and create them at other paths. With them, nothing is
// copied, and a directory that a process works in stays the same directory.
type move struct{ from, to string }

// moves are the moves of a plan. No path of one is at or below a path of another.
type moves struct {
	all      []*move
	from, to map[string]*move
	above    map[string]bool // paths that have an end of a move below them
	// paths are, in their order, the paths that may need an operation or differ from
	// ours, besides moves.
	paths []string
}

// under returns the move whose end is at or above a path, or nil. ends are moves by their
// ends of one kind.
func under(ends map[string]*move, at string) *move {
	for len(ends) > 0 {
		if m := ends[at]; m != nil || at == "/" {
			return m
		}
		at = path.Dir(at)
	}
	return nil
}

// touches returns whether a path is at, above or below an end of a move.
func (ms *moves) touches(at string) bool {
	return ms.above[at] || under(ms.from, at) != nil || under(ms.to, at) != nil
}

func (ms *moves) add(m *move) {
	ms.all = append(ms.all, m)
	ms.from[m.from], ms.to[m.to] = m, m
	for _, at := range []string{m.from, m.to} {
		for at != "/" {
			if at = path.Dir(at); ms.above[at] {
				break // and so are the paths above it
			}
			ms.above[at] = true
		}
	}
}

// after returns the path that a path of ours has after all moves.
func (ms *moves) after(at string) string {
	if m := under(ms.from, at); m != nil {
		return m.to + at[len(m.from):]
	}
	return at
}

// findMoves finds the moves: all files of one leave the old path, the same file is at the
// new path, and ours has no file there. A file whose contents change as well is no move: it
// is made anew. The moves are found once after each Merge.
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

// movable returns whether a rename by a side, of which f is planned at the new path, can be
// made in ours.
func (p *Plan) movable(ctx context.Context, side *Side, m *move, f *File) (bool, error) {
	var have [4]*File // the last must be nil
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
		return false, nil // see linked
	}
	return sameData(ctx, old, f)
}

// below returns whether a path is dir or below it.
func below(path, dir string) bool {
	return strings.HasPrefix(path, dir) && (len(path) == len(dir) || dir == "/" || path[len(dir)] == '/')
}

// before returns the file that is at a path after all moves and no other operation, and the
// move that brought it there, if there is one.
func (p *Plan) before(ctx context.Context, ms *moves, at string) (*File, *move, error) {
	m := under(ms.to, at)
	if m != nil {
		at = m.from + at[len(m.to):]
	}
	f, err := p.ours.Lookup(ctx, at)
	return f, m, err
}

// besides returns moves.paths.
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
