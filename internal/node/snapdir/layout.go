package snapdir

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/snapfile"
	"ramet.dev/ramet/internal/storage/btree"
	"ramet.dev/ramet/internal/storage/cowfs"
	"ramet.dev/ramet/internal/storage/hostfs"
	"ramet.dev/ramet/internal/storage/pages"
)

// kind is one of the two things that a snapshot on disk consists of besides its
// state: memory, and pages of files.
type kind string

const (
	kindMemory kind = "memory"
	kindFiles  kind = "files"
)

// extents returns what a snapshot has of a kind.
func (k kind) extents(s *snapfile.Snapshot) []snapfile.Extent {
	if k == kindMemory {
		return s.Table
	}
	list := make([]snapfile.Extent, len(s.Files.Segments))
	for i, seg := range s.Files.Segments {
		list[i] = snapfile.Extent{Range: snapfile.Range{Start: seg.Start * snapfile.PageSize, End: seg.End * snapfile.PageSize}, Gen: seg.Gen}
	}
	return list
}

// set replaces it.
func (k kind) set(s *snapfile.Snapshot, list []snapfile.Extent) {
	if k == kindMemory {
		s.Table = list
		return
	}
	s.Files.Segments = make([]snapfile.FileSegment, len(list))
	for i, e := range list {
		s.Files.Segments[i] = snapfile.FileSegment{Start: e.Start / snapfile.PageSize, End: e.End / snapfile.PageSize, Gen: e.Gen}
	}
}

// Bounds of what is shared with other snapshots. Each piece of memory is a mapping
// of the process that it is loaded into, and so is each piece of files, which are
// fewer; what is above is copied.
const (
	maxMorePieces = 4096
	maxMoreFiles  = 256
	// MaxNeeds bounds how many snapshots one may refer to; each is two generations.
	MaxNeeds = 24
	// block is what is compared at once: smaller pieces are not worth a mapping.
	block = 64 << 10
)

func (k kind) maxMore() int {
	if k == kindMemory {
		return maxMorePieces
	}
	return maxMoreFiles
}

// file returns the name of the file of a kind in a version of a snapshot, StateFile
// that of the state, and versioned any.
func (k kind) file(version int) string { return versioned(string(k), version) }

// StateFile returns the name of the state file of a version of a snapshot.
func StateFile(version int) string { return versioned("state", version) }

func versioned(name string, version int) string {
	if version == 0 {
		return name
	}
	return name + "." + strconv.Itoa(version)
}

// Owner returns the snapshot on disk, and its file, that the name of a generation
// refers to. ok is false of generations that are not on disk.
func Owner(generation string) (id, file string, ok bool) {
	id, file, ok = strings.Cut(generation, "/")
	name, _, _ := strings.Cut(file, ".")
	return id, file, ok && api.IsID(api.KindSnapshot, id) && (name == string(kindMemory) || name == string(kindFiles)) && !strings.Contains(file, "/")
}

// layout writes the contents of a snapshot to disk: what other snapshots have is
// referred to, and the rest copied.
type layout struct {
	Contents
	id      string
	version int
	fs      hostfs.FS
	dir     string
	// refers says whose parts may be referred to.
	refers func(id string) bool
	// base is what may have the same at the same place, or nil.
	base *Contents

	parts map[string]Part
	names []string // the generations of the result
	space int64
}

// write writes all parts, and makes snap refer to where things are then.
func (l *layout) write(ctx context.Context) error {
	l.parts = map[string]Part{}
	before := slices.Clone(l.Snap.Generations)
	for _, k := range []kind{kindMemory, kindFiles} {
		list, own, err := l.place(ctx, k, before)
		if err != nil {
			return err
		}
		if len(own) > 0 {
			p, space, err := writePart(ctx, l.fs, filepath.Join(l.dir, k.file(l.version)), own, l.Files)
			if err != nil {
				return err
			}
			l.parts[k.file(l.version)] = p
			l.space += space
		}
		k.set(l.Snap, list)
	}
	l.Snap.Generations = l.names
	return nil
}

// place returns where each extent of a kind will be, and what has to be copied for
// that. before are the names that the extents' generations have now.
func (l *layout) place(ctx context.Context, k kind, before []string) (list, own []snapfile.Extent, err error) {
	in := k.extents(l.Snap)
	names, base := slices.Clone(l.names), l.base
	var whole []snapfile.Range
	if k == kindFiles && base != nil {
		if whole, err = l.runs(); err != nil {
			base = nil // the sandbox's tree makes no sense: nothing is to be shared with it
		}
	}
	list, own, err = l.placeWith(ctx, k, in, before, newComparison(k, base, whole))
	if err != nil || len(list) <= len(in)+k.maxMore() {
		return list, own, err
	}
	l.names = names
	return l.placeWith(ctx, k, in, before, newComparison(k, nil, nil))
}

// runs returns the ranges of pages of files that must stay in one piece.
func (l *layout) runs() ([]snapfile.Range, error) {
	var segments []pages.Segment
	for _, s := range l.Snap.Files.Segments {
		segments = append(segments, pages.Segment{Start: pages.Page(s.Start), End: pages.Page(s.End), File: l.Files[s.Gen]})
	}
	runs, err := cowfs.Runs(btree.OpenView(segments, pages.Page(l.Snap.Files.Root)))
	if err != nil {
		return nil, err
	}
	list := make([]snapfile.Range, len(runs))
	for i, r := range runs {
		list[i] = snapfile.Range{Start: uint64(r.Start) * snapfile.PageSize, End: uint64(r.End) * snapfile.PageSize}
	}
	return list, nil
}

func (l *layout) placeWith(ctx context.Context, k kind, in []snapfile.Extent, before []string, cmp *comparison) (list, own []snapfile.Extent, err error) {
	self := l.id + "/" + k.file(l.version)
	add := func(r snapfile.Range, name string) {
		gen := l.generation(name)
		if n := len(list); n > 0 && list[n-1].Gen == gen && list[n-1].End == r.Start {
			list[n-1].End = r.End
			return
		}
		list = append(list, snapfile.Extent{Range: r, Gen: gen})
	}
	for _, e := range in {
		if id, _, ok := Owner(before[e.Gen]); ok && l.refers(id) {
			add(e.Range, before[e.Gen])
			continue
		}
		err := cmp.each(ctx, l.Files[e.Gen], e.Range, func(r snapfile.Range, same string) {
			if id, _, _ := Owner(same); same != "" && l.refers(id) {
				add(r, same)
				return
			}
			add(r, self)
			if n := len(own); n > 0 && own[n-1].Gen == e.Gen && own[n-1].End == r.Start {
				own[n-1].End = r.End
				return
			}
			own = append(own, snapfile.Extent{Range: r, Gen: e.Gen})
		})
		if err != nil {
			return nil, nil, err
		}
	}
	return list, own, nil
}

// generation returns the number of a generation of the result.
func (l *layout) generation(name string) uint32 {
	if i := slices.Index(l.names, name); i >= 0 {
		return uint32(i)
	}
	l.names = append(l.names, name)
	return uint32(len(l.names) - 1)
}

// comparison finds what a base has already.
type comparison struct {
	base      *Contents
	list      []snapfile.Extent // what of the base is not passed yet
	whole     []snapfile.Range  // what must stay in one piece and is not passed yet
	now, then []byte
}

func newComparison(k kind, base *Contents, whole []snapfile.Range) *comparison {
	c := &comparison{base: base, whole: whole}
	if base != nil {
		c.list, c.now, c.then = k.extents(base.Snap), make([]byte, block), make([]byte, block)
	}
	return c
}

// each calls fn for all of a range in a file, piece by piece, with the name of the
// base's generation that has the same in it, or "". Ranges come in their order.
func (c *comparison) each(ctx context.Context, f *os.File, r snapfile.Range, fn func(r snapfile.Range, same string)) error {
	for r.Start < r.End {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		for len(c.list) > 0 && c.list[0].End <= r.Start {
			c.list = c.list[1:]
		}
		if len(c.list) == 0 || c.list[0].Start >= r.End {
			fn(r, "")
			return nil
		}
		e := c.list[0]
		piece := snapfile.Range{Start: r.Start, End: c.unbroken(min(r.End, max(e.Start, min(e.End, r.Start+block))))}
		name := ""
		if e.Start <= piece.Start && piece.End <= e.End {
			same, err := c.same(f, c.base.Files[e.Gen], piece)
			if err != nil {
				return err
			}
			if same {
				name = c.base.Snap.Generations[e.Gen]
			}
		}
		fn(piece, name)
		r.Start = piece.End
	}
	return nil
}

// unbroken returns where a piece may end that would end at a place: there, or where
// what has to stay in one piece ends.
func (c *comparison) unbroken(end uint64) uint64 {
	for len(c.whole) > 0 && c.whole[0].End <= end {
		c.whole = c.whole[1:]
	}
	if len(c.whole) > 0 && c.whole[0].Start < end {
		return c.whole[0].End
	}
	return end
}

// same reports whether a range of two files is the same, and more than zeros.
func (c *comparison) same(a, b *os.File, r snapfile.Range) (bool, error) {
	zero := true
	for r.Start < r.End {
		n := int(min(r.Length(), block))
		if err := errors.Join(readFull(a, c.now[:n], r.Start), readFull(b, c.then[:n], r.Start)); err != nil {
			return false, err
		}
		if !bytes.Equal(c.now[:n], c.then[:n]) {
			return false, nil
		}
		for at := 0; at < n && zero; at += snapfile.PageSize {
			zero = bytes.Equal(c.now[at:at+snapfile.PageSize], zeroPage[:])
		}
		r.Start += uint64(n)
	}
	return !zero, nil
}

// readFull reads from a file that may end before.
func readFull(f *os.File, buf []byte, offset uint64) error {
	n, err := f.ReadAt(buf, int64(offset))
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	clear(buf[n:])
	return nil
}

// needs returns the snapshots that the result refers to.
func (l *layout) needs() []string {
	var list []string
	for _, name := range l.names {
		if id, _, ok := Owner(name); ok && id != l.id && !slices.Contains(list, id) {
			list = append(list, id)
		}
	}
	return list
}

// Weigh adds to bytes how much of snap each snapshot on disk has.
func Weigh(bytes map[string]uint64, snap *snapfile.Snapshot) {
	for _, k := range []kind{kindMemory, kindFiles} {
		for _, e := range k.extents(snap) {
			if id, _, ok := Owner(snap.Generations[e.Gen]); ok {
				bytes[id] += e.Length()
			}
		}
	}
}

// Sizes returns how long the file of each generation of snap has to be.
func Sizes(snap *snapfile.Snapshot) []int64 {
	sizes := make([]int64, len(snap.Generations))
	for _, k := range []kind{kindMemory, kindFiles} {
		for _, e := range k.extents(snap) {
			sizes[e.Gen] = max(sizes[e.Gen], int64(e.End))
		}
	}
	return sizes
}
