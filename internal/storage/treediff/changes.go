package treediff

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"ramet.dev/ramet/internal/storage/cowfs"
	"ramet.dev/ramet/internal/storage/pages"
)

// ChangeKind is the kind of a change.
type ChangeKind uint8

// The kinds of change. A path whose file differs is Modified, also if the file is of another
// type. A file that is Renamed may differ too.
const (
	Deleted ChangeKind = iota
	Added
	Modified
	Renamed
)

// Differs is a set of properties in which a file of both sides differs.
type Differs uint8

// The properties. Data of directories is never compared, nor that of files of different
// types: for these there is DiffersType only.
const (
	DiffersType Differs = 1 << iota
	DiffersData
	DiffersTarget
	DiffersDevice
	DiffersMode
	DiffersOwner
	DiffersXattrs
)

// Change is a path that differs between two sides. Times are no difference, nor are
// properties that follow from other changes.
type Change struct {
	Kind ChangeKind
	// Path is the path of the file on the second side, or on the first if it is deleted.
	Path string
	// From is its path on the first side if that is another one: because the file was
	// renamed, or a directory above it.
	From     string
	Old, New cowfs.Node // Old is zero if it was added, New if it was deleted
	Differs  Differs
	// Xattrs are the names of the extended attributes that differ.
	Xattrs []string
}

// Filter selects paths. The zero value selects all.
type Filter struct {
	// Only are clean absolute paths that are selected with all paths below. nil selects
	// all.
	Only []string
	// Except are paths that are not selected, nor any path below.
	Except []string
}

// Selects returns whether a path is selected.
func (f *Filter) Selects(path string) bool {
	in := func(dir string) bool { return Below(path, dir) }
	return (f.Only == nil || slices.ContainsFunc(f.Only, in)) && !slices.ContainsFunc(f.Except, in)
}

// reaches returns whether a path, or a path below it, may be selected.
func (f *Filter) reaches(path string) bool {
	in := func(dir string) bool { return Below(path, dir) }
	on := func(dir string) bool { return Below(path, dir) || Below(dir, path) }
	return (f.Only == nil || slices.ContainsFunc(f.Only, on)) && !slices.ContainsFunc(f.Except, in)
}

// Below returns whether a path is dir or below it.
func Below(path, dir string) bool {
	return strings.HasPrefix(path, dir) && (len(path) == len(dir) || dir == "/" || path[len(dir)] == '/')
}

const (
	// maxChanges bounds the changes of one answer, and maxPaths the bytes of their
	// paths together.
	maxChanges = 1 << 20
	maxPaths   = 256 << 20
	// maxDirty bounds the inodes and names that are looked at.
	maxDirty = 8 << 20
)

// Changes returns the differences between the files of two trees above one image, in the
// order of paths. It takes time in proportion to the changes since the trees had a common
// ancestor: pages that they share are not read.
//
// It compares paths. The keys of the inodes above a path decide which inode the path leads
// to, and the keys of that inode what file it is. Where a directory has the same number on
// both sides, only names are looked at whose keys differ, or that lead to a difference. All
// other names lead to the same keys, so to the same files, whatever their numbers mean. So
// the answer does not depend on whether a number means one file or two.
//
// Only "renamed" depends on it. Siblings hand out the same numbers for different files after
// they parted. A number means the same file on both sides if it is the image's, or if both
// files were born at the same time, in nanoseconds of a clock that goes on through forks and
// that the guest cannot set. Should that ever be wrong, a file is called renamed, and its
// differences are listed as for any other file.
func Changes(ctx context.Context, a, b *cowfs.Files, filter Filter) ([]Change, error) {
	d := differ{
		ctx: ctx, filter: filter, sides: [2]*cowfs.Files{a, b}, differs: map[cowfs.Ino]bool{}, names: map[cowfs.Ino]map[string]bool{},
		loose: [2]map[cowfs.Ino][]found{{}, {}}, looseDirs: [2]map[cowfs.Ino][]found{{}, {}}, walked: [2]map[cowfs.Ino]bool{{}, {}},
		compared: map[[2]cowfs.Ino]comparison{}, left: mayCompare(a, b),
	}
	if err := d.run(); err != nil {
		return nil, fmt.Errorf("compare files: %w", err)
	}
	slices.SortFunc(d.out, func(x, y Change) int {
		return cmp.Or(strings.Compare(x.Path, y.Path), cmp.Compare(x.Kind, y.Kind))
	})
	return d.out, nil
}

// The sides of a differ.
const (
	before = iota
	after
)

// differ is a comparison of two sides under way, see Changes.
type differ struct {
	ctx    context.Context
	filter Filter
	sides  [2]*cowfs.Files
	out    []Change
	paths  int // bytes of the paths in out
	dirty  int // entries of differs and names

	differs map[cowfs.Ino]bool            // inodes that may differ
	names   map[cowfs.Ino]map[string]bool // names to look at in directories that both sides have

	// todo are directories that both sides have.
	todo []dirPair
	// odd are files whose path the other side does not have.
	odd [2][]found
	// loose and looseDirs are those of them that the other side may have at another
	// path. waiting are the numbers of looseDirs in the order in which they were found.
	loose, looseDirs [2]map[cowfs.Ino][]found
	waiting          [2][]cowfs.Ino
	// walked are the directories whose entries were looked at. None is entered twice, so
	// directories that contain each other are found.
	walked [2]map[cowfs.Ino]bool

	compared map[[2]cowfs.Ino]comparison // files with several names
	left     int64                       // bytes that may still be compared
	bufs     [2][]byte                   // for comparing
}

// found is a file at a path of one side.
type found struct {
	cowfs.Link
	path string
	// other is the path that it would have on the other side. Below a renamed directory
	// the two paths differ.
	other string
	node  cowfs.Node
}

// dirPair is a directory that both sides have.
type dirPair [2]found

func (d *differ) run() error {
	if d.sides[before].Root() != d.sides[after].Root() {
		return errors.New("they are above different images")
	}
	if err := cowfs.EachTouched(d.sides[before], d.sides[after], d.touched); err != nil {
		return err
	}
	if err := d.markAbove(); err != nil {
		return err
	}
	root, err := d.root()
	if err != nil {
		return err
	}
	if err := d.both(root[before], root[after], Modified); err != nil {
		return err
	}
	for {
		if d.ctx.Err() != nil {
			return context.Cause(d.ctx)
		}
		done, err := d.step()
		if err != nil || done {
			return err
		}
	}
}

func (d *differ) root() (root dirPair, err error) {
	for i := range root {
		root[i].path, root[i].other = "/", "/"
		if root[i].node, err = d.sides[i].Node(d.sides[i].Root()); err != nil {
			return root, err
		}
		if !root[i].node.Attr.IsDir() {
			return root, fmt.Errorf("%w: the root is not a directory", pages.ErrCorrupt)
		}
	}
	return root, nil
}

// touched records an inode or entry that is stored differently.
func (d *differ) touched(t cowfs.Touched) error {
	if d.dirty%1024 == 0 && d.ctx.Err() != nil {
		return context.Cause(d.ctx)
	}
	if t.Entry {
		return d.look(t.Ino, t.Name)
	}
	if !d.differs[t.Ino] {
		d.differs[t.Ino] = true
		return d.count()
	}
	return nil
}

// look adds a name in a directory to the names to look at.
func (d *differ) look(dir cowfs.Ino, name string) error {
	names := d.names[dir]
	if names == nil {
		names = map[string]bool{}
		d.names[dir] = names
	}
	if names[name] {
		return nil
	}
	names[name] = true
	return d.count()
}

func (d *differ) count() error {
	if d.dirty++; d.dirty > maxDirty {
		return fmt.Errorf("%w: of more than %d files", cowfs.ErrLimit, maxDirty)
	}
	return nil
}

// markAbove makes differences reachable from the root: it adds the names of all inodes that
// may differ, and of all directories above them, to the names to look at.
func (d *differ) markAbove() error {
	var todo []cowfs.Ino
	for ino := range d.differs {
		todo = append(todo, ino)
	}
	for ino := range d.names {
		todo = append(todo, ino)
	}
	seen := map[cowfs.Ino]bool{d.sides[before].Root(): true}
	for len(todo) > 0 {
		ino := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if seen[ino] {
			continue
		}
		seen[ino] = true
		places, err := d.places(ino)
		if err != nil {
			return err
		}
		for _, p := range places {
			if err := d.look(p.Dir, p.Name); err != nil {
				return err
			}
			todo = append(todo, p.Dir)
		}
		if d.ctx.Err() != nil {
			return context.Cause(d.ctx)
		}
	}
	return nil
}

// places returns the entries by which either side has a file. If one side left a file at its
// place in the image, the other side has it there too, or the entry differs and is looked at
// anyway.
func (d *differ) places(ino cowfs.Ino) (all []cowfs.Link, err error) {
	for _, from := range []func(*cowfs.Files, cowfs.Ino) ([]cowfs.Link, error){(*cowfs.Files).Links, (*cowfs.Files).ImageLinks} {
		for _, f := range d.sides {
			more, err := from(f, ino)
			if err != nil {
				return nil, err
			}
			all = append(all, more...)
		}
		if len(all) > 0 && !d.sides[before].ManyNames(ino) {
			break
		}
	}
	return all, nil
}
