package store

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"unsafe"

	"modernc.org/libc"
	sqlite3 "modernc.org/sqlite/lib"

	"ramet.dev/ramet/internal/storage/hostfs/faultfs"
)

// SQLite reaches the file system through a VFS (https://www.sqlite.org/vfs.html). The one of
// these tests is SQLite's own for Unix, with some of its functions replaced by ones that ask
// a faultfs.FS first. modernc.org/sqlite is SQLite's source in Go: pointers of C are uintptr,
// and a function gets the thread's state first.

const faultyVFS = "faulty"

// faults decides what fails. Tests that use the VFS do not run at the same time.
var faults atomic.Pointer[faultfs.FS]

var (
	unixVFS sqlite3.Tsqlite3_vfs // SQLite's own
	// ownIO has, by the address of a table of functions with some replaced, SQLite's own;
	// it has one for files with locks and one for files without. replaced is the inverse.
	ownIO, replaced sync.Map
	paths           sync.Map // of open files, by their address
)

// at returns what a pointer of C points to.
func at[T any](p uintptr) *T { return *(**T)(unsafe.Pointer(&p)) }

// pointer returns a pointer of C to a function, which is not a closure.
func pointer[F any](fn F) uintptr { return *(*uintptr)(unsafe.Pointer(&fn)) }

// function is the inverse of pointer.
func function[F any](p uintptr) F { return *(*F)(unsafe.Pointer(&p)) }

var registerVFS = sync.OnceValue(func() error {
	tls := libc.NewTLS()
	own := sqlite3.Xsqlite3_vfs_find(tls, 0)
	name, err := libc.CString(faultyVFS)
	if err != nil {
		return err
	}
	copied := libc.Xmalloc(tls, libc.Tsize_t(unsafe.Sizeof(unixVFS)))
	if own == 0 || copied == 0 {
		return errors.New("no VFS or no memory")
	}
	unixVFS = *at[sqlite3.Tsqlite3_vfs](own)
	v := at[sqlite3.Tsqlite3_vfs](copied)
	*v = unixVFS
	v.FpNext, v.FzName, v.FxOpen, v.FxDelete = 0, name, pointer(faultyOpen), pointer(faultyDelete)
	if rc := sqlite3.Xsqlite3_vfs_register(tls, copied, 0); rc != sqlite3.SQLITE_OK {
		return errors.New("register VFS")
	}
	return nil
})

// fails reports whether an operation on a database, or a file beside it, fails.
func fails(op faultfs.Op, path string) (short bool, err error) {
	for _, beside := range []string{"-wal", "-journal", "-shm"} {
		path = strings.TrimSuffix(path, beside)
	}
	return faults.Load().Fails(op, path)
}

// code is SQLite's code for a fault: that of a full disk, or another.
func code(err error, other int32) int32 {
	if errors.Is(err, syscall.ENOSPC) {
		return sqlite3.SQLITE_FULL
	}
	return other
}

func faultyOpen(tls *libc.TLS, vfs, name, file uintptr, flags int32, out uintptr) int32 {
	path := ""
	if name != 0 {
		path = libc.GoString(name)
	}
	if _, err := fails(faultfs.Open, path); err != nil {
		*at[sqlite3.Tsqlite3_file](file) = sqlite3.Tsqlite3_file{} // so that nobody closes it
		return code(err, sqlite3.SQLITE_CANTOPEN)
	}
	rc := function[func(*libc.TLS, uintptr, uintptr, uintptr, int32, uintptr) int32](unixVFS.FxOpen)(tls, vfs, name, file, flags, out)
	f := at[sqlite3.Tsqlite3_file](file)
	if rc != sqlite3.SQLITE_OK || f.FpMethods == 0 {
		return rc
	}
	paths.Store(file, path)
	f.FpMethods = replace(tls, f.FpMethods)
	return rc
}

// replace returns a copy of a table of SQLite's functions with some replaced.
func replace(tls *libc.TLS, own uintptr) uintptr {
	if p, ok := replaced.Load(own); ok {
		return p.(uintptr)
	}
	p := libc.Xmalloc(tls, libc.Tsize_t(unsafe.Sizeof(sqlite3.Tsqlite3_io_methods{})))
	io := at[sqlite3.Tsqlite3_io_methods](p)
	*io = *at[sqlite3.Tsqlite3_io_methods](own)
	io.FxClose, io.FxWrite, io.FxTruncate, io.FxSync = pointer(faultyClose), pointer(faultyWrite), pointer(faultyTruncate), pointer(faultySync)
	ownIO.Store(p, *at[sqlite3.Tsqlite3_io_methods](own))
	replaced.Store(own, p)
	return p
}

// own returns SQLite's functions for an open file.
func own(file uintptr) sqlite3.Tsqlite3_io_methods {
	io, _ := ownIO.Load(at[sqlite3.Tsqlite3_file](file).FpMethods)
	return io.(sqlite3.Tsqlite3_io_methods)
}

func faultyDelete(tls *libc.TLS, vfs, name uintptr, syncDir int32) int32 {
	if _, err := fails(faultfs.Remove, libc.GoString(name)); err != nil {
		return code(err, sqlite3.SQLITE_IOERR_DELETE)
	}
	return function[func(*libc.TLS, uintptr, uintptr, int32) int32](unixVFS.FxDelete)(tls, vfs, name, syncDir)
}

func pathOf(file uintptr) string {
	path, _ := paths.Load(file)
	s, _ := path.(string)
	return s
}

func faultyClose(tls *libc.TLS, file uintptr) int32 {
	paths.Delete(file)
	return function[func(*libc.TLS, uintptr) int32](own(file).FxClose)(tls, file)
}

func faultyWrite(tls *libc.TLS, file, data uintptr, n int32, off sqlite3.Tsqlite3_int64) int32 {
	write := function[func(*libc.TLS, uintptr, uintptr, int32, sqlite3.Tsqlite3_int64) int32](own(file).FxWrite)
	short, err := fails(faultfs.Write, pathOf(file))
	if err == nil {
		return write(tls, file, data, n, off)
	}
	if short {
		write(tls, file, data, n/2, off)
	}
	return code(err, sqlite3.SQLITE_IOERR_WRITE)
}

func faultyTruncate(tls *libc.TLS, file uintptr, size sqlite3.Tsqlite3_int64) int32 {
	if _, err := fails(faultfs.Truncate, pathOf(file)); err != nil {
		return code(err, sqlite3.SQLITE_IOERR_TRUNCATE)
	}
	return function[func(*libc.TLS, uintptr, sqlite3.Tsqlite3_int64) int32](own(file).FxTruncate)(tls, file, size)
}

func faultySync(tls *libc.TLS, file uintptr, flags int32) int32 {
	if _, err := fails(faultfs.Sync, pathOf(file)); err != nil {
		return code(err, sqlite3.SQLITE_IOERR_FSYNC)
	}
	return function[func(*libc.TLS, uintptr, int32) int32](own(file).FxSync)(tls, file, flags)
}

// useFaults makes the VFS ask f during a test.
func useFaults(t *testing.T, f *faultfs.FS) {
	t.Helper()
	if err := registerVFS(); err != nil {
		t.Fatal(err)
	}
	faults.Store(f)
}
