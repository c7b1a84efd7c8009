package cow

import (
	"reflect"
	"runtime"
	"sort"
	"unsafe"

	"gvisor.dev/gvisor/pkg/sentry/memmap"
	"gvisor.dev/gvisor/pkg/sentry/usage"
)

// A save looks for zero pages in everything that is allocated but not known to
// be in use, which means touching it page by page with the memory file locked:
// milliseconds of the pause, for pages whose contents the Writer drops anyway.
// gVisor has no option against it. So frozen ranges are booked as in use. That
// is for good: a save splits and joins the segments of the account, so there is
// nothing left that a mark could be taken back from. The guest sees somewhat less
// free memory than there is, as it does in a child, which inherits the account.
//
// A segment that is frozen in part only is left as it is. FindCommitted, which
// runs before, finds what of it is in use.

// owners returns the ids of the memory control groups, the guest kernel's own,
// that have memory.
func (m *Memory) owners() map[uint32]struct{} {
	ids := map[uint32]struct{}{}
	m.visitAccount(func(_ memmap.FileRange, a *account) { ids[a.memCgID] = struct{}{} })
	return ids
}

// AwaitReleased waits until no pages are on their way back to the host.
func (m *Memory) AwaitReleased() {
	file := reflect.ValueOf(m.mf).Elem()
	mu := lockerAt(file.FieldByName("mu"))
	waste := (*bool)(unsafe.Pointer(file.FieldByName("haveWaste").UnsafeAddr()))
	for there := true; there; runtime.Gosched() {
		mu.lock()
		there = *waste
		mu.unlock()
	}
}

// bookCommitted books all segments of the account that lie within frozen ranges
// as in use. The kernel must be paused.
func (m *Memory) bookCommitted(frozen Ranges) {
	total := (*uint64)(unsafe.Pointer(reflect.ValueOf(m.mf).Elem().FieldByName("knownCommittedBytes").UnsafeAddr()))
	m.visitAccount(func(fr memmap.FileRange, a *account) {
		if a.knownCommitted || a.wasteOrReleasing || !frozen.covers(fr) {
			return
		}
		// As pgalloc does it when it finds pages in use.
		a.knownCommitted, a.commitSeq = true, 0
		*total += fr.Length()
		usage.MemoryAccounting.Inc(fr.Length(), a.kind, a.memCgID)
	})
}

// visitAccount calls fn for each segment of the account, with the memory file locked.
func (m *Memory) visitAccount(fn func(fr memmap.FileRange, a *account)) {
	file := reflect.ValueOf(m.mf).Elem()
	mu := lockerAt(file.FieldByName("mu"))
	mu.lock()
	defer mu.unlock()
	visit(file.FieldByName("memAcct"), func(start, end uint64, a *account) { fn(memmap.FileRange{Start: start, End: end}, a) })
}

// account has the fields of gVisor's memAcctInfo. TestCanaryFields compares them.
type account struct {
	kind             usage.MemoryKind
	memCgID          uint32
	knownCommitted   bool
	wasteOrReleasing bool
	commitSeq        uint64
}

// covers reports whether one of the ranges contains all of fr.
func (rs Ranges) covers(fr memmap.FileRange) bool {
	i := sort.Search(len(rs), func(i int) bool { return rs[i].End >= fr.End })
	return i < len(rs) && rs[i].Start <= fr.Start
}

// locker calls the methods of a mutex whose type gVisor does not export.
type locker struct{ lockFn, unlockFn reflect.Value }

func lockerAt(mutex reflect.Value) locker {
	p := reflect.NewAt(mutex.Type(), unsafe.Pointer(mutex.UnsafeAddr()))
	return locker{p.MethodByName("Lock"), p.MethodByName("Unlock")}
}

func (l locker) lock()   { l.lockFn.Call(nil) }
func (l locker) unlock() { l.unlockFn.Call(nil) }
