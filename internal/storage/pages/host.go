package pages

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// PieceSize bounds what one system call writes, and with it how many pages the
// host's page cache keeps together: each later store to one of them, or write of a
// few bytes, takes the longer the more there are (measured on ext4: a write of 4 KiB
// 3.5 µs behind pieces of 1 MiB, 1.9 behind 64 KiB; a fault 6.9 and 2.6).
const PieceSize = 64 << 10

// MaxCall is how much one call may write at an offset.
func MaxCall(at int64) uint64 { return PieceSize - uint64(at)%PieceSize }

// NoSpace makes a full disk of the host look like a full sandbox.
func NoSpace(err error) error {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) || errors.Is(err, unix.EFBIG) {
		return fmt.Errorf("%w: the host's disk is full (%w)", ErrNoSpace, err)
	}
	return err
}

// ReadPages fills buf from offset off of a page file.
func ReadPages(f *os.File, off int64, buf []byte) error {
	_, err := f.ReadAt(buf, off)
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: %s ends before offset %d", ErrCorrupt, f.Name(), off+int64(len(buf)))
	}
	if err != nil {
		return fmt.Errorf("read pages at offset %d: %w", off, err)
	}
	return nil
}
