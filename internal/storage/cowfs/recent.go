package cowfs

import "sync"

// recentExtents has the extents that were looked up last, by parts of files. They are kept by
// value: garbage from every lookup made the collector run all the time beside a guest that
// reads at random, which cost more than the lookups.
type recentExtents struct {
	slots [1024]struct {
		mu sync.Mutex // lookups run at the same time
		e  extent
		of uint64 // the value of changes when e was stored
	}
	// changes counts the changes of extents, by a remainder of the inode number. Extents
	// are changed with the tree locked.
	changes [256]uint64
}

// recentPart is the number of blocks of a file that share a slot.
const recentPart = 256

func (r *recentExtents) slot(ino Ino, block uint64) int {
	return int((uint64(ino)*31 + block/recentPart) % uint64(len(r.slots)))
}

func (r *recentExtents) changesOf(ino Ino) *uint64 {
	return &r.changes[uint64(ino)%uint64(len(r.changes))]
}

// at returns the extent that has a block, if it is kept and valid.
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

// forget makes the extents of a file invalid.
func (r *recentExtents) forget(ino Ino) { *r.changesOf(ino)++ }
