package image

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// lockFile takes an exclusive flock on f, waiting for other holders if wait is
// set. Closing f releases it, so does the end of the process. It reports whether
// the lock was got.
func lockFile(f *os.File, wait bool) (bool, error) {
	how := unix.LOCK_EX
	if !wait {
		how |= unix.LOCK_NB
	}
	for {
		switch err := unix.Flock(int(f.Fd()), how); {
		case err == nil:
			return true, nil
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EWOULDBLOCK) && !wait:
			return false, nil
		default:
			return false, fmt.Errorf("lock %s: %w", f.Name(), err)
		}
	}
}

// locked runs change while no other process and no other goroutine changes the
// store. Changes are renames and small writes, so waiting is short.
func (s *Store) locked(change func() error) error {
	// The file is opened each time: flock belongs to the open file, so a shared
	// one would not keep goroutines apart.
	f, err := os.OpenFile(s.path("lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("open lock of the image store: %w", err)
	}
	defer f.Close()
	if _, err := lockFile(f, true); err != nil {
		return err
	}
	return change()
}
