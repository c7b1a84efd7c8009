package fsview

import (
	"slices"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/storage/btree"
	"ramet.dev/ramet/internal/storage/cowfs"
)

// View is the files of a sandbox or snapshot at one moment. They stay as they are until
// Close.
type View struct {
	// ID is that of the sandbox, snapshot or freeze that has the files, or of an image.
	ID    string
	Image string // id of the image below the files
	At    time.Time
	// Lineage is the ids of what ID descends from, ID itself the last.
	Lineage []string
	// History is the fork points that led here; nil if they are not known.
	History []ForkPoint
	Files   *cowfs.Files
	// Pin and Root name the files to the sentry of a running sandbox.
	Pin  string
	Root uint64

	image   []byte // contents of the image
	closers []func()
}

// Open opens the tree in pages above an image with the contents image, which the caller
// keeps until Close.
func (v *View) Open(pages *btree.View, image []byte) (err error) {
	v.image = image
	if v.Files, err = cowfs.NewFiles(pages, image); err != nil {
		return api.Errorf(api.CodeCorrupt, "open files of %s: %w", v.ID, err)
	}
	return nil
}

// ImageFiles returns the files of the image alone.
func (v *View) ImageFiles() (*cowfs.Files, error) {
	files, err := cowfs.NewFiles(btree.OpenView(nil, 0), v.image)
	if err != nil {
		return nil, api.Errorf(api.CodeCorrupt, "open image %s: %w", v.Image, err)
	}
	return files, nil
}

// OnClose has Close call fn, before what was added earlier.
func (v *View) OnClose(fn func()) { v.closers = append(v.closers, fn) }

// Close lets go of the files. The last function of OnClose is called first.
func (v *View) Close() {
	for _, fn := range slices.Backward(v.closers) {
		fn()
	}
}

// OwnPaths returns the paths that belong to the sandbox itself and not to its work: its
// mounts and the files of its identity.
func OwnPaths() []string {
	return append([]string{"/dev", "/proc", "/sys", api.RunDir}, api.IdentityFiles()...)
}

// SkippedPaths returns the paths that comparisons and archives leave out unless a request
// names them: OwnPaths and temporary files.
func SkippedPaths() []string { return append(OwnPaths(), "/tmp") }
