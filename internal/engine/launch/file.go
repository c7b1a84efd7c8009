package launch

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/api"
)

// FileID names a file on this host for as long as the file exists.
type FileID struct {
	Dev uint64 `json:"dev"`
	Ino uint64 `json:"ino"`
}

// IDOf returns the id of a regular file. Another type of file is an error of
// CodeCorrupt.
func IDOf(f *os.File) (id FileID, err error) {
	return id, whileOpen(f, func(fd int) error {
		id, err = idOf(fd)
		return err
	})
}

func idOf(fd int) (FileID, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return FileID{}, fmt.Errorf("stat memory file: %w", err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return FileID{}, api.Errorf(api.CodeCorrupt, "a memory file is no regular file but one of mode %#o", st.Mode)
	}
	return FileID{Dev: st.Dev, Ino: st.Ino}, nil
}

// whileOpen calls fn with the descriptor of f, which stays f's in the meantime: a
// sentry's files are closed when it ends, and the number might be another file's
// then. If f is closed already the error is os.ErrClosed.
func whileOpen(f *os.File, fn func(fd int) error) error {
	c, err := f.SyscallConn()
	if err != nil {
		return fmt.Errorf("use memory file: %w", err)
	}
	var result error
	if err := c.Control(func(fd uintptr) { result = fn(int(fd)) }); err != nil {
		return fmt.Errorf("use memory file: %w", os.ErrClosed) // the only reason it can have
	}
	return result
}

// ReadOnly opens the regular file behind f again, for reading only. f may come
// from a sentry, and opening another type of file could block for ever, as a pipe does.
func ReadOnly(f *os.File) (ro *os.File, err error) {
	return ro, whileOpen(f, func(fd int) error {
		if _, err := idOf(fd); err != nil {
			return err
		}
		if ro, err = os.Open(fmt.Sprintf("/proc/self/fd/%d", fd)); err != nil {
			return fmt.Errorf("open memory file read-only: %w", err)
		}
		return nil
	})
}

// Allocated returns how many bytes of a sparse file take up space, or 0 if f is closed.
func Allocated(f *os.File) (bytes int64) {
	_ = whileOpen(f, func(fd int) error { // an error leaves 0
		var st unix.Stat_t
		err := unix.Fstat(fd, &st)
		if err == nil {
			bytes = st.Blocks * 512
		}
		return err
	})
	return bytes
}
