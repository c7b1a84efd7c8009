package cow

import (
	"testing"

	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/platform"
)

// watchedPlatform notes what is taken from its address spaces.
type watchedPlatform struct {
	idlePlatform
	unmapped *[]hostarch.AddrRange
}

func (p watchedPlatform) NewAddressSpace() (platform.AddressSpace, error) {
	return watchedAddressSpace{unmapped: p.unmapped}, nil
}

type watchedAddressSpace struct {
	unusedAddressSpace
	unmapped *[]hostarch.AddrRange
}

func (as watchedAddressSpace) Unmap(addr hostarch.Addr, length uint64) {
	*as.unmapped = append(*as.unmapped, hostarch.AddrRange{Start: addr, End: addr + hostarch.Addr(length)})
}

// TestLoosen takes from a process, piece by piece, the large mapping that a freeze would
// take from it, leaves it what it has written there, and does so once only.
func TestLoosen(t *testing.T) {
	const mib = 1 << 20
	mem := newMemory(t)
	var unmapped []hostarch.AddrRange
	p := newProcessOn(t, mem, watchedPlatform{unmapped: &unmapped})
	small, large := p.mmap(mib/page), p.mmap(40*mib/page)
	p.write(small, "small")
	for at := hostarch.Addr(0); at < 40*mib; at += mib {
		p.write(large+at, "large")
	}
	unmapped = nil
	mem.loosen(p.ctx, p.mm)
	covered := hostarch.Addr(0)
	for _, r := range unmapped {
		covered += r.Length()
		if r.Contains(small) {
			t.Errorf("the small mapping was taken in %v", r)
		}
		if r.Start&^(loosePiece-1) != (r.End-1)&^(loosePiece-1) {
			t.Errorf("%v is not within a piece", r)
		}
	}
	if covered < 36*mib {
		t.Errorf("%d MiB of 40 were taken: %v", covered/mib, unmapped)
	}
	if got := p.read(small, 5) + " " + p.read(large+39*mib, 5); got != "small large" {
		t.Errorf("the process reads %q", got)
	}

	copyOnWrite(nil, p.mm)
	unmapped = nil
	if mem.loosen(p.ctx, p.mm); len(unmapped) > 0 {
		t.Errorf("of what is copied before it is written, %v was taken", unmapped)
	}
}

// TestMapUnit looks at how much a fault maps while mappings are being taken away.
func TestMapUnit(t *testing.T) {
	mem := newMemory(t)
	p := NewPlatform(idlePlatform{}, mem)
	if n := p.MapUnit(); n != 0 {
		t.Errorf("a fault maps pieces of %d bytes", n)
	}
	mem.loosening.Store(true)
	if n := p.MapUnit(); n != loosePiece {
		t.Errorf("a fault maps pieces of %d bytes while mappings are taken away", n)
	}
}
