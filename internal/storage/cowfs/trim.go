package cowfs

import (
	"fmt"
	"math/bits"

	"golang.org/x/sys/unix"
)

// Trim gives the pages that no pin needs back to the host. After it only pins may be
// read: the present files are gone.
func (f *FS) Trim() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	root := f.tree.root
	f.tree.root = 0
	f.store.noPunch = true // all at once in the end: what lies together is one hole
	if err := f.giveUp(root, -1); err != nil {
		return err
	}
	return f.store.punchFree()
}

// giveUp frees what is below a node and was born since the last pin. What is below a
// node that was born before has not changed since: it is the pin's, or an ancestor's.
func (f *FS) giveUp(p Page, level int) error {
	if p == 0 || !f.store.Own(p) {
		return nil
	}
	n, err := f.tree.load(p, level)
	if err != nil || !f.store.Mutable(p, n.born()) {
		return err
	}
	for i := range n.count() {
		if n.level() > 0 {
			child, _ := n.child(i)
			if err := f.giveUp(child, n.level()-1); err != nil {
				return err
			}
			continue
		}
		key, val, _ := n.cell(i)
		if _, kind, _ := keyOf(key); kind != keyExtent {
			continue
		}
		e, err := extentOf(key, val)
		if err != nil {
			return err
		}
		if e.page != 0 && f.store.Mutable(e.page, e.born) {
			f.store.Free(e.page, int(e.n), e.born)
		}
	}
	f.store.Free(p, 1, n.born())
	return nil
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

func (s *Store) punch(p, n Page) error {
	const flags = unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE
	if err := unix.Fallocate(int(s.own.Fd()), flags, int64(p)*PageSize, int64(n)*PageSize); err != nil {
		return fmt.Errorf("give back %d pages: %w", n, err)
	}
	return nil
}
