package rootfs

import (
	"testing"

	"ramet.dev/ramet/internal/sentry/savedtest"
)

func TestSavedTypes(t *testing.T) {
	savedtest.Check(t, []savedtest.Savable{
		&FilesystemType{}, &filesystem{}, &names{}, &dentry{}, &fileFD{}, &regularFD{}, &directoryFD{},
	})
}
