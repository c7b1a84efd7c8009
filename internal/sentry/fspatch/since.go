package fspatch

import (
	gocontext "context"
	"slices"

	"gvisor.dev/gvisor/pkg/sentry/vfs"

	"ramet.dev/ramet/internal/sentry/rootfs"
	"ramet.dev/ramet/internal/storage/btree"
	"ramet.dev/ramet/internal/storage/cowfs"
	"ramet.dev/ramet/internal/storage/pages"
	"ramet.dev/ramet/internal/storage/treediff"
)

// sinceID names the pin that since holds while it looks.
const sinceID = "since"

// since returns the changes of a root file system since the pin id was made, at which time
// the tree's root was root. It takes time in proportion to them. ok is false if there is no
// such pin.
func since(fs *vfs.Filesystem, id string, root pages.Page) (changes []treediff.Change, ok bool, err error) {
	tree := rootfs.Tree(fs)
	if !slices.Contains(tree.Pins(), id) {
		return nil, false, nil
	}
	state, segments, err := rootfs.Pin(fs, sinceID)
	if err != nil {
		return nil, true, err
	}
	defer rootfs.Release(fs, sinceID)
	if state.Root == root {
		return nil, true, nil
	}
	was, err := cowfs.NewFiles(btree.OpenView(segments, root), tree.Image())
	if err != nil {
		return nil, true, err
	}
	now, err := cowfs.NewFiles(btree.OpenView(segments, state.Root), tree.Image())
	if err != nil {
		return nil, true, err
	}
	changes, err = treediff.Changes(gocontext.Background(), was, now, treediff.Filter{})
	return changes, true, err
}
