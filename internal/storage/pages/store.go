package pages

import (
	"errors"
	"fmt"
	"os"
)

var (
	// ErrNoSpace is wrapped by errors of a store that may not grow.
	ErrNoSpace = errors.New("no space left in the store")
	// ErrCorrupt is wrapped by errors about invalid pages.
	ErrCorrupt = errors.New("corrupt page")
)

// Page is the number of a page, unique along a line of descent. 0 is no page.
type Page uint64

// Segment says that the pages [Start, End) are in File, each at its number
// times PageSize.
type Segment struct {
	Start, End Page
	File       *os.File
}

// Store hands out the pages of a generation and reads those of its ancestors. It is not safe
// for concurrent use, but calls that change nothing (Bytes, Contents, Own, Mutable, FileOf)
// may run at the same time. It knows which pages are free or pinned; pageFiles knows where
// they are.
//
// Its book-keeping is not on disk: a store lives as long as its process. Pages that are to
// outlive it are inherited by a new store, which has a file of its own.
type Store struct {
	pageFiles

	epoch     uint32 // the epoch in which pages are born now
	maxPinned uint32 // epoch of the youngest pin, 0 without pins: epochs begin at 1
	pins      []*pin // ascending by epoch

	used     int64 // own pages that the tree or a pin needs
	free     freeSpace
	clusters map[Page]*nodeCluster // by number of the first page / clusterPages
	partial  []*nodeCluster        // those with free pages
	growing  *nodeCluster          // the cluster with pages that are not ready, or nil
	free1    int                   // free pages in clusters
	noPunch  bool                  // the file's file system cannot punch holes
}

// NewStore returns a store whose new pages are in own, numbered from base on. own must have no
// pages from base on, and belongs to the store from now on unless there is an error. inherited
// must be sorted and below base; its files stay the caller's and must stay open until Close.
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
		pageFiles: pageFiles{own: own, base: base, end: base, fileEnd: Page(size / PageSize)},
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

// Mutable returns whether a page that was born in an epoch may be changed in place: it is in
// the own file and no pin needs it.
func (s *Store) Mutable(p Page, born uint32) bool {
	return born > s.maxPinned && s.Own(p)
}
