package brief

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
	"gvisor.dev/gvisor/pkg/sentry/platform"
)

// hostSpace is an address space that notes what is asked of it.
type hostSpace struct {
	platform.AddressSpace
	asked  []string
	refuse error // maps nothing
}

func (h *hostSpace) MapFile(addr hostarch.Addr, _ memmap.File, fr memmap.FileRange, _ hostarch.AccessType, _ bool) error {
	h.asked = append(h.asked, fmt.Sprintf("map %x-%x", addr, uint64(addr)+fr.Length()))
	return h.refuse
}

func (h *hostSpace) Unmap(addr hostarch.Addr, length uint64) {
	h.asked = append(h.asked, fmt.Sprintf("unmap %x-%x", addr, uint64(addr)+length))
}

func (h *hostSpace) check(t *testing.T, want ...string) {
	t.Helper()
	if !slices.Equal(h.asked, want) {
		t.Errorf("the host was asked to %q, want %q", h.asked, want)
	}
	h.asked = nil
}

func mapAt(as *addressSpace, start, end uint64) error {
	return as.MapFile(hostarch.Addr(start), nil, memmap.FileRange{End: end - start}, hostarch.Read, false)
}

// TestMappedAnew checks that what is mapped anew is not unmapped before, and everything
// else is before the process runs.
func TestMappedAnew(t *testing.T) {
	host, first := &hostSpace{}, &task{}
	as := newAddressSpace(host)
	as.Unmap(0x1000, 0x1000)
	as.Unmap(0x4000, 0x2000)
	as.Unmap(0x8000, 0x2000)
	host.check(t)
	if !as.enter(first) {
		t.Fatal("the first to run is not")
	}
	if err := mapAt(as, 0x1000, 0x3000); err != nil {
		t.Fatal(err)
	}
	host.check(t, "map 1000-3000")
	if err := mapAt(as, 0x5000, 0x7000); err != nil {
		t.Fatal(err)
	}
	host.check(t, "unmap 4000-6000", "map 5000-7000")
	as.catchUp()
	host.check(t, "unmap 8000-a000")
	if as.enter(first) {
		t.Error("it is the first once more")
	}

	as.Unmap(0x1000, 0x1000)
	host.check(t, "unmap 1000-2000") // it runs
	as.putOff()
	as.Unmap(0x5000, 0x1000)
	host.refuse = errors.New("no memory")
	if err := mapAt(as, 0x5000, 0x6000); err == nil {
		t.Error("what the host refuses is mapped")
	}
	host.check(t, "map 5000-6000")
	as.catchUp()
	host.check(t, "unmap 5000-6000")
}

// TestManyUnmaps checks that unmappings that are not put off are made.
func TestManyUnmaps(t *testing.T) {
	host := &hostSpace{}
	as := newAddressSpace(host)
	for i := range hostarch.Addr(offMost + 1) {
		as.Unmap(i<<12, 0x1000)
	}
	host.check(t, "unmap 8000-9000")
	as.catchUp()
	if len(host.asked) != offMost {
		t.Errorf("%d of %d are made", len(host.asked), offMost)
	}
}

// TestOtherThreads checks that nothing is put off any more when a second thread is about to
// run, and that it runs with nothing left to be unmapped.
func TestOtherThreads(t *testing.T) {
	host, first, second := &hostSpace{}, &task{}, &task{}
	as := newAddressSpace(host)
	as.enter(first)
	as.catchUp()
	as.putOff()
	as.Unmap(0x1000, 0x1000)
	host.check(t)
	if as.enter(second) {
		t.Error("the second to run is the first")
	}
	host.check(t, "unmap 1000-2000")
	as.Unmap(0x2000, 0x1000) // in the call that the first is still making
	host.check(t, "unmap 2000-3000")
	as.catchUp()
	as.putOff()
	as.Unmap(0x3000, 0x1000)
	host.check(t, "unmap 3000-4000")
	if as.enter(first) || as.enter(second) {
		t.Error("one is the first once more")
	}
}
