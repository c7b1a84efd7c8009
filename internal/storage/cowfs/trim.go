package cowfs

import "ramet.dev/ramet/internal/storage/btree"

// Trim gives the pages that no pin needs back to the host. After it only pinned trees may be
// read: the present files are gone.
func (f *FS) Trim() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.tree.Trim(func(key, val []byte) (btree.DataPages, error) {
		if _, kind, _ := keyOf(key); kind != keyExtent {
			return btree.DataPages{}, nil
		}
		e, err := extentOf(key, val)
		return btree.DataPages{Start: e.page, N: e.n, Born: e.born}, err
	})
}
