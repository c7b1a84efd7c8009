package dormant

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/log"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
	"gvisor.dev/gvisor/pkg/sentry/platform"
)

// space is an address space that has none of the host's before it is woken.
type space struct {
	platform.NoAddressSpaceIO
	of *Platform

	inner    atomic.Pointer[platform.AddressSpace] // nil while it is dormant
	waking   sync.Mutex                            // held while it is woken or released
	gone     bool                                  // released; guarded by waking
	refused  time.Time                             // when the host first refused it a process; guarded by waking
	unforked int                                   // forks that began while it was dormant, and go on; guarded by waking
}

// awake returns the inner address space, nil while s is dormant.
func (s *space) awake() platform.AddressSpace {
	if as := s.inner.Load(); as != nil {
		return *as
	}
	return nil
}

// wake ends the sleep of s, if it is dormant, and returns the inner address space.
func (s *space) wake() (platform.AddressSpace, error) {
	if as := s.awake(); as != nil {
		return as, nil
	}
	s.waking.Lock()
	defer s.waking.Unlock()
	if as := s.awake(); as != nil {
		return as, nil
	}
	if s.gone {
		return nil, fmt.Errorf("the address space was released")
	}
	as, err := s.of.Platform.NewAddressSpace()
	if err != nil {
		if s.refused.IsZero() {
			s.refused = time.Now()
			log.Warningf("Wake process: %v", err)
		}
		return nil, err
	}
	s.inner.Store(&as)
	return as, nil
}

// MapFile implements platform.AddressSpace.
func (s *space) MapFile(addr hostarch.Addr, f memmap.File, fr memmap.FileRange, at hostarch.AccessType, precommit bool) error {
	as, err := s.wake()
	if err != nil {
		return err
	}
	return as.MapFile(addr, f, fr, at, precommit)
}

// Unmap implements platform.AddressSpace. Nothing is mapped while it is dormant.
func (s *space) Unmap(addr hostarch.Addr, length uint64) {
	if as := s.awake(); as != nil {
		as.Unmap(addr, length)
	}
}

// Release implements platform.AddressSpace.
func (s *space) Release() {
	s.waking.Lock()
	defer s.waking.Unlock()
	s.gone = true
	if as := s.awake(); as != nil {
		as.Release()
	}
}

// PreFork implements platform.AddressSpace. It wakes the process, which is about to run: the inner address space has
// to see both PreFork and PostFork. If the host refuses that, it sees neither.
func (s *space) PreFork() {
	as, err := s.wake()
	if err != nil {
		s.waking.Lock()
		s.unforked++
		s.waking.Unlock()
		return
	}
	as.PreFork()
}

// PostFork implements platform.AddressSpace. It does not matter which of several forks it belongs to.
func (s *space) PostFork() {
	s.waking.Lock()
	if s.unforked > 0 {
		s.unforked--
		s.waking.Unlock()
		return
	}
	s.waking.Unlock()
	if as := s.awake(); as != nil {
		as.PostFork()
	}
}
