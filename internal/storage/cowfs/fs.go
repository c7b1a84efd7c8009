package cowfs

import (
	"bytes"
	"errors"
	"fmt"

	"ramet.dev/ramet/internal/storage/btree"
	"ramet.dev/ramet/internal/storage/erofs"
	"ramet.dev/ramet/internal/storage/pages"
)

// ErrNotExist is returned for an inode that is neither in the tree nor in the
// image.
var ErrNotExist = errors.New("no such inode")

// FS is a tree that changes. Its methods may be called concurrently; two concurrent calls
// must not both change the same inode.
//
// It checks neither permissions nor the meaning of an operation: its caller does, which also
// composes renames and counts links.
type FS struct {
	// Each layer knows only those below it: core has attributes and space, contents has the
	// data of files, and FS has names, links and extended attributes.
	contents
}

// Open opens the tree that state describes, above the image in the mapped file
// data, which may be nil.
func Open(store *pages.Store, data []byte, state State) (*FS, error) {
	f := &FS{contents{
		core:   core{data: data, store: store, tree: btree.OpenTree(store, state.Root), state: state},
		recent: new(recentExtents),
	}}
	if data != nil {
		var err error
		if f.image, err = erofs.NewReader(data); err != nil {
			return nil, fmt.Errorf("open image: %w", err)
		}
	}
	if state.Root >= store.Base() {
		return nil, fmt.Errorf("%w: page %d cannot be the root", pages.ErrCorrupt, state.Root)
	}
	f.state.NextIno = max(state.NextIno, FirstIno)
	return f, nil
}

// Remove removes all keys of an inode without links. After an error some of them are left,
// and Remove may be called again.
func (f *FS) Remove(ino Ino) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.recent.forget(ino)
	var from [keyRoom]byte
	for {
		// A batch at a time, since a scan must not see changes.
		var keys [][]byte
		var extents []extent // of keys, those without pages for other keys
		err := f.tree.Scan(key(&from, ino, 0), func(k, val []byte) bool {
			i, kind, _ := keyOf(k)
			if i != ino {
				return false
			}
			var e extent
			if kind == keyExtent {
				if x, err := extentOf(k, val); err == nil {
					e = x
				}
			}
			keys, extents = append(keys, bytes.Clone(k)), append(extents, e)
			return len(keys) < 256
		})
		if err != nil {
			return err
		}
		for n, k := range keys {
			if _, err := f.tree.Delete(k); err != nil {
				return err
			}
			f.drop(extents[n])
		}
		if len(keys) < 256 {
			return nil
		}
	}
}
