package inode

import (
	"testing"

	"ramet.dev/ramet/internal/sentry/savedtest"
)

func TestSavedTypes(t *testing.T) {
	savedtest.Check(t, []savedtest.Savable{&Table{}, &Inode{}},
		"treeRoot", "nextIno", "blocks", "limit", "spaces", "flags") // of liveInodes and of several fields
}
