package cowfs

import "sync"

// recentExtents has extents that were looked up last, by the part of a file that was
// asked for. They are kept by value: garbage from every lookup made the collector run
// all the time beside a guest that reads at random, which cost more than the lookups.
type recentExtents struct {
	slots [1024]struct {
		mu sync.Mutex // lookups run at the same time
		e  extent
		of uint64 // the value of changes when e was noted
	}
	// changes counts, for files of one remainder, the changes of their extents, which
	// come with the tree locked.
	changes [256]uint64
}

// recentPart is how many blocks of a file share a slot.
const recentPart = 256

func (r *recentExtents) slot(ino Ino, block uint64) int {
	return int((uint64(ino)*31 + block/recentPart) % uint64(len(r.slots)))
}

func (r *recentExtents) changesOf(ino Ino) *uint64 {
	return &r.changes[uint64(ino)%uint64(len(r.changes))]
}

// at returns the extent that has a block, if it was noted and is still so.
func (r *recentExtents) at(ino Ino, block uint64) (extent, bool) {
	s := &r.slots[r.slot(ino, block)]
	s.mu.Lock()
	e, of := s.e, s.of
	s.mu.Unlock()
	return e, e.ino == ino && block-e.block < e.n && of == *r.changesOf(ino)
}

// note keeps the extent that a block was found in.
func (r *recentExtents) note(e extent, block uint64) {
	s := &r.slots[r.slot(e.ino, block)]
	s.mu.Lock()
	s.e, s.of = e, *r.changesOf(e.ino)
	s.mu.Unlock()
}

func (r *recentExtents) forget(ino Ino) { *r.changesOf(ino)++ }
