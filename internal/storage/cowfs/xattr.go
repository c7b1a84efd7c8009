package cowfs

import (
	"fmt"
	"slices"

	"ramet.dev/ramet/internal/storage/erofs"
)

// MaxXattrName is the longest name of an extended attribute, in bytes, from
// xattr(7).
const MaxXattrName = erofs.MaxXattrName

// The extended attributes of an inode are all in the image or all in the tree. Those of the
// image count until one of them is changed: then all are copied to the tree, and a key
// without a name says so. An inode without any in the image needs no such key.

func xattrKey(buf *[keyRoom]byte, ino Ino, name string) []byte {
	return append(append(key(buf, ino, keyXattr), name...), 0)
}

// xattrSource is a tree or a view.
type xattrSource interface {
	scanner
	Get(key []byte) (val []byte, ok bool, err error)
}

// imageXattrs returns the inode of the image that has ino's extended attributes, or false if
// the tree has them.
func imageXattrs(tree xattrSource, image *erofs.Reader, ino Ino) (in erofs.Inode, ok bool, err error) {
	if image == nil || !ino.OfImage() {
		return in, false, nil
	}
	if in, err = image.Inode(uint64(ino)); err != nil || !in.HasXattrs() {
		return in, false, err
	}
	var buf [keyRoom]byte
	_, copied, err := tree.Get(key(&buf, ino, keyXattr))
	return in, !copied && err == nil, err
}

// xattr returns an extended attribute, nil if there is none.
func xattr(tree xattrSource, image *erofs.Reader, ino Ino, name string) ([]byte, error) {
	in, ofImage, err := imageXattrs(tree, image, ino)
	if err != nil {
		return nil, err
	}
	if ofImage {
		val, ok, err := image.Xattr(&in, name)
		if !ok || err != nil {
			return nil, err
		}
		return append([]byte{}, val...), nil // not nil, however short it is
	}
	var buf [keyRoom]byte
	return getBlob(tree, xattrKey(&buf, ino, name))
}

// xattrNames returns the names of all extended attributes, in their order.
func xattrNames(tree xattrSource, image *erofs.Reader, ino Ino) ([]string, error) {
	var names []string
	in, ofImage, err := imageXattrs(tree, image, ino)
	if err != nil {
		return nil, err
	}
	if ofImage {
		err := image.Xattrs(&in, func(name string, _ []byte) bool {
			names = append(names, name)
			return true
		})
		slices.Sort(names)
		return slices.Compact(names), err
	}
	var buf [keyRoom]byte
	err = tree.Scan(key(&buf, ino, keyXattr), func(k, _ []byte) bool {
		i, kind, rest := keyOf(k)
		if i != ino || kind != keyXattr {
			return false
		}
		if len(rest) > 3 && rest[len(rest)-1] == 0 && rest[len(rest)-2] == 0 {
			names = append(names, string(rest[:len(rest)-3]))
		}
		return true
	})
	return names, err
}

// SetXattr stores an extended attribute.
func (f *FS) SetXattr(ino Ino, name string, val []byte) error {
	if name == "" || len(name) > MaxXattrName {
		return fmt.Errorf("extended attribute's name has %d bytes, allowed are 1 to %d", len(name), MaxXattrName)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.ownXattrs(ino); err != nil {
		return err
	}
	return f.replaceXattr(ino, name, val)
}

func (f *FS) replaceXattr(ino Ino, name string, val []byte) error {
	var buf [keyRoom]byte
	k := xattrKey(&buf, ino, name)
	if _, err := f.deleteBlob(k); err != nil {
		return err
	}
	return f.putBlob(k, val)
}

// ownXattrs copies the extended attributes of the image to the tree, if that has not been
// done. The key that makes them count comes last: after an earlier failure the image's still
// count.
func (f *FS) ownXattrs(ino Ino) error {
	in, ofImage, err := imageXattrs(f.tree, f.image, ino)
	if !ofImage || err != nil {
		return err
	}
	names, err := xattrNames(f.tree, f.image, ino)
	if err != nil {
		return err
	}
	for _, name := range names {
		val, _, err := f.image.Xattr(&in, name)
		if err != nil {
			return err
		}
		if err := f.replaceXattr(ino, name, val); err != nil {
			return err
		}
	}
	var buf [keyRoom]byte
	return f.tree.Put(key(&buf, ino, keyXattr), nil)
}

// Xattr returns an extended attribute, or false.
func (f *FS) Xattr(ino Ino, name string) ([]byte, bool, error) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	b, err := xattr(f.tree, f.image, ino, name)
	return b, b != nil, err
}

// RemoveXattr removes an extended attribute and returns whether there was one.
func (f *FS) RemoveXattr(ino Ino, name string) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if b, err := xattr(f.tree, f.image, ino, name); b == nil || err != nil {
		return false, err
	}
	if err := f.ownXattrs(ino); err != nil {
		return false, err
	}
	var buf [keyRoom]byte
	return f.deleteBlob(xattrKey(&buf, ino, name))
}

// Xattrs returns the names of all extended attributes, in their order.
func (f *FS) Xattrs(ino Ino) ([]string, error) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return xattrNames(f.tree, f.image, ino)
}
