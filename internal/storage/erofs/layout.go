package erofs

import (
	"cmp"
	"slices"
)

// layout assigns every file its place in the metadata area. Sizes depend on names, targets
// and extended attributes alone, so all addresses are known before metadata is written.
type layout struct {
	nodes     []*Node // in the order of their inodes, the root first
	files     []*Node // those with contents
	slots     uint64  // length of the metadata area
	dirBlocks uint32  // leading blocks of directories before it
}

// newLayout walks the tree from the root, names in byte order. It turns the directories' maps
// into sorted lists: the tree takes no more entries.
func newLayout(root *Node) *layout {
	l := &layout{slots: rootSlot}
	root.parent = root
	l.place(root)
	return l
}

// place gives n and all files below it an inode. The depth of trees is bounded by maxDepth.
func (l *layout) place(n *Node) {
	n.nlink = 1
	n.xattrs = encodeXattrs(n.Xattrs)
	inline := 0
	switch n.Kind {
	case Directory:
		n.sortChildren()
		n.nlink = 2
		n.dirSize = n.measure()
		inline = n.inlineTail(n.dirSize)
		n.dirAddr = l.dirBlocks
		l.dirBlocks += uint32((n.dirSize - uint64(inline) + BlockSize - 1) / BlockSize)
	case Symlink:
		if inline = n.inlineTail(uint64(len(n.Target))); inline == 0 {
			n.dirAddr = l.dirBlocks
			l.dirBlocks++
		}
	case Regular:
		if n.Data.size > 0 {
			l.files = append(l.files, n)
		}
	}
	l.nodes = append(l.nodes, n)
	n.ino = uint32(len(l.nodes))
	n.slot = l.allocate(inodeSize + len(n.xattrs) + inline)
	for _, c := range n.sorted {
		switch {
		case c.node.nlink > 0:
			c.node.nlink++
			continue
		case c.node.Kind == Directory:
			n.nlink++
			c.node.parent = n
		}
		l.place(c.node)
	}
}

// allocate returns the slot of an inode that occupies size bytes, extended attributes and
// inline data included. They cross a block boundary only if the attributes do not fit in a
// block: then there are no inline data.
func (l *layout) allocate(size int) uint64 {
	const perBlock = BlockSize / slotSize
	need := uint64(size+slotSize-1) / slotSize
	if at := l.slots % perBlock; at > 0 && at+need > perBlock {
		l.slots += perBlock - at
	}
	slot := l.slots
	l.slots += need
	return slot
}

// inlineTail returns the number of bytes at the end of size that go behind the inode: the part
// in the last block, if it fits in a block together with the inode and its extended
// attributes.
func (n *Node) inlineTail(size uint64) int {
	if tail := int(size % BlockSize); tail <= BlockSize-inodeSize-len(n.xattrs) {
		return tail
	}
	return 0
}

func (n *Node) sortChildren() {
	n.sorted = make([]namedNode, 0, len(n.children))
	for name, d := range n.children {
		n.sorted = append(n.sorted, namedNode{name, d.node})
	}
	n.children = nil
	slices.SortFunc(n.sorted, func(a, b namedNode) int { return cmp.Compare(a.name, b.name) })
}

// entries returns the directory's list with "." and "..", which the format has in order among
// the other names: some names sort before them.
func (n *Node) entries() []namedNode {
	all := make([]namedNode, 0, len(n.sorted)+2)
	all = append(all, namedNode{".", n}, namedNode{"..", n.parent})
	all = append(all, n.sorted...)
	slices.SortFunc(all, func(a, b namedNode) int { return cmp.Compare(a.name, b.name) })
	return all
}

// blockFill returns the number of entries that fit in a directory block, and the bytes that
// they take.
func blockFill(entries []namedNode) (count, size int) {
	for _, e := range entries {
		need := direntSize + len(e.name)
		if size+need > BlockSize {
			break
		}
		size += need
		count++
	}
	return count, size
}

// measure returns the size of the directory in bytes: whole blocks and the used part of the
// last one.
func (n *Node) measure() uint64 {
	size := uint64(0)
	for rest := n.entries(); len(rest) > 0; {
		count, used := blockFill(rest)
		if rest = rest[count:]; len(rest) > 0 {
			used = BlockSize
		}
		size += uint64(used)
	}
	return size
}

// directory encodes the list of n. measure has set its size.
func (n *Node) directory() []byte {
	out := make([]byte, 0, n.dirSize+BlockSize)
	for rest := n.entries(); len(rest) > 0; {
		count, used := blockFill(rest)
		block := out[len(out) : len(out)+BlockSize]
		clear(block)
		nameOff := count * direntSize
		for i, e := range rest[:count] {
			putDirent(block[i*direntSize:], e.node.slot, nameOff, e.node.Kind)
			nameOff += copy(block[nameOff:], e.name)
		}
		if rest = rest[count:]; len(rest) > 0 {
			used = BlockSize
		}
		out = out[:len(out)+used]
	}
	return out
}
