package btree

import (
	"fmt"
	"io/fs"
	"os"
	"sort"
	"syscall"

	"ramet.dev/ramet/internal/storage/pages"
)

// viewCachePages bounds the nodes that a View keeps.
const viewCachePages = 512

// View reads a tree and the pages that it refers to from files that may come from an untrusted
// writer. It checks all that it reads: whatever the files hold, the answer is right or
// ErrCorrupt, after work that is bounded by their size.
//
// It reads with pread, because an access to mapped memory of a file that another process
// truncates is a SIGBUS. Nodes that were read are kept: the pages of the tree must be pinned
// while the View is used. A View is not safe for concurrent use. The results of its methods
// stay valid.
type View struct {
	segs  []pages.Segment
	files []fileID // of segs
	root  pages.Page
	err   error // the error of invalid segments

	cache map[pages.Page]*cachedNode
	clock []*cachedNode
	hand  int
	reads int // nodes that were read
}

type cachedNode struct {
	node treeNode
	p    pages.Page
	hit  bool // used since the hand passed
}

// fileID identifies a file.
type fileID struct{ dev, ino uint64 }

// OpenView returns a view of the tree with a root. segments must be sorted and disjoint; their
// files stay the caller's.
func OpenView(segments []pages.Segment, root pages.Page) *View {
	v := &View{segs: segments, root: root, cache: map[pages.Page]*cachedNode{}}
	if v.err = pages.CheckSegments(segments, pages.MaxPage); v.err != nil {
		return v
	}
	for _, seg := range segments {
		id, err := identify(seg.File)
		if err != nil {
			v.err = err
			return v
		}
		v.files = append(v.files, id)
	}
	return v
}

// Err returns the error of invalid segments.
func (v *View) Err() error { return v.err }

// Pages returns the number of pages of the segments.
func (v *View) Pages() (n uint64) {
	for _, seg := range v.segs {
		n += uint64(seg.End - seg.Start)
	}
	return n
}

// Reads returns the number of nodes that were read so far.
func (v *View) Reads() int { return v.reads }

func identify(f *os.File) (fileID, error) {
	info, err := f.Stat()
	if err != nil {
		return fileID{}, fmt.Errorf("identify page file: %w", err)
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return fileID{}, fmt.Errorf("identify page file %s: %w", f.Name(), fs.ErrInvalid)
	}
	return fileID{st.Dev, st.Ino}, nil
}

// segment returns the index of the segment of n pages from p on.
func (v *View) segment(p pages.Page, n pages.Page) (int, error) {
	if v.err != nil {
		return 0, v.err
	}
	i := sort.Search(len(v.segs), func(i int) bool { return p < v.segs[i].End })
	if i == len(v.segs) || p < v.segs[i].Start || n > v.segs[i].End-p {
		return 0, fmt.Errorf("%w: there are no %d pages from %d on", pages.ErrCorrupt, n, p)
	}
	return i, nil
}

// ReadAt reads from data pages, beginning off bytes behind the start of page p. The range must be
// in one segment.
func (v *View) ReadAt(p pages.Page, off int, buf []byte) error {
	if off < 0 || off > int(pages.MaxPage) {
		return fmt.Errorf("%w: offset %d", pages.ErrCorrupt, off)
	}
	end := pages.Page(off+len(buf)+pages.PageSize-1) / pages.PageSize
	i, err := v.segment(p, max(end, 1))
	if err != nil {
		return err
	}
	return pages.ReadPages(v.segs[i].File, int64(p)*pages.PageSize+int64(off), buf)
}

// load implements nodeSource.
func (v *View) load(p pages.Page, level int) (*treeNode, error) {
	if c := v.cache[p]; c != nil {
		c.hit = true
		if err := c.node.checkHeader(p, level); err != nil {
			return nil, err
		}
		return &c.node, nil
	}
	i, err := v.segment(p, 1)
	if err != nil {
		return nil, err
	}
	c := &cachedNode{p: p}
	v.reads++
	if err := pages.ReadPages(v.segs[i].File, int64(p)*pages.PageSize, c.node[:]); err != nil {
		return nil, err
	}
	if err := c.node.check(p, level); err != nil {
		return nil, err
	}
	v.remember(c)
	return &c.node, nil
}

// remember adds a node to the cache, in place of a node that was not used lately. The old node is
// not overwritten: a caller may still read it.
func (v *View) remember(c *cachedNode) {
	v.cache[c.p] = c
	if len(v.clock) < viewCachePages {
		v.clock = append(v.clock, c)
		return
	}
	for v.clock[v.hand].hit {
		v.clock[v.hand].hit = false
		v.hand = (v.hand + 1) % len(v.clock)
	}
	delete(v.cache, v.clock[v.hand].p)
	v.clock[v.hand] = c
	v.hand = (v.hand + 1) % len(v.clock)
}

// Get returns the value of key.
func (v *View) Get(key []byte) (val []byte, ok bool, err error) {
	c := treeCursor{src: v}
	equal, err := c.seek(v.root, key)
	if err != nil || !equal {
		return nil, false, err
	}
	_, val, err = c.entry()
	return val, err == nil, err
}

// Floor returns the entry with the greatest key that is not above key.
func (v *View) Floor(key []byte) (k, val []byte, ok bool, err error) {
	return floorTree(v, v.root, key)
}

// Scan calls fn for each entry whose key is not below from, in order, until fn returns false.
func (v *View) Scan(from []byte, fn func(key, val []byte) bool) error {
	return scanTree(v, v.root, from, fn)
}
