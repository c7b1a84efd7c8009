package hostfs

import (
	"fmt"
	"io"
	"io/fs"
	"os"
)

// File is an open file. *os.File is one.
type File interface {
	io.Reader
	io.ReaderAt
	io.Writer
	io.WriterAt
	io.Seeker
	io.Closer
	Name() string
	Fd() uintptr
	Stat() (fs.FileInfo, error)
	Chmod(mode fs.FileMode) error
	Truncate(size int64) error
	Sync() error
}

// FS is a file system. Its errors name the path of the file.
type FS interface {
	// OpenFile is os.OpenFile.
	OpenFile(name string, flag int, mode fs.FileMode) (File, error)
	// CreateTemp is os.CreateTemp.
	CreateTemp(dir, pattern string) (File, error)
	// Mkdir is os.Mkdir.
	Mkdir(name string, mode fs.FileMode) error
	// Rename is os.Rename.
	Rename(from, to string) error
	// Remove is os.Remove.
	Remove(name string) error
	// SyncDir makes the entries of a directory survive a loss of power.
	SyncDir(name string) error
}

// OS is the host's file system.
var OS FS = host{}

type host struct{}

// OpenFile implements FS.
func (host) OpenFile(name string, flag int, mode fs.FileMode) (File, error) {
	f, err := os.OpenFile(name, flag, mode)
	if err != nil {
		return nil, err // not a nil *os.File in a File
	}
	return f, nil
}

// CreateTemp implements FS.
func (host) CreateTemp(dir, pattern string) (File, error) {
	f, err := os.CreateTemp(dir, pattern)
	if err != nil {
		return nil, err
	}
	return f, nil
}

// Mkdir implements FS.
func (host) Mkdir(name string, mode fs.FileMode) error { return os.Mkdir(name, mode) }

// Rename implements FS.
func (host) Rename(from, to string) error { return os.Rename(from, to) }

// Remove implements FS.
func (host) Remove(name string) error { return os.Remove(name) }

// SyncDir implements FS.
func (host) SyncDir(name string) error {
	d, err := os.Open(name)
	if err != nil {
		return fmt.Errorf("sync directory: %w", err)
	}
	defer d.Close()
	if err := d.Sync(); err != nil {
		return fmt.Errorf("sync directory: %w", err)
	}
	return nil
}
