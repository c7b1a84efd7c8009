package systraptuning

import (
	"errors"
	"slices"
	"sync"
	"testing"

	"gvisor.dev/gvisor/pkg/hostarch"
)

func span(start, end hostarch.Addr) hostarch.AddrRange {
	return hostarch.AddrRange{Start: start, End: end}
}

// TestLateUnmaps checks that a range is unmapped when a thread is about to run, except for what is
// mapped again until then.
func TestLateUnmaps(t *testing.T) {
	host := &hostSpace{}
	as := &addressSpace{AddressSpace: host}
	mapAt(t, as, 0x1000, 0x9000)
	as.late.enter(host)
	as.late.leave()
	host.check(t, "map 1000-9000")
	as.Unmap(0x2000, 0x1000)
	as.Unmap(0x3000, 0x1000) // adjacent
	as.Unmap(0x6000, 0x2000)
	mapAt(t, as, 0x6000, 0x7000)
	host.check(t, "map 6000-7000")
	as.late.enter(host)
	host.check(t, "unmap 2000-4000", "unmap 7000-8000")
	as.late.enter(host) // another thread
	host.check(t)
	as.Unmap(0x2000, 0x1000) // they run
	host.check(t, "unmap 2000-3000")
	as.late.leave()
	as.Unmap(0x3000, 0x1000) // one runs
	host.check(t, "unmap 3000-4000")
	as.late.leave()
	as.late.enter(host)
	host.check(t)
}

// TestLateUnmapsAreBounded: what takes long is unmapped at once unless a fork does it, and so is
// what would be much.
func TestLateUnmapsAreBounded(t *testing.T) {
	host := &hostSpace{}
	as := &addressSpace{AddressSpace: host, platform: &Platform{}}
	mapAt(t, as, 0, 1<<40)
	host.asked = nil
	as.Unmap(0, lateMost+0x1000)
	host.check(t, "unmap 0-101000")
	as.late.forks.Add(1)
	as.Unmap(0, lateMost+0x1000)
	host.check(t)
	as.late.forks.Add(-1)
	for i := range uint64(lateRanges) {
		as.Unmap(hostarch.Addr(1<<30+i*0x2000), 0x1000)
	}
	if want := "unmap 4003e000-4003f000"; len(host.asked) != 1 || host.asked[0] != want {
		t.Errorf("the host was asked to %q, want %q", host.asked, want)
	}
	host.asked = nil
	as.late.enter(host)
	if len(host.asked) != lateRanges || host.asked[0] != "unmap 0-101000" {
		t.Errorf("%d ranges are unmapped late: %q", len(host.asked), host.asked)
	}
}

// TestFailedMapping: what could not be mapped is unmapped as ever.
func TestFailedMapping(t *testing.T) {
	host := &hostSpace{}
	var l late
	if !l.defers(span(0x1000, 0x3000)) {
		t.Fatal("a range is unmapped at once")
	}
	broken := errors.New("broken")
	if err := l.mapped(span(0x1000, 0x2000), func() error { return broken }); err != broken {
		t.Error(err)
	}
	l.enter(host)
	host.check(t, "unmap 1000-3000")
}

func TestRanges(t *testing.T) {
	var list []hostarch.AddrRange
	for _, r := range []hostarch.AddrRange{span(10, 20), span(40, 50), span(20, 30), span(45, 60), span(0, 5)} {
		list = with(list, r)
	}
	if want := []hostarch.AddrRange{span(10, 30), span(40, 60), span(0, 5)}; !slices.Equal(list, want) {
		t.Errorf("ranges are %v, want %v", list, want)
	}
	if got, want := with(slices.Clone(list), span(5, 41)), []hostarch.AddrRange{span(0, 60)}; !slices.Equal(got, want) {
		t.Errorf("together they are %v, want %v", got, want)
	}
	if got, want := without(list, span(15, 45)), []hostarch.AddrRange{span(10, 15), span(45, 60), span(0, 5)}; !slices.Equal(got, want) {
		t.Errorf("without the middle they are %v, want %v", got, want)
	}
}

// TestNothingRunsWhileItIsOwed: threads enter and leave while another unmaps. None may be inside when
// a range is left for later.
func TestNothingRunsWhileItIsOwed(t *testing.T) {
	var l late
	var host quietSpace
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 20_000 {
				l.enter(&host)
				l.mu.Lock()
				if len(l.ranges) > 0 {
					t.Error("a thread runs while a range is still mapped")
				}
				l.mu.Unlock()
				l.leave()
			}
		})
	}
	for i := range 20_000 {
		l.defers(span(hostarch.Addr(i)<<12, hostarch.Addr(i+1)<<12))
	}
	wg.Wait()
}

// quietSpace is an address space that is asked for nothing but to unmap.
type quietSpace struct{ hostSpace }

func (*quietSpace) Unmap(hostarch.Addr, uint64) {}
