package systraptuning

import (
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
	asked []string
}

func (h *hostSpace) MapFile(addr hostarch.Addr, _ memmap.File, fr memmap.FileRange, _ hostarch.AccessType, _ bool) error {
	h.asked = append(h.asked, fmt.Sprintf("map %x-%x", addr, uint64(addr)+fr.Length()))
	return nil
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

func mapAt(t *testing.T, as *addressSpace, start, end uint64) {
	t.Helper()
	if err := as.MapFile(hostarch.Addr(start), nil, memmap.FileRange{End: end - start}, hostarch.Read, false); err != nil {
		t.Fatal(err)
	}
}

// TestUnmap checks that nothing is unmapped where nothing was mapped, and everything where
// something was, if only in part, or unmapped before.
func TestUnmap(t *testing.T) {
	host := &hostSpace{}
	as := &addressSpace{AddressSpace: host}
	as.late.inside.Add(1) // so that nothing is unmapped late
	as.Unmap(0, 1<<47)
	host.check(t)
	mapAt(t, as, 0x4000, 0x6000)
	mapAt(t, as, 0x8000, 0x9000)
	host.check(t, "map 4000-6000", "map 8000-9000")
	as.Unmap(0x3000, 0x1000)
	as.Unmap(0x6000, 0x2000)
	as.Unmap(0x9000, 0x1000)
	host.check(t)
	as.Unmap(0x5000, 0x1000)
	as.Unmap(0x5000, 0x4000)
	as.Unmap(0x8000, 0x1000)
	host.check(t, "unmap 5000-6000", "unmap 5000-9000", "unmap 8000-9000")
}

// TestUnmapOfMany checks that a process that maps much has everything unmapped, and one that
// maps the same again and again does not count as that.
func TestUnmapOfMany(t *testing.T) {
	host := &hostSpace{}
	as := &addressSpace{AddressSpace: host}
	as.late.inside.Add(1) // so that nothing is unmapped late
	for range 2 * mostMapped {
		mapAt(t, as, 0x1000, 0x3000)
		mapAt(t, as, 0x2000, 0x3000)
	}
	host.asked = nil
	as.Unmap(0x5000, 0x1000)
	host.check(t)
	for i := range uint64(mostMapped) {
		mapAt(t, as, i<<13, i<<13+0x1000)
	}
	host.asked = nil
	as.Unmap(1<<40, 0x1000)
	host.check(t, "unmap 10000000000-10000001000")
}
