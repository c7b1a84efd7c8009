package erofs

// pendingLink is the entry of a placeholder, which a later entry may replace.
type pendingLink struct {
	dir         *Node
	name        string
	placeholder *Node
}

// Link makes path another name of the file at target. If there is no such file
// yet, the link is made when the layer ends. Errors are *EntryError.
func (t *Tree) Link(path, target string) error {
	names, err := splitPath(path)
	if err != nil {
		return err
	}
	targetNames, err := splitPath(target)
	if err != nil {
		return err
	}
	if len(names) == 0 {
		return &EntryError{path, "the root cannot be a hard link"}
	}
	dir, err := t.makeParent(path, names)
	if err != nil {
		return err
	}
	name := names[len(names)-1]
	n := t.lookup(targetNames)
	switch {
	case n != nil && n == dir.children[name].node:
		return nil
	case n == nil || n.Kind == linkPending:
		n = &Node{Kind: linkPending, Target: target}
		t.pending = append(t.pending, pendingLink{dir, name, n})
	case n.Kind == Directory:
		return &EntryError{path, "hard link to a directory"}
	}
	t.insert(dir, name, n)
	return nil
}

// resolveLinks replaces the placeholders of this layer by their targets. It visits every
// placeholder once, however long the chains of links to links are.
func (t *Tree) resolveLinks() error {
	found := make(map[*Node]*Node, len(t.pending)) // placeholder to its file; nil while on the chain
	for _, p := range t.pending {
		if p.dir.children[p.name].node != p.placeholder {
			continue // replaced by a later entry
		}
		n, err := t.followLink(p.placeholder, found)
		if err != nil {
			return err
		}
		p.dir.children[p.name] = dirent{n, p.dir.children[p.name].layer}
	}
	t.pending = nil
	return nil
}

func (t *Tree) followLink(n *Node, found map[*Node]*Node) (*Node, error) {
	var chain []*Node
	for n.Kind == linkPending {
		file, seen := found[n]
		if seen && file == nil {
			return nil, &EntryError{n.Target, "hard links point at each other"}
		}
		if seen {
			n = file
			break
		}
		found[n] = nil
		chain = append(chain, n)
		names, err := splitPath(n.Target)
		if err != nil {
			return nil, err
		}
		next := t.lookup(names)
		if next == nil {
			return nil, &EntryError{n.Target, "target of a hard link is missing"}
		}
		if next.Kind == Directory {
			return nil, &EntryError{n.Target, "hard link to a directory"}
		}
		n = next
	}
	for _, link := range chain {
		found[link] = n
	}
	return n, nil
}
