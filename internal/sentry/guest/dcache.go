package guest

import (
	"reflect"
	"unsafe"

	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/sentry/fsimpl/erofs"
)

// dropImageCache drops the image's cached directory entries: they are part of
// the saved state, hundreds of them after a start of Python, and cost parent
// and children more than looking them up again.
func (g *Guest) dropImageCache() {
	for _, fs := range g.k.VFS().GetFilesystems() {
		if fs.FilesystemType().Name() == erofs.Name {
			evictAllCachedDentries(reflect.ValueOf(fs.Impl()).UnsafePointer(), g.rootContext())
		}
		fs.DecRef(g.rootContext())
	}
}

// evictAllCachedDentries is the method that gVisor's file system calls when it
// is released; it takes all locks it needs. There is no exported way to it.
//
//go:linkname evictAllCachedDentries gvisor.dev/gvisor/pkg/sentry/fsimpl/erofs.(*filesystem).evictAllCachedDentries
func evictAllCachedDentries(fs unsafe.Pointer, ctx context.Context)
