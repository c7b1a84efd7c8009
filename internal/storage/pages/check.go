package pages

import "fmt"

// Check checks that the parts of a store's book-keeping agree: no page may be lost, or free
// twice. It is slow, and for tests.
func (s *Store) Check() error {
	owner := map[Page]string{}
	claim := func(p Page, who string) error {
		if was := owner[p]; was != "" {
			return fmt.Errorf("page %d is %s and %s", p, was, who)
		}
		if !s.Own(p) {
			return fmt.Errorf("page %d is %s and not ours", p, who)
		}
		owner[p] = who
		return nil
	}
	free, dirty := int64(0), Page(0)
	for _, r := range s.free.byStart {
		for i := range r.n {
			if err := claim(r.start+i, "free"); err != nil {
				return err
			}
		}
		free += int64(r.n)
		if !r.clean {
			dirty += r.n
			continue
		}
		b, err := s.Bytes(r.start, int(r.n))
		if err != nil {
			return err
		}
		for len(b) > 0 && b[0] == 0 && b[len(b)/2] == 0 { // a sample
			b = b[min(len(b), PageSize/2):]
		}
		if len(b) > 0 {
			return fmt.Errorf("%d clean pages from %d on are not zero", r.n, r.start)
		}
	}
	if dirty != s.free.dirtyPages {
		return fmt.Errorf("%d dirty pages, counted %d", dirty, s.free.dirtyPages)
	}
	nodes, idle := 0, 0
	for at, c := range s.clusters {
		if at*clusterPages != c.start {
			return fmt.Errorf("cluster at %d begins at %d", at*clusterPages, c.start)
		}
		if (c.free != 0) != (c.pos < len(s.partial) && s.partial[c.pos] == c) {
			return fmt.Errorf("cluster at %d with free pages %b is in the wrong place", c.start, c.free)
		}
		for i := range Page(clusterPages) {
			if c.free&(1<<i) != 0 {
				if err := claim(c.start+i, "a free node"); err != nil {
					return err
				}
				nodes++
			}
		}
		for i := c.ready; i < clusterPages; i++ {
			if err := claim(c.start+Page(i), "not ready"); err != nil {
				return err
			}
			idle++
		}
		if c.ready < clusterPages && c != s.growing {
			return fmt.Errorf("cluster at %d does not grow any more", c.start)
		}
	}
	if nodes != s.free1 {
		return fmt.Errorf("%d free nodes, counted %d", nodes, s.free1)
	}
	free += int64(idle)
	for _, pin := range s.pins {
		for _, d := range pin.dead {
			for i := range d.n {
				if err := claim(d.start+i, "dead"); err != nil {
					return err
				}
			}
		}
	}
	if all := int64(s.end - s.base); all-free-int64(nodes) != s.Used() {
		return fmt.Errorf("%d pages, %d free, %d of nodes free, and %d used", all, free, nodes, s.Used())
	}
	return nil
}
