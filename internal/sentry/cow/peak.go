package cow

import (
	"sync/atomic"

	"gvisor.dev/gvisor/pkg/sentry/pgalloc"
)

// peak is the most memory that was in use. gVisor does not count it. Memory is given back when processes unmap it or
// end, so it is enough to look before that; files in memory that nobody has mapped are not seen when they are removed.
type peak struct {
	mf   *pgalloc.MemoryFile
	most atomic.Uint64 // bytes
}

// note looks how much memory is in use, and returns the most so far.
func (p *peak) note() uint64 {
	used, err := p.mf.TotalUsage()
	if err != nil {
		return p.most.Load()
	}
	for {
		most := p.most.Load()
		if used <= most || p.most.CompareAndSwap(most, used) {
			return max(used, most)
		}
	}
}

// leastNoted is how much a process must unmap for a look, in bytes: a look costs a system call.
const leastNoted = 64 << 10
