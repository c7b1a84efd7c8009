package pages

import (
	"errors"
	"fmt"
	"math/bits"

	"golang.org/x/sys/unix"
)

const (
	// clusterPages is how many nodes lie together, so that they do not cut the
	// data into pieces. A cluster is aligned to it: a page's number says which
	// cluster it may be in. It is the number of bits of nodeCluster.free.
	clusterPages = 64
	// MaxEnsured is what EnsureNodes takes at most.
	MaxEnsured = clusterPages
	// NodeStep is how many pages of a cluster get their space on the host at a
	// time: most sandboxes need only a few.
	NodeStep = 16
	// spareNodes is how many free pages in clusters are kept. More than
	// ensureNodes is ever asked for remain after a cluster was given back, so
	// that what it promised holds.
	spareNodes = 2 * clusterPages
	// RoomNodes is how many free pages there are at least when something new
	// begins, and PutNodes how many are left when a key was put: so a deletion
	// finds some on a disk that is full.
	RoomNodes = 24
	PutNodes  = 8

	// punchPages is the length from which on a free range is punched out of
	// the file: below it the system call costs more than the space is worth.
	punchPages Page = 16
)

// nodeCluster is clusterPages pages for nodes. Stores to a page that has no space
// on the host would be a SIGBUS when the host's disk is full: so those that are
// not ready are not used.
type nodeCluster struct {
	start Page
	ready int    // so many pages have their space on the host, from the first on
	free  uint64 // bit i: page start+i is free and ready
	pos   int    // in Store.partial, if free is not 0
}

// FreeMuch runs free, which frees many pages, and gives all that is free then back to the host
// at once: what lies together is one hole.
func (s *Store) FreeMuch(free func() error) error {
	defer func(before bool) { s.noPunch = before }(s.noPunch)
	s.noPunch = true
	if err := free(); err != nil {
		return err
	}
	return s.punchFree()
}

// ReadyNodes returns how many calls of AllocNode succeed without more space of the host.
func (s *Store) ReadyNodes() int { return s.free1 }

// Bound makes the store use no page from end on. If it uses pages up to there already, it
// makes no more pages for nodes ready either: what needs more than are free is ErrNoSpace.
func (s *Store) Bound(end Page) {
	s.most = max(end, s.end)
	if end <= s.end {
		s.growing = nil
	}
}

// Used returns how many pages of our own file are in use or pinned.
func (s *Store) Used() int64 { return s.used }

// Alloc returns between 1 and want contiguous pages for data, all zero.
func (s *Store) Alloc(want int) (p Page, got int, err error) {
	if want < 1 {
		return 0, 0, fmt.Errorf("allocate %d pages", want)
	}
	n := Page(want)
	r := s.free.fit(n)
	if r == nil && s.free.dirtyPages > Page(s.used/4)+1024 {
		// Short ranges that were not punched take disk space: do not let them
		// become more and more because everybody wants long ones.
		r = s.free.largest(false)
	}
	if r == nil {
		if p, got, err = s.extend(n); !errors.Is(err, ErrNoSpace) {
			if err == nil {
				s.used += int64(got)
			}
			return p, got, err
		}
		if r = s.free.largest(true); r == nil {
			r = s.free.largest(false)
		}
		if r == nil {
			return 0, 0, err
		}
	}
	p, n = r.start, min(n, r.n)
	if !r.clean {
		if err := s.wipe(p, n); err != nil {
			return 0, 0, err
		}
	}
	s.free.take(r, p, n)
	s.used += int64(n)
	return p, int(n), nil
}

// AllocNode returns one page for metadata. Its contents are undefined.
func (s *Store) AllocNode() (Page, error) {
	if err := s.EnsureNodes(1); err != nil {
		return 0, err
	}
	c := s.partial[len(s.partial)-1]
	i := bits.TrailingZeros64(c.free)
	c.free &^= 1 << i
	if c.free == 0 {
		s.dropPartial(c)
	}
	s.free1--
	s.used++
	return c.start + Page(i), nil
}

// EnsureNodes makes sure that the next n calls of AllocNode succeed, whatever is
// freed in between. n is at most MaxEnsured.
func (s *Store) EnsureNodes(n int) error {
	for s.free1 < n {
		if s.growing == nil {
			if err := s.addCluster(); err != nil {
				return err
			}
		}
		if err := s.growCluster(s.growing); err != nil {
			return err
		}
	}
	return nil
}

// growCluster makes more pages of a cluster ready.
func (s *Store) growCluster(c *nodeCluster) error {
	// Space that fallocate gives is not enough: with ext4 the first store to it can
	// still fail.
	if err := s.wipe(c.start+Page(c.ready), NodeStep); err != nil {
		return err
	}
	if c.free == 0 {
		s.addPartial(c)
	}
	c.free |= (1<<NodeStep - 1) << c.ready
	c.ready += NodeStep
	s.free1 += NodeStep
	if c.ready == clusterPages {
		s.growing = nil
	}
	return nil
}

// addCluster begins a cluster, none of which is ready.
func (s *Store) addCluster() error {
	c := &nodeCluster{}
	if r, at := s.free.fitAligned(clusterPages); r != nil {
		s.free.take(r, at, clusterPages)
		c.start = at
	} else {
		pad := -s.end % clusterPages
		p, got, err := s.extend(pad + clusterPages)
		if err != nil {
			return err
		}
		if Page(got) < pad+clusterPages {
			s.end = p // the very end of the mapping
			return ErrNoSpace
		}
		if pad > 0 {
			s.free.addClean(p, pad)
		}
		c.start = p + pad
	}
	s.clusters[c.start/clusterPages] = c
	s.growing = c
	return nil
}

func (s *Store) addPartial(c *nodeCluster) {
	c.pos = len(s.partial)
	s.partial = append(s.partial, c)
}

func (s *Store) dropPartial(c *nodeCluster) {
	last := s.partial[len(s.partial)-1]
	s.partial[c.pos], last.pos = last, c.pos
	s.partial = s.partial[:len(s.partial)-1]
}

// Free says that the present tree does not use n pages from p on any more, which
// were born in an epoch. What no pin needs is free at once.
func (s *Store) Free(p Page, n int, born uint32) {
	start, end := max(p, s.base), min(p+Page(max(n, 0)), s.end)
	if start >= end {
		return // an ancestor's: its own store knows who needs them
	}
	if born <= s.maxPinned {
		s.pins[len(s.pins)-1].bury(deadRange{start, end - start, born})
		return
	}
	s.reclaim(start, end-start)
}

// reclaim makes pages available again.
func (s *Store) reclaim(start, n Page) {
	s.used -= int64(n)
	for n > 0 {
		// A range of data never has a cluster in it, but neighbours in the dead
		// list may be of both kinds.
		if c := s.clusters[start/clusterPages]; c != nil {
			s.reclaimNode(c, start)
			start, n = start+1, n-1
			continue
		}
		k := min(n, clusterPages-start%clusterPages)
		for k < n && s.clusters[(start+k)/clusterPages] == nil {
			k = min(n, k+clusterPages)
		}
		s.reclaimData(start, k)
		start, n = start+k, n-k
	}
}

func (s *Store) reclaimNode(c *nodeCluster, p Page) {
	if c.free == 0 {
		s.addPartial(c)
	}
	c.free |= 1 << (p - c.start)
	s.free1++
	if bits.OnesCount64(c.free) == c.ready && s.free1 >= spareNodes {
		s.dropPartial(c)
		s.free1 -= c.ready
		if s.growing == c {
			s.growing = nil
		}
		delete(s.clusters, c.start/clusterPages)
		s.reclaimData(c.start, clusterPages)
	}
}

// reclaimData adds to the free space, and punches what is long enough or will not
// become longer.
func (s *Store) reclaimData(start, n Page) {
	r := s.free.addDirty(start, n)
	if s.noPunch || r.n < punchPages && !s.free.enclosed(r) {
		return
	}
	if err := s.punch(r.start, r.n); err != nil {
		// Not punching is correct too: the pages are cleared when they are
		// used again.
		s.noPunch = errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS)
		return
	}
	s.free.makeClean(r)
}

// punchFree makes holes of all pages that are free, however short.
func (s *Store) punchFree() error {
	for _, c := range s.clusters {
		for free := c.free; free != 0; {
			at := bits.TrailingZeros64(free)
			n := bits.TrailingZeros64(^(free >> at))
			if err := s.punch(c.start+Page(at), Page(n)); err != nil {
				return err
			}
			free &^= (1<<n - 1) << at
		}
	}
	for _, r := range s.free.byStart {
		if r.clean {
			continue
		}
		if err := s.punch(r.start, r.n); err != nil {
			return err
		}
	}
	return nil
}
