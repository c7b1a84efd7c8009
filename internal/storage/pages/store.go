package pages

import (
	"errors"
	"fmt"
	"os"
)

var (
	// ErrNoSpace says that the store may not grow.
	ErrNoSpace = errors.New("no space left in the store")
	// ErrCorrupt says that a page makes no sense.
	ErrCorrupt = errors.New("corrupt page")
)

// Page is the number of a page. A number names one page along a lineage. 0 is
// none and never handed out.
type Page uint64

// Segment says that the pages [Start, End) are in File, each at its number
// times PageSize.
type Segment struct {
	Start, End Page
	File       *os.File
}

// Store hands out the pages of one generation and reads those of its
// ancestors. It is not safe for concurrent use, but calls that change nothing
// (Bytes, Own, Mutable, FileOf) may run at the same time. It knows which pages are free or
// pinned; pageFiles knows where they are.
//
// Nothing of its book-keeping is on disk: a store lives as long as its process,
// and what is to outlive it is inherited by a new store with a file of its own.
type Store struct {
	pageFiles

	epoch     uint32 // what is made now is born in
	maxPinned uint32 // epoch of the youngest pin, 0 without pins: epochs begin at 1
	pins      []*pin // ascending by epoch

	used     int64 // own pages that the tree or a pin needs
	free     freeSpace
	clusters map[Page]*nodeCluster // by number of the first page / clusterPages
	partial  []*nodeCluster        // those with free pages
	growing  *nodeCluster          // the one of which not all is ready, or nil
	free1    int                   // free pages in clusters
	noPunch  bool                  // the file's file system cannot punch holes
}

// NewStore returns a store whose new pages go to own, numbered from base on.
// own has nothing at or beyond base and belongs to the store from now on, unless
// there is an error. inherited is sorted and below base; its files stay with the
// caller and must stay open until Close.
func NewStore(own *os.File, base Page, inherited []Segment) (*Store, error) {
	base = max(base, 1)
	if err := CheckSegments(inherited, base); err != nil {
		return nil, err
	}
	size, err := fileSize(own)
	if err != nil {
		return nil, err
	}
	if size > int64(base)*PageSize {
		return nil, fmt.Errorf("own file %s has %d bytes, pages from %d on are in use", own.Name(), size, base)
	}
	s := &Store{
		pageFiles: pageFiles{own: own, base: base, end: base, most: base + ownMapping/PageSize, fileEnd: Page(size / PageSize)},
		epoch:     1, free: newFreeSpace(), clusters: map[Page]*nodeCluster{},
	}
	for _, seg := range inherited {
		if err := s.inherit(seg); err != nil {
			return nil, errors.Join(err, s.unmap())
		}
	}
	if err := s.mapOwn(); err != nil {
		return nil, errors.Join(err, s.unmap())
	}
	return s, nil
}

// Epoch returns the epoch in which pages are born now.
func (s *Store) Epoch() uint32 { return s.epoch }

// Mutable reports whether a page that was born in an epoch may be changed in
// place: it is ours and no pin needs it as it is.
func (s *Store) Mutable(p Page, born uint32) bool {
	return born > s.maxPinned && s.Own(p)
}
