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

// ChangeKind says what happened to a path.
type ChangeKind uint8

// The kinds of change. A path of which something differs is Modified, also if it
// is a file of another type. One that is Renamed may differ too.
const (
	Deleted ChangeKind = iota
	Added
	Modified
	Renamed
)

// Differs is a set of what can differ of a file that both sides have.
type Differs uint8

// What can differ. Of directories data never does, nor does it of files that are
// not of the same type: DiffersType says all then.
const (
	DiffersType Differs = 1 << iota
	DiffersData
	DiffersTarget
	DiffersDevice
	DiffersMode
	DiffersOwner
	DiffersXattrs
)

// Change is a path that differs between two sides. Times, and what follows from
// other changes, are no difference.
type Change struct {
	Kind ChangeKind
	// Path is where the file is on the second side, or on the first if it is
	// deleted.
	Path string
	// From is where it is on the first side, if that is another path: because it
	// was renamed, or a directory above it.
	From     string
	Old, New cowfs.Node // Old is zero if it was added, New if it was deleted
	Differs  Differs
	// Xattrs are the names of the extended attributes that differ.
	Xattrs []string
}

// Filter selects paths. The zero value selects all.
type Filter struct {
	// Only are clean absolute paths that are selected with all below, nil for all.
	Only []string
	// Except are those that are not.
	Except []string
}

// Selects says whether the filter has a path.
func (f *Filter) Selects(path string) bool {
	in := func(dir string) bool { return Below(path, dir) }
	return (f.Only == nil || slices.ContainsFunc(f.Only, in)) && !slices.ContainsFunc(f.Except, in)
}

// reaches says whether the filter may have a path or something below.
func (f *Filter) reaches(path string) bool {
	in := func(dir string) bool { return Below(path, dir) }
	on := func(dir string) bool { return Below(path, dir) || Below(dir, path) }
	return (f.Only == nil || slices.ContainsFunc(f.Only, on)) && !slices.ContainsFunc(f.Except, in)
}

// Below says whether a path is dir or below it.
func Below(path, dir string) bool {
	return strings.HasPrefix(path, dir) && (len(path) == len(dir) || dir == "/" || path[len(dir)] == '/')
}

const (
	// maxChanges bounds the changes of one answer, and maxPaths the bytes of their
	// paths together.
	maxChanges = 1 << 20
	maxPaths   = 256 << 20
	// maxDirty bounds the inodes that are looked at.
	maxDirty = 8 << 20
)

// Changes returns what differs between the files of two trees above one image, in
// the order of paths. It takes time in proportion to what changed since the trees
// had a common ancestor: pages that they share are not read.
//
// What is compared is paths: which inode a path leads to, and what that is, is
// decided by the keys of the inodes on the way. Where a directory has the same
// number on both sides, only those names in it are looked at whose keys differ, or
// through which something is found that differs. All others lead to the same keys,
// so to the same files, whatever their numbers mean. So the answer does not depend
// on whether a number stands for one file or for two.
//
// Only whether something was renamed does. Siblings give out the same numbers
// after they parted. A number stands for the same file if that came with the
// image, or was born at the same time, in nanoseconds of a clock that goes on
// through forks and that the guest cannot set: two files that have that and the
// number in common were one before the fork. Should that ever be wrong, a file is
// called renamed, and all in which it differs is still listed, as for any other.
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

// differ compares two sides, see Changes.
type differ struct {
	ctx    context.Context
	filter Filter
	sides  [2]*cowfs.Files
	out    []Change
	paths  int // bytes of the paths in out
	dirty  int // entries of differs and names

	differs map[cowfs.Ino]bool            // inodes of which something may differ
	names   map[cowfs.Ino]map[string]bool // what to look at in directories that both sides have

	// todo are directories that both sides have.
	todo []dirPair
	// odd are files that one side has at a path and the other has not.
	odd [2][]found
	// loose and looseDirs are those of them that the other side may have elsewhere,
	// waiting the numbers of the latter as they came.
	loose, looseDirs [2]map[cowfs.Ino][]found
	waiting          [2][]cowfs.Ino
	// walked are the directories whose entries were looked at: none is twice, so
	// directories that contain each other come to an end.
	walked [2]map[cowfs.Ino]bool

	compared map[[2]cowfs.Ino]comparison // files with several names
	left     int64                       // bytes that may still be compared
	bufs     [2][]byte                   // for comparing
}

// found is a file at a path of one side.
type found struct {
	cowfs.Link
	path string
	// other is its path on the other side, should it be there. It is another one
	// below what was renamed.
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

// touched notes what is stored differently.
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

// look makes a name be looked at in a directory.
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

// markAbove makes what differs be found from the root: its names are looked at,
// and those of all directories above it.
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

// places returns where either side has a file. What one side left where the image
// has it, the other has there too, or else the entry differs and is looked at
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
