package btree

const (
	// A node with less than mergeBelow bytes is merged with a neighbour, if both together
	// have at most mergedMost bytes. A fuller node would soon be split again.
	mergeBelow = nodeCapacity / 3
	mergedMost = nodeCapacity * 5 / 6
)

// Delete removes key and returns whether it was there. After an error nothing has changed.
func (t *Tree) Delete(key []byte) (bool, error) {
	if t.root == 0 {
		return false, nil
	}
	exists, err := t.walk(key)
	if err != nil || !exists {
		return false, err
	}
	need, err := t.frozenNodes()
	if err != nil {
		return false, err
	}
	if err := t.s.EnsureNodes(need); err != nil {
		return false, err
	}
	if err := t.thaw(); err != nil {
		return false, err
	}
	d := t.path.depth - 1
	t.path.steps[d].n.remove(t.path.steps[d].i)
	for t.shrink(d) {
		d--
	}
	t.lowerRoot()
	return true, nil
}

// shrink frees or merges the node at step d of the path, from which an entry was removed, if it
// has become small. It returns whether an entry of its parent was removed too.
func (t *Tree) shrink(d int) bool {
	step := &t.path.steps[d]
	if d == 0 {
		if step.n.count() == 0 {
			t.freeNode(step.p, step.n.born())
			t.root = 0
		}
		return false
	}
	parent := &t.path.steps[d-1]
	if step.n.count() == 0 {
		t.freeNode(step.p, step.n.born())
		dropEntry(parent.n, parent.i)
		return true
	}
	if step.n.used() >= mergeBelow {
		return false
	}
	return t.merge(step, parent, parent.i-1) || t.merge(step, parent, parent.i)
}

// dropEntry removes entry i of an inner node.
func dropEntry(n *treeNode, i int) {
	n.remove(i)
	if i == 0 && n.count() > 0 {
		n.setFirstKeyEmpty()
	}
}

// merge merges the children i and i+1 of parent into step, which is one of them and may be
// changed, if they are small enough.
func (t *Tree) merge(step, parent *pathStep, i int) bool {
	if i < 0 || i+1 >= parent.n.count() {
		return false
	}
	other := i
	if i == parent.i {
		other = i + 1
	}
	p, _ := parent.n.child(other)
	n, err := t.load(p, step.n.level())
	if err != nil || !t.s.Own(p) && t.checkInherited(p, n) != nil {
		return false // merging is not necessary, and the next use of that page returns the error
	}
	sep, _, _ := parent.n.cell(i + 1)
	between := 0
	if n.level() > 0 {
		between = len(sep) // the first entry of the right node gets its key back
	}
	if n.used()+step.n.used()+between > mergedMost {
		return false
	}
	t.old = *step.n
	left, right := &t.old, n
	if other == i {
		left, right = n, &t.old
	}
	step.n.init(n.level(), t.s.Epoch(), step.p)
	for j := range left.count() {
		key, val, _ := left.cell(j)
		step.n.appendCell(key, val)
	}
	for j := range right.count() {
		key, val, _ := right.cell(j)
		if j == 0 && n.level() > 0 {
			key = sep
		}
		step.n.appendCell(key, val)
	}
	t.freeNode(p, n.born())
	parent.n.setChild(i, step.p)
	parent.n.remove(i + 1)
	return true
}

// lowerRoot makes the only child of a root the root.
func (t *Tree) lowerRoot() {
	for t.root != 0 {
		n, err := t.load(t.root, -1)
		if err != nil || n.level() == 0 || n.count() > 1 {
			return
		}
		child, ok := n.child(0)
		if !ok {
			return
		}
		t.freeNode(t.root, n.born())
		t.root = child
	}
}
