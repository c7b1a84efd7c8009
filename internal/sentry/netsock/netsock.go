package netsock

import (
	"reflect"
	"unsafe"

	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
	"gvisor.dev/gvisor/pkg/tcpip"
)

// netstackPackage has the sockets of a guest's network stack.
const netstackPackage = "gvisor.dev/gvisor/pkg/sentry/socket/netstack"

// Socket is a socket of a guest's network stack, by the fields that a lost one does without.
// gVisor has no accessors for them.
type Socket struct {
	endpoint *tcpip.Endpoint
	dentry   **vfs.Dentry
	locks    **vfs.FileLocks
}

// Of returns the socket of a record; ok is false for those of other families.
func Of(record *kernel.SocketRecord) (s Socket, ok bool) {
	v := reflect.ValueOf(record.Sock.Impl())
	if v.Kind() != reflect.Pointer || v.Type().Elem().PkgPath() != netstackPackage {
		return Socket{}, false
	}
	at := func(offset uintptr) unsafe.Pointer { return unsafe.Add(v.UnsafePointer(), offset) }
	endpoint, locks := inSocket(v.Type().Elem())
	if endpoint == NoField || locks == NoField {
		return Socket{}, false
	}
	return Socket{
		endpoint: (*tcpip.Endpoint)(at(endpoint)),
		dentry:   (**vfs.Dentry)(unsafe.Add(unsafe.Pointer(record.Sock), DentryOffset)),
		locks:    (**vfs.FileLocks)(at(locks)),
	}, true
}

// Endpoint returns what the socket has.
func (s Socket) Endpoint() tcpip.Endpoint { return *s.endpoint }

// inSocket returns where a socket of type t has its endpoint and the locks of its file.
func inSocket(t reflect.Type) (endpoint, locks uintptr) {
	return OffsetIn[tcpip.Endpoint](t, "Endpoint"), OffsetIn[vfs.LockFD](t, "LockFD") // which has nothing but them
}

// DentryOffset is where an open file has its dentry.
var DentryOffset = func() uintptr {
	outer := OffsetIn[vfs.VirtualDentry](reflect.TypeFor[vfs.FileDescription](), "vd")
	inner := OffsetIn[*vfs.Dentry](reflect.TypeFor[vfs.VirtualDentry](), "dentry")
	if outer == NoField || inner == NoField {
		return NoField
	}
	return outer + inner
}()

// OffsetIn returns the offset of t's field of type T, or NoField.
func OffsetIn[T any](t reflect.Type, name string) uintptr {
	f, ok := t.FieldByName(name)
	if !ok || f.Type != reflect.TypeFor[T]() || len(f.Index) != 1 {
		return NoField
	}
	return f.Offset
}

// NoField is the offset of a field that gVisor does not have any more: a test finds it.
const NoField = ^uintptr(0)

// Loser makes sockets those of lost connections until Restore is called. All of them share one
// inode and its locks: each of their own would be half of what is saved of them.
type Loser struct {
	dentry *vfs.Dentry
	locks  vfs.FileLocks
	back   []func()
}

// Lose puts end in the place of what a socket has.
func (l *Loser) Lose(ctx context.Context, s Socket, end tcpip.Endpoint) {
	was, dentry, locks := *s.endpoint, *s.dentry, *s.locks
	*s.endpoint, *s.locks = end, &l.locks
	if l.dentry == nil {
		l.dentry = dentry
	} else {
		*s.dentry = l.dentry
		l.dentry.IncRef()
	}
	l.back = append(l.back, func() {
		*s.endpoint, *s.locks = was, locks
		if *s.dentry != dentry {
			*s.dentry = dentry
			l.dentry.DecRef(ctx)
		}
	})
}

// Restore undoes Lose for all sockets.
func (l *Loser) Restore() {
	for _, f := range l.back {
		f()
	}
}
