package pages

import (
	"errors"
	"fmt"
	"math/bits"

	"golang.org/x/sys/unix"
)

const (
	// clusterPages is the number of nodes that are neighbours, so that they do not cut
	// the data into pieces. A cluster is aligned to its size: a page's number says which
	// cluster it may be in. It is the number of bits of nodeCluster.free.
	clusterPages = 64
	// MaxEnsured is the largest argument of EnsureNodes.
	MaxEnsured = clusterPages
	// NodeStep is the number of pages of a cluster that get their space on the host at a
	// time: most sandboxes need only a few.
	NodeStep = 16
	// spareNodes is the number of free nodes from which on a free cluster is given back.
	// MaxEnsured of them remain then, so that the promise of EnsureNodes holds.
	spareNodes = 2 * clusterPages
	// RoomNodes is the least number of free nodes before a new file or name is made, and
	// PutNodes the number that is left after a key was put: so a deletion finds some on a
	// full disk.
	RoomNodes = 24
	PutNodes  = 8

	// punchPages is the length from which on a free range is punched out of the file: for
	// a shorter one the system call costs more than the space is worth.
	punchPages Page = 16
)

// nodeCluster is clusterPages pages for nodes. A store to a page that has no space on the
// host is a SIGBUS when the host's disk is full: so pages that are not ready are not used.
type nodeCluster struct {
	start Page
	ready int    // the number of pages, from the first on, that have their space on the host
	free  uint64 // bit i: page start+i is free and ready
	pos   int    // in Store.partial, if free is not 0
}

// FreeMuch runs free, which frees many pages, and then gives all free pages back to the host at
// once: neighbours become one hole.
func (s *Store) FreeMuch(free func() error) error {
	defer func(before bool) { s.noPunch = before }(s.noPunch)
	s.noPunch = true
	if err := free(); err != nil {
		return err
	}
	return s.punchFree()
}

// ReadyNodes returns the number of calls of AllocNode that succeed without more space of the
// host.
func (s *Store) ReadyNodes() int { return s.free1 }

// Bound makes the store use no page from end on. If it uses pages up to end already, it also
// makes no more nodes ready: an operation that needs more than the free ones fails with
// ErrNoSpace. Bound is for tests.
func (s *Store) Bound(end Page) {
	s.most = max(end, s.end)
	if end <= s.end {
		s.growing = nil
	}
}

// Used returns the number of pages of the own file that are in use or pinned.
func (s *Store) Used() int64 { return s.used }

// Alloc returns between 1 and want contiguous pages for data, all zero.
func (s *Store) Alloc(want int) (p Page, got int, err error) {
	if want < 1 {
		return 0, 0, fmt.Errorf("allocate %d pages", want)
	}
	n := Page(want)
	r := s.free.fit(n)
	if r == nil && s.free.dirtyPages > Page(s.used/4)+1024 {
		// Short ranges that were not punched take disk space. They are used, so that they
		// do not accumulate if all requests are for long ranges.
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

// AllocNode returns a page for a node. Its contents are undefined.
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

// EnsureNodes makes sure that the next n calls of AllocNode succeed, whatever pages are freed
// in between. n is at most MaxEnsured.
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
	// fallocate does not do: on ext4 the first store to its space can still fail.
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

// addCluster begins a cluster without ready pages.
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

// Free frees n pages from p on, born in an epoch, which the present tree does not use any
// more. Pages that a pin needs become free with its release.
func (s *Store) Free(p Page, n int, born uint32) {
	start, end := max(p, s.base), min(p+Page(max(n, 0)), s.end)
	if start >= end {
		return // pages of an ancestor, whose store frees them
	}
	if born <= s.maxPinned {
		s.pins[len(s.pins)-1].addDead(deadRange{start, end - start, born})
		return
	}
	s.reclaim(start, end-start)
}

// reclaim makes free pages available.
func (s *Store) reclaim(start, n Page) {
	s.used -= int64(n)
	for n > 0 {
		// A range of data never has a cluster in it, but a range of the dead list may have
		// both.
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

// reclaimData adds pages to the free space, and punches their range if it is long enough or
// cannot become longer.
func (s *Store) reclaimData(start, n Page) {
	r := s.free.addDirty(start, n)
	if s.noPunch || r.n < punchPages && !s.free.enclosed(r) {
		return
	}
	if err := s.punch(r.start, r.n); err != nil {
		// Not punching is correct too: the pages are cleared when they are used again.
		s.noPunch = errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS)
		return
	}
	s.free.makeClean(r)
}

// punchFree punches all free ranges, however short.
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
