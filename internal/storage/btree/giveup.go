package btree

import "ramet.dev/ramet/internal/storage/pages"

// DataPages are contiguous data pages that an entry of a tree refers to. Start is 0 if it refers
// to none.
type DataPages struct {
	Start pages.Page
	N     uint64
	Born  uint32
}

// Trim gives all pages that no pin needs back to the host and leaves an empty tree. data says
// which pages an entry refers to.
func (t *Tree) Trim(data func(key, val []byte) (DataPages, error)) error {
	root := t.root
	t.root = 0
	return t.s.FreeMuch(func() error { return t.giveUp(root, -1, data) })
}

// giveUp frees the pages at and below a node that were born since the last pin. The pages below
// a node that was born before have not changed since: they are the pin's or an ancestor's.
func (t *Tree) giveUp(p pages.Page, level int, data func(key, val []byte) (DataPages, error)) error {
	if p == 0 || !t.s.Own(p) {
		return nil
	}
	n, err := t.load(p, level)
	if err != nil || !t.s.Mutable(p, n.born()) {
		return err
	}
	for i := range n.count() {
		if n.level() > 0 {
			child, _ := n.child(i)
			if err := t.giveUp(child, n.level()-1, data); err != nil {
				return err
			}
			continue
		}
		key, val, _ := n.cell(i)
		d, err := data(key, val)
		if err != nil {
			return err
		}
		if d.Start != 0 && t.s.Mutable(d.Start, d.Born) {
			t.s.Free(d.Start, int(d.N), d.Born)
		}
	}
	t.s.Free(p, 1, n.born())
	return nil
}
