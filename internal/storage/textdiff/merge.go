package textdiff

import (
	"context"
	"slices"
	"strings"
)

// Chunk is a part of a merge. The parts of a side, joined in order, are that side.
type Chunk struct {
	// Base, Ours and Theirs are the lines of each text. BaseAt, OursAt and TheirsAt are
	// the indices of their first lines.
	Base, Ours, Theirs       []string
	BaseAt, OursAt, TheirsAt int
	// Conflict says that both sides changed the part in different ways.
	Conflict bool
}

// Side is one of the two texts that were made from a base.
type Side int

// The sides.
const (
	Ours Side = iota
	Theirs
)

// Merge combines the changes of two texts that were made from a base. Changes that touch
// each other are a conflict, also if no line was changed by both sides: neither side has
// seen the neighbouring change of the other. The same change on both sides is no conflict.
// Merge fails only when ctx ends.
func Merge(ctx context.Context, base, ours, theirs []byte) ([]Chunk, error) {
	m := merger{base: Lines(base)}
	for side, text := range [...][]byte{Ours: ours, Theirs: theirs} {
		m.text[side] = Lines(text)
		var err error
		if m.edits[side], err = Script(ctx, m.base, m.text[side]); err != nil {
			return nil, err
		}
	}
	for len(m.edits[Ours])+len(m.edits[Theirs]) > 0 {
		lo := m.next()
		m.emit(lo, [2]bool{}) // equal up to here
		hi, edited := m.group(lo)
		m.emit(hi, edited)
	}
	m.emit(len(m.base), [2]bool{})
	return m.chunks, nil
}

// merger is a merge under way. The lines before at have been emitted.
type merger struct {
	base   []string
	text   [2][]string
	edits  [2][]Edit // those that were not emitted yet
	at     int       // in base
	sideAt [2]int
	ahead  [2]int // lines that each side has more than base, up to the group's end
	chunks []Chunk
}

// next returns the index in base at which the next edit of any side begins.
func (m *merger) next() int {
	lo := len(m.base)
	for _, e := range m.edits {
		if len(e) > 0 {
			lo = min(lo, e[0].A0)
		}
	}
	return lo
}

// group takes the edits from lo on that touch each other. It returns the index in base at
// which they end, and which sides have some of them.
func (m *merger) group(lo int) (hi int, edited [2]bool) {
	hi = lo
	for again := true; again; {
		again = false
		for side := range m.edits {
			if e := m.edits[side]; len(e) > 0 && e[0].A0 <= hi {
				hi = max(hi, e[0].A1)
				m.ahead[side] += e[0].B1 - e[0].B0 - (e[0].A1 - e[0].A0)
				m.edits[side] = e[1:]
				edited[side], again = true, true
			}
		}
	}
	return hi, edited
}

// emit adds the lines before hi in base, and those of the sides beside them, as a chunk,
// unless it is empty.
func (m *merger) emit(hi int, edited [2]bool) {
	c := Chunk{Base: m.base[m.at:hi], BaseAt: m.at, OursAt: m.sideAt[Ours], TheirsAt: m.sideAt[Theirs]}
	var part [2][]string
	for side := range part {
		end := hi + m.ahead[side]
		part[side] = m.text[side][m.sideAt[side]:end]
		m.sideAt[side] = end
	}
	m.at = hi
	c.Ours, c.Theirs = part[Ours], part[Theirs]
	c.Conflict = edited[Ours] && edited[Theirs] && !slices.Equal(c.Ours, c.Theirs)
	if len(c.Base)+len(c.Ours)+len(c.Theirs) > 0 {
		m.chunks = append(m.chunks, c)
	}
}

// Text returns the merged text. Conflicts are decided for prefer.
func Text(chunks []Chunk, prefer Side) []byte {
	var out strings.Builder
	for i := range chunks {
		c := &chunks[i]
		part := c.Ours
		if c.Conflict && prefer == Theirs || !c.Conflict && slices.Equal(c.Ours, c.Base) {
			part = c.Theirs
		}
		for _, l := range part {
			out.WriteString(l)
		}
	}
	return []byte(out.String())
}
