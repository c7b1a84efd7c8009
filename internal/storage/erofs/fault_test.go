package erofs_test

import (
	"errors"
	"os"
	"syscall"

	"ramet.dev/ramet/internal/storage/erofs"
)

var errDisk = errors.New("disk is broken")

// faultyFile fails the call after the first left ones.
type faultyFile struct {
	erofs.File
	left   int
	failed bool
}

func (f *faultyFile) next() error {
	if f.left--; f.left == -1 {
		f.failed = true
		return errDisk
	}
	return nil
}

func (f *faultyFile) WriteAt(b []byte, off int64) (int, error) {
	if err := f.next(); err != nil {
		return 0, err
	}
	return f.File.WriteAt(b, off)
}

func (f *faultyFile) ReadAt(b []byte, off int64) (int, error) {
	if err := f.next(); err != nil {
		return 0, err
	}
	return f.File.ReadAt(b, off)
}

func (f *faultyFile) Truncate(size int64) error {
	if err := f.next(); err != nil {
		return err
	}
	return f.File.Truncate(size)
}

type zeroReader struct{}

func (zeroReader) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

// diskUsage returns what a file occupies on disk, in bytes.
func diskUsage(st os.FileInfo) int64 {
	return st.Sys().(*syscall.Stat_t).Blocks * 512
}
