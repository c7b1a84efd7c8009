package uplink

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

// socket is a socket of a guest's network stack, by the fields that a lost one does without.
// gVisor has no accessors for them.
type socket struct {
	endpoint *tcpip.Endpoint
	dentry   **vfs.Dentry
	locks    **vfs.FileLocks
}

// socketOf returns the socket of a record; ok is false for those of other families.
func socketOf(record *kernel.SocketRecord) (s socket, ok bool) {
	v := reflect.ValueOf(record.Sock.Impl())
	if v.Kind() != reflect.Pointer || v.Type().Elem().PkgPath() != netstackPackage {
		return socket{}, false
	}
	at := func(offset uintptr) unsafe.Pointer { return unsafe.Add(v.UnsafePointer(), offset) }
	endpoint, locks := inSocket(v.Type().Elem())
	if endpoint == noField || locks == noField {
		return socket{}, false
	}
	return socket{
		endpoint: (*tcpip.Endpoint)(at(endpoint)),
		dentry:   (**vfs.Dentry)(unsafe.Add(unsafe.Pointer(record.Sock), dentryOffset)),
		locks:    (**vfs.FileLocks)(at(locks)),
	}, true
}

// inSocket returns where a socket of type t has its endpoint and the locks of its file.
func inSocket(t reflect.Type) (endpoint, locks uintptr) {
	return offsetIn[tcpip.Endpoint](t, "Endpoint"), offsetIn[vfs.LockFD](t, "LockFD") // which has nothing but them
}

// dentryOffset is where an open file has its dentry.
var dentryOffset = func() uintptr {
	outer := offsetIn[vfs.VirtualDentry](reflect.TypeFor[vfs.FileDescription](), "vd")
	inner := offsetIn[*vfs.Dentry](reflect.TypeFor[vfs.VirtualDentry](), "dentry")
	if outer == noField || inner == noField {
		return noField
	}
	return outer + inner
}()

// offsetIn returns the offset of t's field of type T, or noField.
func offsetIn[T any](t reflect.Type, name string) uintptr {
	f, ok := t.FieldByName(name)
	if !ok || f.Type != reflect.TypeFor[T]() || len(f.Index) != 1 {
		return noField
	}
	return f.Offset
}

// noField is the offset of a field that gVisor does not have any more: a test finds it.
const noField = ^uintptr(0)

// loser makes sockets those of lost connections until restore is called. All of them share one
// inode and its locks: each of their own would be half of what is saved of them.
type loser struct {
	dentry *vfs.Dentry
	locks  vfs.FileLocks
	back   []func()
}

func (l *loser) lose(ctx context.Context, s socket, end *lost) {
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

func (l *loser) restore() {
	for _, f := range l.back {
		f()
	}
}
