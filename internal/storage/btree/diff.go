package btree

import (
	"bytes"

	"ramet.dev/ramet/internal/storage/pages"
)

// Diff calls fn in the order of keys for every key whose values differ in two views, with the
// values, nil where there is none. It ends with the first error of fn. data says which pages
// an entry refers to. Entries that refer to the same page numbers are equal only if these are
// the same pages: siblings hand out the same numbers.
//
// Pages that both views share are not read: a page is identified by its number and its file,
// and does not change while it is pinned.
func Diff(a, b *View, data func(key, val []byte) DataPages, fn func(key, av, bv []byte) error) error {
	for _, v := range []*View{a, b} {
		if v.err != nil {
			return v.err
		}
	}
	if a.root == b.root && (a.root == 0 || SamePages(a, b, a.root, 1)) {
		return nil
	}
	d := viewDiff{fn: fn, data: data, a: treeCursor{src: a}, b: treeCursor{src: b}, av: a, bv: b}
	if a.root != 0 {
		if err := d.a.push(a.root, -1, nil, nil); err != nil {
			return err
		}
	}
	if b.root != 0 {
		if err := d.b.push(b.root, -1, nil, nil); err != nil {
			return err
		}
	}
	for d.a.depth > 0 && d.b.depth > 0 {
		if err := d.step(); err != nil {
			return err
		}
	}
	if err := d.rest(&d.a, func(key, val []byte) error { return fn(key, val, nil) }); err != nil {
		return err
	}
	return d.rest(&d.b, func(key, val []byte) error { return fn(key, nil, val) })
}

// SamePages returns whether n pages from p on are the same pages in two views.
func SamePages(a, b *View, p, n pages.Page) bool {
	i, errA := a.segment(p, n)
	j, errB := b.segment(p, n)
	return errA == nil && errB == nil && a.files[i] == b.files[j]
}

// viewDiff is two cursors that go ahead side by side. The entries before them have been
// compared.
type viewDiff struct {
	a, b   treeCursor
	av, bv *View
	data   func(key, val []byte) DataPages
	fn     func(key, av, bv []byte) error
}

// step goes ahead by a key or subtree, or enters a subtree. The cursor that is behind goes
// first, so that both cursors arrive at a shared page at the same time. If one of them is
// inside of the page already, only the nodes on its path down are read.
func (d *viewDiff) step() error {
	a, b := &d.a, &d.b
	la, lb := a.level(), b.level()
	if la == 0 && lb == 0 {
		return d.compare()
	}
	if la == lb {
		pa, err := a.child()
		if err != nil {
			return err
		}
		pb, err := b.child()
		if err != nil {
			return err
		}
		if pa == pb && SamePages(d.av, d.bv, pa, 1) {
			a.next()
			b.next()
			return nil
		}
	}
	ka, err := a.lowest()
	if err != nil {
		return err
	}
	kb, err := b.lowest()
	if err != nil {
		return err
	}
	c := bytes.Compare(ka, kb)
	switch {
	case la == 0 && c < 0: // all keys of b are above
		return d.only(a, func(key, val []byte) error { return d.fn(key, val, nil) })
	case lb == 0 && c > 0:
		return d.only(b, func(key, val []byte) error { return d.fn(key, nil, val) })
	case la == 0:
		return b.descend()
	case lb == 0:
		return a.descend()
	case c < 0 || c == 0 && la > lb:
		return a.descend()
	case c > 0 || la < lb:
		return b.descend()
	}
	if err := a.descend(); err != nil {
		return err
	}
	return b.descend()
}

// compare is step if both cursors stand at keys.
func (d *viewDiff) compare() error {
	ka, va, err := d.a.entry()
	if err != nil {
		return err
	}
	kb, vb, err := d.b.entry()
	if err != nil {
		return err
	}
	switch c := bytes.Compare(ka, kb); {
	case c < 0:
		d.a.next()
		return d.fn(ka, va, nil)
	case c > 0:
		d.b.next()
		return d.fn(kb, nil, vb)
	}
	d.a.next()
	d.b.next()
	if bytes.Equal(va, vb) && !d.elsewhere(ka, va) {
		return nil
	}
	return d.fn(ka, va, vb)
}

// elsewhere returns whether an entry of both views refers to different pages.
func (d *viewDiff) elsewhere(key, val []byte) bool {
	p := d.data(key, val)
	return p.Start != 0 && !SamePages(d.av, d.bv, p.Start, pages.Page(p.N))
}

// only reports the key that a cursor stands at and passes it.
func (d *viewDiff) only(c *treeCursor, fn func(key, val []byte) error) error {
	key, val, err := c.entry()
	if err != nil {
		return err
	}
	c.next()
	return fn(key, val)
}

// rest reports all keys ahead of a cursor when the other one is at its end.
func (d *viewDiff) rest(c *treeCursor, fn func(key, val []byte) error) error {
	for {
		if err := c.toKey(); err != nil {
			return err
		}
		if c.depth == 0 {
			return nil
		}
		if err := d.only(c, fn); err != nil {
			return err
		}
	}
}
