package erofs

// NextLayer ends a layer: hard links that still wait for their target are resolved, and later
// entries can hide or replace the entries made so far. A tree of one layer needs no call.
// Errors are *EntryError.
func (t *Tree) NextLayer() error {
	if err := t.resolveLinks(); err != nil {
		return err
	}
	t.layer++
	return nil
}

// Hide removes the file that lower layers have at path, with all files below. Entries of the
// present layer stay, whether they come before or after. A path that does not exist is no
// error.
func (t *Tree) Hide(path string) error {
	names, err := splitPath(path)
	if err != nil {
		return err
	}
	if len(names) == 0 {
		return &EntryError{path, "the root cannot be removed"}
	}
	dir, _ := t.walk(names[:len(names)-1], false)
	if dir != nil {
		t.hideChild(dir, names[len(names)-1])
	}
	return nil
}

// HideChildren removes the files that lower layers have below the directory at path. A path
// that is no directory is no error.
func (t *Tree) HideChildren(path string) error {
	names, err := splitPath(path)
	if err != nil {
		return err
	}
	if dir, _ := t.walk(names, false); dir != nil {
		t.clear(dir)
	}
	return nil
}

func (t *Tree) hideChild(dir *Node, name string) {
	d, ok := dir.children[name]
	if !ok {
		return
	}
	if d.node.Kind == Directory {
		t.clear(d.node)
	}
	// A directory of a lower layer that got children in this one stays, because
	// they need a parent.
	if d.layer < t.layer && len(d.node.children) == 0 {
		delete(dir.children, name)
	}
}

// clear removes the entries of lower layers below dir. No such entries can be added later in
// the same layer, so a second run is skipped: an archive could otherwise ask for quadratic
// work.
func (t *Tree) clear(dir *Node) {
	if dir.cleared == t.layer {
		return
	}
	dir.cleared = t.layer
	for name := range dir.children {
		t.hideChild(dir, name)
	}
}
