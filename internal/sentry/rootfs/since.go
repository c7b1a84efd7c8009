package rootfs

import (
	gocontext "context"
	"slices"

	"gvisor.dev/gvisor/pkg/sentry/vfs"

	"ramet.dev/ramet/internal/storage/cowfs"
)

// sinceID names the pin that Since holds while it looks.
const sinceID = "since"

// Since returns what was changed since the pin id was made, at which time the
// tree's root was root. It takes time in proportion to that. ok is false if there
// is no such pin.
func Since(fsfs *vfs.Filesystem, id string, root cowfs.Page) (changes []cowfs.Change, ok bool, err error) {
	fs := fsfs.Impl().(*filesystem)
	if !slices.Contains(fs.tree.Pins(), id) {
		return nil, false, nil
	}
	state, segments, err := Pin(fsfs, sinceID)
	if err != nil {
		return nil, true, err
	}
	defer Release(fsfs, sinceID)
	if state.Root == root {
		return nil, true, nil
	}
	was, err := cowfs.NewFiles(cowfs.OpenView(segments, root), fs.image.image)
	if err != nil {
		return nil, true, err
	}
	now, err := cowfs.NewFiles(cowfs.OpenView(segments, state.Root), fs.image.image)
	if err != nil {
		return nil, true, err
	}
	changes, err = cowfs.Changes(gocontext.Background(), was, now, cowfs.Filter{})
	return changes, true, err
}
