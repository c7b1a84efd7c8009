package cow

import (
	"reflect"
	"sort"
	"unsafe"

	"gvisor.dev/gvisor/pkg/sentry/memmap"
)

// A save looks for zero pages in everything that is allocated but not known to
// be in use, which means touching it page by page with the memory file locked:
// milliseconds of the pause, for pages whose contents the Writer drops anyway.
// gVisor has no option against it. So frozen ranges are marked as in use for as
// long as the save takes.

// assumeCommitted marks all unknown accounting segments within frozen ranges as
// committed and returns a function that takes it back. The kernel must be
// paused until then.
func (m *Memory) assumeCommitted(frozen Ranges) (restore func()) {
	file := reflect.ValueOf(m.mf).Elem()
	mu := lockerAt(file.FieldByName("mu"))
	mu.lock()
	var marked []*bool
	visitSegments(file.FieldByName("memAcct").FieldByName("root"), func(key, value reflect.Value) {
		known := (*bool)(unsafe.Pointer(value.FieldByName("knownCommitted").UnsafeAddr()))
		fr := memmap.FileRange{Start: key.FieldByName("Start").Uint(), End: key.FieldByName("End").Uint()}
		if !*known && !value.FieldByName("wasteOrReleasing").Bool() && frozen.covers(fr) {
			*known = true
			marked = append(marked, known)
		}
	})
	mu.unlock()
	return func() {
		mu.lock()
		defer mu.unlock()
		for _, known := range marked {
			*known = false
		}
	}
}

// covers reports whether one of the ranges contains all of fr.
func (rs Ranges) covers(fr memmap.FileRange) bool {
	i := sort.Search(len(rs), func(i int) bool { return rs[i].End >= fr.End })
	return i < len(rs) && rs[i].Start <= fr.Start
}

// visitSegments calls fn for each segment below a node of one of gVisor's
// generated B-trees (pkg/segment), in order.
func visitSegments(node reflect.Value, fn func(key, value reflect.Value)) {
	n := int(node.FieldByName("nrSegments").Int())
	keys, values := node.FieldByName("keys"), node.FieldByName("values")
	inner := node.FieldByName("hasChildren").Bool()
	for i := 0; i <= n; i++ {
		if inner {
			visitSegments(node.FieldByName("children").Index(i).Elem(), fn)
		}
		if i < n {
			fn(keys.Index(i), values.Index(i))
		}
	}
}

// locker calls the methods of a mutex whose type gVisor does not export.
type locker struct{ lockFn, unlockFn reflect.Value }

func lockerAt(mutex reflect.Value) locker {
	p := reflect.NewAt(mutex.Type(), unsafe.Pointer(mutex.UnsafeAddr()))
	return locker{p.MethodByName("Lock"), p.MethodByName("Unlock")}
}

func (l locker) lock()   { l.lockFn.Call(nil) }
func (l locker) unlock() { l.unlockFn.Call(nil) }
