package btree

import "ramet.dev/ramet/internal/storage/pages"

// Check checks all nodes of a tree and calls fn with the page of each. It is slow, and for
// tests.
func (t *Tree) Check(fn func(pages.Page)) error {
	if t.root == 0 {
		return nil
	}
	return t.check(t.root, -1, fn)
}

func (t *Tree) check(p pages.Page, level int, fn func(pages.Page)) error {
	n, err := t.load(p, level)
	if err != nil {
		return err
	}
	if err := n.check(p, n.level()); err != nil {
		return err
	}
	fn(p)
	if n.level() == 0 {
		return nil
	}
	for i := range n.count() {
		child, _ := n.child(i)
		if err := t.check(child, n.level()-1, fn); err != nil {
			return err
		}
	}
	return nil
}
