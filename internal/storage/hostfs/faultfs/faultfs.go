package faultfs

import (
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync"
	"syscall"

	"ramet.dev/ramet/internal/storage/hostfs"
)

// Op is a kind of operation that can fail.
type Op string

// The operations.
const (
	Open     Op = "open" // also when it makes a file
	Write    Op = "write"
	Chmod    Op = "chmod"
	Truncate Op = "truncate"
	Sync     Op = "sync"
	Mkdir    Op = "mkdir"
	Rename   Op = "rename"
	Remove   Op = "remove"
	SyncDir  Op = "sync directory"
)

// Fault is a way to fail.
type Fault struct {
	Name string
	Err  error
	// Ops are the operations that can fail this way.
	Ops []Op
	// Short makes a write take half of its bytes before it fails.
	Short bool
	// Stays makes all later operations of Ops fail as well, until Heal.
	Stays bool
}

// The faults: a device that fails once, a disk that is full until something is done about
// it, and one that becomes full in the middle of a write.
var (
	IO         = Fault{Name: "EIO", Err: syscall.EIO, Ops: []Op{Open, Write, Chmod, Truncate, Sync, Mkdir, Rename, Remove, SyncDir}}
	NoSpace    = Fault{Name: "ENOSPC", Err: syscall.ENOSPC, Ops: []Op{Open, Write, Sync, Mkdir, Rename, SyncDir}, Stays: true}
	ShortWrite = Fault{Name: "short write", Err: syscall.ENOSPC, Ops: []Op{Write}, Short: true}
)

// Faults are all of them.
var Faults = []Fault{IO, NoSpace, ShortWrite}

// Event is an operation that was performed or failed.
type Event struct {
	Op   Op
	Path string
}

// FS makes operations on the host's file system fail. It is safe for concurrent use. Its
// zero value lets none fail.
type FS struct {
	mu    sync.Mutex
	fault Fault
	left  int     // operations of fault.Ops until it; 0: none is planned
	hit   []Event // operations that failed
}

// Plan makes the n-th operation from now on fail that the fault can befall, counted from 1.
func (f *FS) Plan(fault Fault, n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fault, f.left, f.hit = fault, n, nil
}

// Heal ends a fault and returns the operations that failed.
func (f *FS) Heal() []Event {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.left, f.fault = 0, Fault{}
	return f.hit
}

// Fails counts an operation and returns the error that it fails with, if it does. short says
// that half of a write is to be done first. It is exported for file systems of other kinds,
// such as a VFS of SQLite.
func (f *FS) Fails(op Op, path string) (short bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.left == 0 && len(f.hit) == 0 || !slices.Contains(f.fault.Ops, op) {
		return false, nil
	}
	switch {
	case f.left > 1:
		f.left--
		return false, nil
	case len(f.hit) > 0 && !f.fault.Stays:
		return false, nil
	}
	f.left, f.hit = 0, append(f.hit, Event{op, path})
	return f.fault.Short, &fs.PathError{Op: string(op), Path: path, Err: f.fault.Err}
}

// OpenFile implements hostfs.FS.
func (f *FS) OpenFile(name string, flag int, mode fs.FileMode) (hostfs.File, error) {
	if _, err := f.Fails(Open, name); err != nil {
		return nil, err
	}
	return f.wrap(os.OpenFile(name, flag, mode))
}

// CreateTemp implements hostfs.FS.
func (f *FS) CreateTemp(dir, pattern string) (hostfs.File, error) {
	if _, err := f.Fails(Open, dir); err != nil {
		return nil, err
	}
	return f.wrap(os.CreateTemp(dir, pattern))
}

func (f *FS) wrap(of *os.File, err error) (hostfs.File, error) {
	if err != nil {
		return nil, err
	}
	return &file{of, f}, nil
}

// Mkdir implements hostfs.FS.
func (f *FS) Mkdir(name string, mode fs.FileMode) error {
	if _, err := f.Fails(Mkdir, name); err != nil {
		return err
	}
	return hostfs.OS.Mkdir(name, mode)
}

// Rename implements hostfs.FS.
func (f *FS) Rename(from, to string) error {
	if _, err := f.Fails(Rename, to); err != nil {
		return err
	}
	return hostfs.OS.Rename(from, to)
}

// Remove implements hostfs.FS.
func (f *FS) Remove(name string) error {
	if _, err := f.Fails(Remove, name); err != nil {
		return err
	}
	return hostfs.OS.Remove(name)
}

// SyncDir implements hostfs.FS.
func (f *FS) SyncDir(name string) error {
	if _, err := f.Fails(SyncDir, name); err != nil {
		return err
	}
	return hostfs.OS.SyncDir(name)
}

// file is an open file whose writes, changes and syncs can fail. It has no ReadFrom, so
// that io.Copy writes by Write.
type file struct {
	of *os.File
	fs *FS
}

// Read implements hostfs.File.
func (f *file) Read(b []byte) (int, error) { return f.of.Read(b) }

// ReadAt implements hostfs.File.
func (f *file) ReadAt(b []byte, off int64) (int, error) { return f.of.ReadAt(b, off) }

// Seek implements hostfs.File.
func (f *file) Seek(off int64, whence int) (int64, error) { return f.of.Seek(off, whence) }

// Close implements hostfs.File.
func (f *file) Close() error { return f.of.Close() }

// Name implements hostfs.File.
func (f *file) Name() string { return f.of.Name() }

// Fd implements hostfs.File.
func (f *file) Fd() uintptr { return f.of.Fd() }

// Stat implements hostfs.File.
func (f *file) Stat() (fs.FileInfo, error) { return f.of.Stat() }

// Write implements hostfs.File.
func (f *file) Write(b []byte) (int, error) { return f.write(b, f.of.Write) }

// WriteAt implements hostfs.File.
func (f *file) WriteAt(b []byte, off int64) (int, error) {
	return f.write(b, func(b []byte) (int, error) { return f.of.WriteAt(b, off) })
}

func (f *file) write(b []byte, write func([]byte) (int, error)) (int, error) {
	short, fault := f.fs.Fails(Write, f.Name())
	if fault == nil {
		return write(b)
	}
	if !short {
		return 0, fault
	}
	n, err := write(b[:len(b)/2])
	if err != nil {
		return n, fmt.Errorf("half of a write: %w", err)
	}
	return n, fault
}

// Chmod implements hostfs.File.
func (f *file) Chmod(mode fs.FileMode) error {
	if _, err := f.fs.Fails(Chmod, f.Name()); err != nil {
		return err
	}
	return f.of.Chmod(mode)
}

// Truncate implements hostfs.File.
func (f *file) Truncate(size int64) error {
	if _, err := f.fs.Fails(Truncate, f.Name()); err != nil {
		return err
	}
	return f.of.Truncate(size)
}

// Sync implements hostfs.File.
func (f *file) Sync() error {
	if _, err := f.fs.Fails(Sync, f.Name()); err != nil {
		return err
	}
	return f.of.Sync()
}
