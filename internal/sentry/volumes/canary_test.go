package volumes

import (
	"testing"

	"gvisor.dev/gvisor/pkg/sentry/fsimpl/kernfs"

	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/sentry/savedtest"
)

// TestCanarySavedTypes leaves out inode, whose attributes are saved one by one.
func TestCanarySavedTypes(t *testing.T) {
	savedtest.Check(t, []savedtest.Savable{&FilesystemType{}, &filesystem{}, &fileFD{}, &regularFD{}, &directoryFD{}})
}

// TestCanaryRefs counts the references on a dentry where gVisor has them.
func TestCanaryRefs(t *testing.T) {
	fs := &filesystem{inodes: map[uint64]*inode{}, dentries: dentries{list: map[*kernfs.Dentry]bool{}}}
	var d kernfs.Dentry
	d.Init(&fs.Filesystem, fs.get(&wire.VolumeAttr{Ino: rootIno}))
	for want := range int64(3) {
		if got := refsOf(&d); got != want+1 {
			t.Errorf("%d references are %d", want+1, got)
		}
		d.IncRef()
	}
	if !fs.dentries.list[&d] || len(fs.inodes) != 1 {
		t.Errorf("it is not noted: %v, %v", fs.dentries.list, fs.inodes)
	}
}
