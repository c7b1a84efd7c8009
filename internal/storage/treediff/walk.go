package treediff

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"ramet.dev/ramet/internal/storage/cowfs"
	"ramet.dev/ramet/internal/storage/pages"
)

// step does one piece of work. Renamed files are found by its order: directories that both
// sides have are walked first, and all missing files are known before a directory that may
// have been renamed is taken for a new one.
func (d *differ) step() (done bool, err error) {
	if f, ok := pop(&d.todo); ok {
		return false, d.walk(f)
	}
	for _, side := range []int{before, after} {
		if f, ok := pop(&d.odd[side]); ok {
			return false, d.settle(side, f)
		}
	}
	// Directories that seemed to be at another path on the other side, and were not
	// found there: they are out of the filter's reach, or the tree is corrupt.
	for _, side := range []int{after, before} {
		for ino, ok := pop(&d.waiting[side]); ok; ino, ok = pop(&d.waiting[side]) {
			if f, ok := popFrom(d.looseDirs[side], ino); ok {
				return false, d.only(side, f)
			}
		}
	}
	return true, d.matchFiles()
}

func pop[T any](list *[]T) (x T, ok bool) {
	n := len(*list)
	if n == 0 {
		return x, false
	}
	x = (*list)[n-1]
	*list = (*list)[:n-1]
	return x, true
}

// enter records that the entries of a directory are looked at.
func (d *differ) enter(side int, f *found) error {
	if d.walked[side][f.node.Ino] {
		return fmt.Errorf("%w: directory %d has two names", pages.ErrCorrupt, f.node.Ino)
	}
	d.walked[side][f.node.Ino] = true
	return nil
}

// walk looks at the names of a directory that both sides have.
func (d *differ) walk(p dirPair) error {
	names := d.names[p[before].node.Ino]
	if p[before].node.Ino != p[after].node.Ino {
		names = map[string]bool{}
	}
	for side := range p {
		if err := d.enter(side, &p[side]); err != nil {
			return err
		}
		if p[before].node.Ino == p[after].node.Ino {
			continue
		}
		err := d.sides[side].Entries(p[side].node.Ino, func(name string, _ cowfs.Ino) error {
			names[name] = true
			return nil
		})
		if err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if err := d.name(p, name); err != nil {
			return err
		}
	}
	return nil
}

// name looks at a name in a directory that both sides have.
func (d *differ) name(p dirPair, name string) error {
	if d.ctx.Err() != nil {
		return context.Cause(d.ctx)
	}
	var have [2]bool
	var entry dirPair
	for side := range p {
		var err error
		if entry[side], err = p[side].child(name); err != nil {
			return err
		}
		if entry[side].node.Ino, have[side], err = d.sides[side].Lookup(p[side].node.Ino, name); err != nil {
			return err
		}
	}
	ino := entry[before].node.Ino
	unchanged := have[before] && have[after] && ino == entry[after].node.Ino && !d.differs[ino] && d.names[ino] == nil
	if unchanged || !d.reaches(&entry[before]) {
		return nil
	}
	for side := range p {
		if err := d.load(side, &entry[side], have[side]); err != nil {
			return err
		}
	}
	if have[before] && have[after] {
		apart, err := d.apart(&entry)
		if err != nil {
			return err
		}
		if !apart {
			return d.both(entry[before], entry[after], Modified)
		}
	}
	for side := range p {
		if have[side] {
			d.odd[side] = append(d.odd[side], entry[side])
		}
	}
	return nil
}

// load reads the attributes of an entry.
func (d *differ) load(side int, f *found, have bool) (err error) {
	if have {
		f.node, err = d.sides[side].Node(f.node.Ino)
	}
	if errors.Is(err, cowfs.ErrNotExist) {
		return fmt.Errorf("%w: directory %d: entry %q: %w", pages.ErrCorrupt, f.Dir, f.Name, err)
	}
	return err
}

// child returns the file with a name in a directory, without its node.
func (f *found) child(name string) (c found, err error) {
	c.Link = cowfs.Link{Dir: f.node.Ino, Name: name}
	if c.path, err = join(f.path, name); err == nil {
		c.other, err = join(f.other, name)
	}
	return c, err
}

// reaches returns whether a file or one below it may be selected by the path of either side:
// a filter for the new path of a directory also selects the files that are not in it any
// more.
func (d *differ) reaches(f *found) bool {
	return d.filter.reaches(f.path) || f.other != f.path && d.filter.reaches(f.other)
}

func join(dir, name string) (string, error) {
	if len(dir)+len(name) > cowfs.MaxPathLen {
		return "", fmt.Errorf("%w: a path is longer than %d bytes", cowfs.ErrLimit, cowfs.MaxPathLen)
	}
	return strings.TrimSuffix(dir, "/") + "/" + name, nil
}

// apart returns whether two files of one name are reported as two changes, because one of
// them is a directory that the other side has at another path. Other files are not: a program
// that replaces a file by another usually means the same file.
func (d *differ) apart(entry *dirPair) (bool, error) {
	if entry[before].node.Ino == entry[after].node.Ino {
		return false, nil
	}
	for side := range entry {
		if elsewhere, err := d.elsewhere(side, &entry[side]); elsewhere || err != nil {
			return elsewhere, err
		}
	}
	return false, nil
}

// elsewhere returns whether the other side has the same directory at another path.
func (d *differ) elsewhere(side int, f *found) (bool, error) {
	if !f.node.Attr.IsDir() {
		return false, nil
	}
	if same, err := d.same(f.node.Ino); !same || err != nil {
		return false, err
	}
	other := d.sides[1-side]
	places, err := other.Links(f.node.Ino)
	if err != nil || len(places) > 0 {
		return err == nil, err
	}
	// It was never moved there. If its path here is that of the image, the other side
	// does not have it.
	if ino, ok, err := other.ImageLookup(f.Dir, f.Name); err != nil || ok && ino == f.node.Ino {
		return false, err
	}
	places, err = other.ImageLinks(f.node.Ino)
	return len(places) > 0, err
}

// same returns whether a number means one file on both sides, see Changes.
func (d *differ) same(ino cowfs.Ino) (bool, error) {
	var nodes [2]cowfs.Node
	for side := range nodes {
		var err error
		if nodes[side], err = d.sides[side].Node(ino); errors.Is(err, cowfs.ErrNotExist) {
			return false, nil
		} else if err != nil {
			return false, err
		}
	}
	a, b := &nodes[before].Attr, &nodes[after].Attr
	return a.Mode&cowfs.TypeMask == b.Mode&cowfs.TypeMask && (ino.OfImage() || a.Btime == b.Btime), nil
}

// both reports the differences of a file that both sides have, and has the files below
// looked at.
func (d *differ) both(a, b found, kind ChangeKind) error {
	diff, err := d.compare(&a.node, &b.node)
	if err != nil {
		return fmt.Errorf("%s: %w", b.path, err)
	}
	if kind == Renamed || diff.differs != 0 {
		c := Change{Kind: kind, Path: b.path, Old: a.node, New: b.node, Differs: diff.differs, Xattrs: diff.xattrs}
		if a.path != b.path || kind == Renamed {
			c.From = a.path
		}
		if err := d.report(c, a.path); err != nil {
			return err
		}
	}
	a.other, b.other = b.path, a.path
	switch wasDir, isDir := a.node.Attr.IsDir(), b.node.Attr.IsDir(); {
	case wasDir && isDir:
		d.todo = append(d.todo, dirPair{a, b})
	case wasDir:
		return d.expand(before, a)
	case isDir:
		return d.expand(after, b)
	}
	return nil
}

// report reports a change if the filter selects its path or also. It always reports a renamed
// file, as the changes below it that are selected cannot be read without it.
func (d *differ) report(c Change, also string) error {
	if c.Kind != Renamed && !d.filter.Selects(c.Path) && !d.filter.Selects(also) {
		return nil
	}
	d.out = append(d.out, c)
	if d.paths += len(c.Path) + len(c.From); d.paths > maxPaths || len(d.out) > maxChanges {
		return fmt.Errorf("%w: more than %d, or of more than %d bytes of paths", cowfs.ErrLimit, maxChanges, maxPaths)
	}
	return nil
}

// settle decides about a file whose path the other side does not have.
func (d *differ) settle(side int, f found) error {
	maybe, err := d.same(f.node.Ino)
	if err != nil {
		return err
	}
	if !maybe {
		return d.only(side, f)
	}
	if !f.node.Attr.IsDir() {
		d.loose[side][f.node.Ino] = append(d.loose[side][f.node.Ino], f)
		return nil
	}
	if twin, ok := popFrom(d.looseDirs[1-side], f.node.Ino); ok {
		if side == before {
			return d.both(f, twin, Renamed)
		}
		return d.both(twin, f, Renamed)
	}
	// A file of the side after waits in any case: of the side before all files were seen
	// except those below directories that will be found to be renamed.
	if side == before {
		if maybe, err = d.elsewhere(side, &f); err != nil {
			return err
		}
		if !maybe {
			return d.only(side, f)
		}
	}
	d.looseDirs[side][f.node.Ino] = append(d.looseDirs[side][f.node.Ino], f)
	d.waiting[side] = append(d.waiting[side], f.node.Ino)
	return nil
}

// popFrom takes the last file of a list in a map.
func popFrom(loose map[cowfs.Ino][]found, ino cowfs.Ino) (found, bool) {
	list := loose[ino]
	f, ok := pop(&list)
	if len(list) > 0 {
		loose[ino] = list
	} else {
		delete(loose, ino)
	}
	return f, ok
}

// only reports a file that one side does not have, with all files below.
func (d *differ) only(side int, f found) error {
	c := Change{Kind: Deleted, Path: f.path, Old: f.node}
	if side == after {
		c = Change{Kind: Added, Path: f.path, New: f.node}
	}
	if err := d.report(c, f.other); err != nil || !f.node.Attr.IsDir() {
		return err
	}
	return d.expand(side, f)
}

// expand has all entries of a directory settled, which the other side does not have.
func (d *differ) expand(side int, dir found) error {
	if err := d.enter(side, &dir); err != nil {
		return err
	}
	return d.sides[side].Entries(dir.node.Ino, func(name string, ino cowfs.Ino) error {
		if d.ctx.Err() != nil {
			return context.Cause(d.ctx)
		}
		f, err := dir.child(name)
		if err != nil || !d.reaches(&f) {
			return err
		}
		f.node.Ino = ino
		if err := d.load(side, &f, true); err != nil {
			return err
		}
		d.odd[side] = append(d.odd[side], f)
		return nil
	})
}

// matchFiles pairs the names that each file lost with those that it got.
func (d *differ) matchFiles() error {
	byPath := func(a, b found) int { return strings.Compare(a.path, b.path) }
	for _, ino := range slices.Sorted(maps.Keys(d.loose[before])) {
		gone, came := d.loose[before][ino], d.loose[after][ino]
		slices.SortFunc(gone, byPath)
		slices.SortFunc(came, byPath)
		n := min(len(gone), len(came))
		for i := range n {
			if err := d.both(gone[i], came[i], Renamed); err != nil {
				return err
			}
		}
		for _, f := range gone[n:] {
			if err := d.only(before, f); err != nil {
				return err
			}
		}
		d.loose[after][ino] = came[n:]
	}
	for _, list := range d.loose[after] {
		for _, f := range list {
			if err := d.only(after, f); err != nil {
				return err
			}
		}
	}
	return nil
}
