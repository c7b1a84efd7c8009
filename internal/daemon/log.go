package daemon

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"syscall"

	"ramet.dev/ramet/internal/storage/paths"
)

const (
	// maxLog bounds the log of a daemon in the background, in bytes. A log that is put
	// aside replaces the one that was put aside before, so that there are at most two.
	maxLog = 16 << 20
	// logPerm is the mode of the log.
	logPerm = 0o600
)

// Log writes the log of a daemon in the background. The file is the standard output and
// error of the process, where the Go runtime writes why the process ends. A Log keeps it
// that way when it puts a full file aside. Two daemons may write to the same file while
// one of them drains.
type Log struct {
	path string
	max  int64
	mu   sync.Mutex
	// stderr is written to; stdout is only kept from holding on to an old file. Writing
	// to both and replacing their descriptors is guarded by mu.
	stderr, stdout *os.File
}

// NewLog returns the log of a daemon that Ensure has started.
func NewLog(p paths.Paths) *Log {
	return &Log{path: p.Log(), max: maxLog, stderr: os.Stderr, stdout: os.Stdout}
}

// Write implements io.Writer. It appends b in one system call, so that lines of different
// writers are never mixed.
func (l *Log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	// A log that cannot be put aside grows: what is written then may say why. The next
	// line tries again.
	_ = l.makeRoom(int64(len(b)))
	return l.stderr.Write(b)
}

// makeRoom puts the log aside if it has no room for n bytes, and follows another daemon,
// or a person, that has moved it. The caller holds mu.
func (l *Log) makeRoom(n int64) error {
	limit := max(0, l.max-n)
	own, err := l.stderr.Stat()
	if err != nil {
		return err
	}
	if named, err := os.Stat(l.path); err == nil && os.SameFile(own, named) && own.Size() <= limit {
		return nil
	}
	f, err := openLog(l.path, limit)
	if err != nil {
		return err
	}
	defer f.Close()
	for _, std := range []*os.File{l.stderr, l.stdout} {
		if err := syscall.Dup3(int(f.Fd()), int(std.Fd()), 0); err != nil {
			return os.NewSyscallError("dup3", err)
		}
	}
	return nil
}

// openLog opens the log at path for appending, after putting one of more than limit bytes
// aside.
func openLog(path string, limit int64) (*os.File, error) {
	for {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, logPerm)
		if err != nil {
			return nil, fmt.Errorf("open log: %w", err)
		}
		size, err := f.Seek(0, io.SeekEnd)
		if err == nil && size <= limit {
			return f, nil
		}
		if err == nil {
			err = putAside(f, path)
		}
		f.Close()
		if err != nil {
			return nil, fmt.Errorf("put log aside: %w", err)
		}
	}
}

// putAside renames the log f, unless another process has done so. The lock of the file
// keeps two processes from both doing it: the second one would replace the full log that
// was put aside by the new one. Closing f unlocks it.
func putAside(f *os.File, path string) error {
	if err := flock(f, syscall.LOCK_EX); err != nil {
		return err
	}
	own, err := f.Stat()
	if err != nil {
		return err
	}
	named, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(own, named) {
		return nil
	}
	if err != nil {
		return err
	}
	return os.Rename(path, path+".1")
}
