package btree

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"ramet.dev/ramet/internal/storage/pages"
)

// A node is a page:
//
//	 0 magic    4 bytes
//	 4 level    1 byte, 0 for leaves
//	 5          1 byte, 0
//	 6 count    2 bytes
//	 8 born     4 bytes, the epoch
//	12 low      2 bytes, the offset at which cells begin
//	14 waste    2 bytes, the number of bytes from low on that are in no cell
//	16 self     8 bytes, the page's number
//	24 newest   2 bytes, the entry that was inserted last, or noEntry
//	26 slots    2 bytes each: the offset of the cell; ascending by key
//	...
//	low cells   2 bytes length of key, 2 bytes length of value, key, value
//
// Values of inner nodes are page numbers. The keys of a child are at least the key of its entry
// and below the next key; the first key of an inner node is empty and stands for all keys below
// the second.
type treeNode [pages.PageSize]byte

const (
	nodeMagic      = 0x4e776f43 // CowN
	nodeHeader     = 26
	noEntry        = 0xffff
	nodeCapacity   = pages.PageSize - nodeHeader
	cellHeader     = 4
	slotSize       = 2
	childSize      = 8
	maxKey         = 600
	maxValue       = 1200
	maxCell        = slotSize + cellHeader + maxKey + maxValue
	maxTreeDepth   = 24
	maxTreeLevel   = maxTreeDepth - 1
	maxNodeEntries = nodeCapacity / (slotSize + cellHeader)
)

// A full node and one more cell always make two nodes: see splitPoint.
const _ = uint(nodeCapacity - 2*maxCell)

func (n *treeNode) level() int       { return int(n[4]) }
func (n *treeNode) count() int       { return int(binary.LittleEndian.Uint16(n[6:])) }
func (n *treeNode) born() uint32     { return binary.LittleEndian.Uint32(n[8:]) }
func (n *treeNode) low() int         { return int(binary.LittleEndian.Uint16(n[12:])) }
func (n *treeNode) waste() int       { return int(binary.LittleEndian.Uint16(n[14:])) }
func (n *treeNode) self() pages.Page { return pages.Page(binary.LittleEndian.Uint64(n[16:])) }

func (n *treeNode) newest() int { return int(binary.LittleEndian.Uint16(n[24:])) }

func (n *treeNode) setNewest(i int)      { binary.LittleEndian.PutUint16(n[24:], uint16(i)) }
func (n *treeNode) setCount(v int)       { binary.LittleEndian.PutUint16(n[6:], uint16(v)) }
func (n *treeNode) setBorn(v uint32)     { binary.LittleEndian.PutUint32(n[8:], v) }
func (n *treeNode) setLow(v int)         { binary.LittleEndian.PutUint16(n[12:], uint16(v)) }
func (n *treeNode) setWaste(v int)       { binary.LittleEndian.PutUint16(n[14:], uint16(v)) }
func (n *treeNode) setSelf(p pages.Page) { binary.LittleEndian.PutUint64(n[16:], uint64(p)) }

func (n *treeNode) slot(i int) int {
	at := nodeHeader + i*slotSize
	return int(binary.LittleEndian.Uint16(n[at : at+2]))
}

func (n *treeNode) setSlot(i, off int) {
	at := nodeHeader + i*slotSize
	binary.LittleEndian.PutUint16(n[at:at+2], uint16(off))
}

// used returns the bytes of nodeCapacity that are used.
func (n *treeNode) used() int {
	return n.count()*slotSize + pages.PageSize - n.low() - n.waste()
}

// cellCost returns the bytes of nodeCapacity that a cell uses.
func cellCost(key, val []byte) int { return slotSize + cellHeader + len(key) + len(val) }

// init makes an empty node, whatever the page held.
func (n *treeNode) init(level int, born uint32, self pages.Page) {
	binary.LittleEndian.PutUint32(n[0:], nodeMagic)
	n[4], n[5] = byte(level), 0
	n.setCount(0)
	n.setBorn(born)
	n.setLow(pages.PageSize)
	n.setWaste(0)
	n.setSelf(self)
	n.setNewest(noEntry)
}

// checkHeader returns an error unless n can be page p of a level; -1 is any level. Without an
// error the slots of all entries are within the page.
func (n *treeNode) checkHeader(p pages.Page, level int) error {
	count, low := n.count(), n.low()
	if binary.LittleEndian.Uint32(n[0:]) != nodeMagic || n.self() != p || n[5] != 0 ||
		count == 0 || low > pages.PageSize || nodeHeader+count*slotSize > low ||
		n.level() > maxTreeLevel || level >= 0 && n.level() != level {
		return fmt.Errorf("%w: page %d is no node of level %d", pages.ErrCorrupt, p, level)
	}
	return nil
}

// cell returns entry i. ok is false if the cell is not within the page.
func (n *treeNode) cell(i int) (key, val []byte, ok bool) {
	off := n.slot(i)
	if off > pages.PageSize-cellHeader {
		return nil, nil, false
	}
	key0 := off + cellHeader
	val0 := key0 + int(binary.LittleEndian.Uint16(n[off:]))
	end := val0 + int(binary.LittleEndian.Uint16(n[off+2:]))
	if end > pages.PageSize {
		return nil, nil, false
	}
	return n[key0:val0:val0], n[val0:end:end], true
}

// child returns the page number in entry i.
func (n *treeNode) child(i int) (pages.Page, bool) {
	_, val, ok := n.cell(i)
	if !ok || len(val) != childSize {
		return 0, false
	}
	return pages.Page(binary.LittleEndian.Uint64(val)), true
}

// find returns the first entry from from on whose key is not below key, and whether its key is
// key.
func (n *treeNode) find(key []byte, from int) (i int, equal, ok bool) {
	lo, hi := from, n.count()
	for lo < hi {
		mid := int(uint(lo+hi) / 2)
		k, _, ok := n.cell(mid)
		if !ok {
			return 0, false, false
		}
		switch c := bytes.Compare(k, key); {
		case c < 0:
			lo = mid + 1
		case c > 0:
			hi = mid
		default:
			return mid, true, true
		}
	}
	return lo, false, true
}

// findChild returns the entry of an inner node whose subtree has key.
func (n *treeNode) findChild(key []byte) (i int, ok bool) {
	i, equal, ok := n.find(key, 1)
	if !equal {
		i--
	}
	return i, ok
}

// check checks the whole node. Without an error, accessors do not fail.
func (n *treeNode) check(p pages.Page, level int) error {
	if err := n.checkHeader(p, level); err != nil {
		return err
	}
	bad := func(what string, i int) error {
		return fmt.Errorf("%w: page %d: %s of entry %d", pages.ErrCorrupt, p, what, i)
	}
	inner, cells := n.level() > 0, 0
	var before []byte
	for i := range n.count() {
		key, val, ok := n.cell(i)
		switch {
		case !ok || n.slot(i) < n.low():
			return bad("place", i)
		case len(key) > maxKey || (len(key) == 0) != (inner && i == 0):
			return bad("length of the key", i)
		case len(val) > maxValue || inner && len(val) != childSize:
			return bad("length of the value", i)
		case i > 0 && bytes.Compare(before, key) >= 0:
			return bad("order", i)
		}
		before = key
		cells += cellHeader + len(key) + len(val)
	}
	if cells+n.waste() != pages.PageSize-n.low() {
		return fmt.Errorf("%w: page %d has %d bytes of cells and %d of waste from %d on", pages.ErrCorrupt, p, cells, n.waste(), n.low())
	}
	return nil
}

// The functions below change nodes that were checked.

// appendCell adds an entry after all others. There must be room for it.
func (n *treeNode) appendCell(key, val []byte) {
	n.placeCell(n.count(), key, val)
	n.setCount(n.count() + 1)
}

// placeCell writes a cell below all others and sets slot i to it.
func (n *treeNode) placeCell(i int, key, val []byte) {
	off := n.low() - cellHeader - len(key) - len(val)
	binary.LittleEndian.PutUint16(n[off:], uint16(len(key)))
	binary.LittleEndian.PutUint16(n[off+2:], uint16(len(val)))
	copy(n[off+cellHeader:], key)
	copy(n[off+cellHeader+len(key):], val)
	n.setLow(off)
	n.setSlot(i, off)
}

// insert adds entry i. It returns false and does nothing if there is no room. key and val must
// not be in this page.
func (n *treeNode) insert(i int, key, val []byte) bool {
	cost, count := cellCost(key, val), n.count()
	if n.used()+cost > nodeCapacity {
		return false
	}
	if nodeHeader+count*slotSize+cost > n.low() {
		n.compact()
	}
	at := nodeHeader + i*slotSize
	copy(n[at+slotSize:], n[at:nodeHeader+count*slotSize])
	n.placeCell(i, key, val)
	n.setCount(count + 1)
	n.setNewest(i)
	return true
}

// remove removes entry i.
func (n *treeNode) remove(i int) {
	key, val, _ := n.cell(i)
	size, off, count := cellHeader+len(key)+len(val), n.slot(i), n.count()
	if off == n.low() {
		n.setLow(off + size)
	} else {
		n.setWaste(n.waste() + size)
	}
	at := nodeHeader + i*slotSize
	copy(n[at:], n[at+slotSize:nodeHeader+count*slotSize])
	n.setCount(count - 1)
	n.setNewest(noEntry)
	if count == 1 {
		n.setLow(pages.PageSize)
		n.setWaste(0)
	}
}

// compact moves all cells to the end of the page.
func (n *treeNode) compact() {
	old := *n
	n.setLow(pages.PageSize)
	n.setWaste(0)
	for i := range old.count() {
		key, val, _ := old.cell(i)
		n.placeCell(i, key, val)
	}
}

// setChild changes the page number in entry i.
func (n *treeNode) setChild(i int, p pages.Page) {
	if _, val, ok := n.cell(i); ok && len(val) == childSize {
		binary.LittleEndian.PutUint64(val, uint64(p))
	}
}

// setFirstKeyEmpty makes the first entry of an inner node stand for all keys below the second,
// after the entry before it was removed.
func (n *treeNode) setFirstKeyEmpty() {
	key, val, _ := n.cell(0)
	if len(key) == 0 {
		return
	}
	var child [childSize]byte
	copy(child[:], val)
	n.remove(0)
	n.insert(0, nil, child[:]) // shorter than what was removed
}
