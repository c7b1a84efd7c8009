package guest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"reflect"
	"runtime/metrics"
	"sync"
	gotime "time"
	"unsafe"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/fdnotifier"
	"gvisor.dev/gvisor/pkg/log"
	"gvisor.dev/gvisor/pkg/memutil"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/usage"

	"ramet.dev/ramet/internal/engine/snapfile"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/sentry/cow"
	"ramet.dev/ramet/internal/sentry/kern"
	"ramet.dev/ramet/internal/sentry/rootfs"
)

// The state of a kernel with many objects takes longer to write than a guest should stand still. So
// it is written by a copy of this process: the guest goes on as soon as the copy has been made, and
// the pages have been copied that are shared memory in both. Each of the two does half of that.
//
// What such a copy cannot do, and how long it may take, says selffork.Copy. Should it fail, the
// freeze is made once more, without.

// manyObjects is how many objects it takes: see objects. Making the copy costs two or three
// milliseconds, writing that many as much.
const manyObjects = 600

// How long the copy may take: to copy pages, while the guest stands still, for each GiB and one more, and
// then. Most take a hundredth of that, and 20 000 pairs of sockets a third. The daemon waits for half a minute,
// so that most have time for a freeze without a copy.
const (
	pagesWithin = 3 * gotime.Second
	savedWithin = 20 * gotime.Second
)

// errApart says that a freeze is to be made without a copy of the process.
var errApart = errors.New("save apart")

// objects estimates how many objects there are to save. The kernel may run, but not be saved.
func objects(k *kern.Kernel) (n int) {
	ctx := k.TaskContext()
	tables := map[*kernel.FDTable]bool{}
	for _, t := range k.TaskSet().Root.Tasks() {
		n += 10
		t.WithMuLocked(func(t *kernel.Task) {
			if files := t.FDTable(); files != nil {
				tables[files] = true
			}
		})
	}
	for files := range tables {
		n += len(files.GetFDs(ctx))
	}
	return n + cow.CountMapped(k.Kernel)/4 // most are of files that others have mapped, too
}

// hasRoom reports whether the sandbox's limit of memory leaves room for a copy of the process: at the worst
// it has all of the heap once more.
func (g *Guest) hasRoom() bool {
	limit := g.id().Limits.MemoryMiB << 20
	if limit == 0 {
		return true
	}
	used, err := g.mem.MemoryFile().TotalUsage()
	heap := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(heap)
	return err == nil && used+2*heap[0].Value.Uint64() < uint64(limit)
}

// copyApart makes the copy, which saves the kernel to file, and returns when the guest may go on.
func (f *freezing) copyApart(file *os.File) (err error) {
	g := f.g
	memory, _ := g.mem.Files()
	g.mem.AwaitReleased() // in the copy nobody does the rest
	// What is known to be in use the copy need not look through.
	if err := g.mem.FindCommitted(); err != nil {
		return fmt.Errorf("find used memory: %w", err)
	}
	// A save makes gVisor's notifier, which waits for descriptors, unless it is there. It stands still while
	// the copy is made: in the middle of an event it would hold locks there for ever.
	fdnotifier.Pause()
	defer fdnotifier.Resume()
	// The clock is on a page that is copied.
	g.k.Timekeeper().Pause()
	defer g.k.Timekeeper().Resume(clockPage(g.k.Kernel))
	ahead, rest, err := f.pinned.ToCopy()
	if err != nil {
		return fmt.Errorf("%w: %w", errApart, err)
	}
	copied := make(chan struct{})
	f.writer = cow.NewWriter(f.pinned, file, snapfile.PagesOffset, ahead, sync.OnceFunc(func() { close(copied) }))
	do := func(say func()) error { return f.saveInCopy(file, memory, rest, copied, say) }
	if f.copy, err = g.forker.Copy([]int{int(file.Fd()), int(memory.Fd())}, do); err != nil {
		return fmt.Errorf("%w: %w", errApart, err)
	}
	f.stages.Mark("copy")
	if err = f.pinned.CopyAhead(file, snapfile.PagesOffset, ahead); err == nil {
		f.stages.Mark("ahead")
		err = f.copy.Said(pagesWithin * gotime.Duration(1+ahead.Bytes()>>30))
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errApart, errors.Join(err, f.copy.End(0)))
	}
	f.stages.Mark("pages")
	return nil
}

// clockPage returns the page of the VDSO that the kernel's clock is on. gVisor has no accessor for it.
func clockPage(k *kernel.Kernel) *kernel.VDSOParamPage {
	return *(**kernel.VDSOParamPage)(unsafe.Pointer(reflect.ValueOf(k).Elem().FieldByName("vdsoParams").UnsafeAddr()))
}

// saveInCopy is what the copy does.
func (f *freezing) saveInCopy(file, memory *os.File, rest cow.Ranges, copied <-chan struct{}, say func()) error {
	ctx := f.g.k.SupervisorContext()
	fdnotifier.Resume()    // a save pauses it
	log.SetTarget(quiet{}) // of the clock, whose page is not there
	if err := errors.Join(f.g.mem.Secede(rest), rootfs.Tree(f.g.disk.fs).Store().Protect()); err != nil {
		return err
	}
	// Pages that are zero are given back to the host while memory is saved: the original goes on with them.
	scratch, err := memutil.CreateMemFD("scratch", 0)
	if err != nil {
		return err
	}
	if err := unix.Dup3(scratch, int(memory.Fd()), unix.O_CLOEXEC); err != nil {
		return err
	}
	usage.MemoryAccounting.RTMemoryStats = &usage.RTMemoryStats{} // which is shared memory
	detached, err := f.g.detachStateless(ctx)
	if err != nil {
		return err
	}
	// Nothing is done before the pages are copied that can be done then.
	show := cow.HideMapped(f.g.k.Kernel)
	sockets := f.g.k.ListSockets() // a save holds the lock that this takes
	state := &afterPages{Buffer: &f.state, copied: copied, then: func() error {
		say()
		show()
		_, err := f.setAside(ctx, detached, func() []*kernel.SocketRecord { return sockets })
		return err
	}}
	if err := f.saveKernel(ctx, state); err != nil {
		return err
	}
	size, err := f.snapshot().WriteTo(file)
	if err != nil {
		return err
	}
	return file.Truncate(size) // see MakeRoom
}

// quiet is a log that keeps nothing.
type quiet struct{}

// Emit implements log.Emitter.
func (quiet) Emit(int, log.Level, gotime.Time, string, ...any) {}

// afterPages is a buffer for the state of a kernel that takes nothing before all pages have been copied,
// which another goroutine does, and then was called.
type afterPages struct {
	*bytes.Buffer
	copied <-chan struct{}
	then   func() error
}

// Write implements io.Writer.
func (w *afterPages) Write(b []byte) (int, error) {
	if w.then != nil {
		<-w.copied
		if err := w.then(); err != nil {
			return 0, err
		}
		w.then = nil
	}
	return w.Buffer.Write(b)
}

// Close implements io.Closer.
func (w *afterPages) Close() error { return nil }

// awaitCopy waits for the end of the copy, and says in frozen what it has written to file.
func (f *freezing) awaitCopy(file *os.File, frozen *wire.Frozen) error {
	if err := f.copy.End(savedWithin); err != nil {
		return fmt.Errorf("%w: %w", errApart, err)
	}
	data, err := kern.MapFile(file)
	if err != nil {
		return err
	}
	defer unix.Munmap(data)
	s, err := snapfile.Parse(data)
	if err != nil {
		return fmt.Errorf("%w: %w", errApart, err)
	}
	frozen.StateBytes, frozen.CopiedBytes = int64(len(s.State)), s.Pages
	return nil
}
