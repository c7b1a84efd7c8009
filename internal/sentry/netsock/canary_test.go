package netsock

import (
	"testing"
	"unsafe"

	"gvisor.dev/gvisor/pkg/sentry/vfs"
)

// See canary_test.go of package cow for what this is.

func TestCanaryFieldsOfSockets(t *testing.T) {
	if DentryOffset == NoField {
		t.Error("an open file has no field vd with a dentry any more: Of finds it there")
	}
	if unsafe.Sizeof(vfs.LockFD{}) != unsafe.Sizeof((*vfs.FileLocks)(nil)) {
		t.Error("vfs.LockFD is more than a pointer to the locks: Of takes it for one")
	}
}
