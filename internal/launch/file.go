package launch

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/internal/sandbox"
)

// FileID names a file on this host for as long as the file exists.
type FileID struct {
	Dev uint64 `json:"dev"`
	Ino uint64 `json:"ino"`
}

// IDOf returns the id of a regular file; anything else is an error of
// CodeCorrupt.
func IDOf(f *os.File) (FileID, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return FileID{}, fmt.Errorf("stat memory file: %w", err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return FileID{}, sandbox.Errorf(sandbox.CodeCorrupt, "a memory file is no regular file but one of mode %#o", st.Mode)
	}
	return FileID{Dev: st.Dev, Ino: st.Ino}, nil
}

// ReadOnly opens the regular file behind f again, for reading only. f may come
// from a sentry, and opening what it likes could block for ever, as a pipe does.
func ReadOnly(f *os.File) (*os.File, error) {
	if _, err := IDOf(f); err != nil {
		return nil, err
	}
	ro, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
	if err != nil {
		return nil, fmt.Errorf("open memory file read-only: %w", err)
	}
	return ro, nil
}
