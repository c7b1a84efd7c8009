package launch

import (
	"sync/atomic"
	"time"

	"ramet.dev/ramet/internal/engine/cgroup"
)

const (
	// watchEvery is how often the memory of a sentry without a control group is read. A program that takes 1 GiB a
	// second passes its limit by some 100 MiB.
	watchEvery = 100 * time.Millisecond
	// watchAll is how often the memory of its processes on the host is read besides, in readings: that takes
	// a millisecond.
	watchAll = 30
)

// memoryWatch ends a sentry whose memory is beyond a limit. Its zero value has no limit.
type memoryWatch struct {
	limit    atomic.Int64 // bytes
	running  atomic.Bool
	exceeded atomic.Bool
}

// SetLimits applies limits to the sentry's control group. Where there is none, the limit of memory is watched: every
// 100 ms the memory is read, and the sentry is killed beyond the limit. Other limits are errors of CodeIsolation
// then.
func (s *Sentry) SetLimits(l cgroup.Limits) error {
	watched := l.MemoryBytes
	if s.group != nil {
		watched = 0
	} else {
		l.MemoryBytes = 0
	}
	if err := s.process.SetLimits(l); err != nil {
		return err
	}
	s.watch.limit.Store(watched)
	if watched > 0 && s.watch.running.CompareAndSwap(false, true) {
		go s.watchMemory()
	}
	return nil
}

// watchMemory ends when the sentry has ended.
func (s *Sentry) watchMemory() {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	processes := int64(0)
	for n := 0; ; n++ {
		if n%watchAll == 0 {
			if private, err := PrivateBytes(s); err == nil { // else it has ended
				processes = private - Allocated(s.Memory())
			}
		}
		if limit := s.watch.limit.Load(); limit > 0 && Allocated(s.Memory())+processes > limit {
			s.watch.exceeded.Store(true)
			_ = s.handle.Kill() // it may have ended
			return
		}
		select {
		case <-s.done:
			return
		case <-tick.C:
		}
	}
}
