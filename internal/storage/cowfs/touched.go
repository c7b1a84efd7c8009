package cowfs

import "ramet.dev/ramet/internal/storage/btree"

// Touched is a part of a file that is stored differently in two trees.
type Touched struct {
	Ino Ino
	// Entry says that the part is the entry Name of the directory Ino. Otherwise it is
	// attributes, contents, extended attributes or the target of a link.
	Entry bool
	Name  string
}

// EachTouched calls fn for the parts of files that are stored differently in two trees above
// one image, in the order of inodes, until fn returns an error. Attributes that differ in
// times only are left out. Pages that the trees share are not read.
func EachTouched(a, b *Files, fn func(Touched) error) error {
	return btree.Diff(a.view, b.view, dataOf, func(k, old, new []byte) error {
		ino, kind, rest := keyOf(k)
		switch kind {
		case keyEntry:
			return fn(Touched{Ino: ino, Entry: true, Name: string(rest)})
		case keyAttr:
			if same, err := sameValues(a, b, ino, old, new); same || err != nil {
				return err
			}
		case keyParent:
			return nil // it follows from an entry, or only says that the inode changed
		}
		return fn(Touched{Ino: ino})
	})
}

// dataOf returns the pages that an entry of a tree refers to.
func dataOf(key, val []byte) btree.DataPages {
	if _, kind, _ := keyOf(key); kind != keyExtent {
		return btree.DataPages{}
	}
	e, err := extentOf(key, val)
	if err != nil {
		return btree.DataPages{}
	}
	return btree.DataPages{Start: e.page, N: e.n, Born: e.born}
}

// sameValues returns whether the stored attributes of an inode differ in times only. nil
// stands for those of the image.
func sameValues(a, b *Files, ino Ino, old, new []byte) (bool, error) {
	var attrs [2]Attr
	for i, val := range [2][]byte{old, new} {
		if val != nil {
			if err := attrs[i].Decode(val); err != nil {
				return false, err
			}
		} else if in, err := [2]*Files{a, b}[i].imageInode(ino); err != nil {
			return false, nil // this side has no such file
		} else {
			attrs[i] = imageAttr(&in)
		}
	}
	return sameAttr(&attrs[0], &attrs[1]) && attrs[0].ImageEnd == attrs[1].ImageEnd, nil
}

// sameAttr returns whether attributes differ in times only. Data may differ even so.
func sameAttr(a, b *Attr) bool {
	return a.Mode == b.Mode && a.UID == b.UID && a.GID == b.GID && a.Major == b.Major && a.Minor == b.Minor &&
		(a.Size == b.Size || a.IsDir())
}
