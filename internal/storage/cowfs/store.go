package cowfs

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sort"

	"golang.org/x/sys/unix"
)

const (
	// PageSize is the unit of everything in a store.
	PageSize  = 1 << pageShift
	pageShift = 12

	// ownMapping is how much of the own file is mapped, once and for ever, in
	// bytes. A mapping may reach beyond the end of its file, so memory never
	// moves when the file grows.
	ownMapping = 1 << 40
	// growStep is by how many pages the own file grows at once. The file is
	// sparse: the step costs no disk space, only system calls.
	growStep Page = 16384
	// maxPage keeps offsets within int64 with room to spare.
	maxPage Page = 1 << 48
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

// mappedSegment is an inherited segment in memory.
type mappedSegment struct {
	Segment
	mem []byte
}

// Store hands out the pages of one generation and reads those of its
// ancestors. It is not safe for concurrent use, but calls that change nothing
// (Bytes, Own, Mutable, FileOf) may run at the same time.
//
// Nothing of its book-keeping is on disk: a store lives as long as its process,
// and what is to outlive it is inherited by a new store with a file of its own.
type Store struct {
	own       *os.File
	base, end Page // pages [base, end) are ours and were used at least once
	most      Page // end is not above it
	fileEnd   Page // the length of own; end <= fileEnd
	mem       []byte
	readMem   []byte // the same pages as mem, see Contents
	inherited []mappedSegment

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
	if err := checkSegments(inherited, base); err != nil {
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
		own: own, base: base, end: base, most: base + ownMapping/PageSize, fileEnd: Page(size / PageSize),
		epoch: 1, free: newFreeSpace(), clusters: map[Page]*nodeCluster{},
	}
	for _, seg := range inherited {
		if err := s.inherit(seg); err != nil {
			return nil, errors.Join(err, s.unmap())
		}
	}
	for mem, prot := range map[*[]byte]int{&s.mem: unix.PROT_READ | unix.PROT_WRITE, &s.readMem: unix.PROT_READ} {
		if *mem, err = unix.Mmap(int(own.Fd()), int64(base)*PageSize, ownMapping, prot, unix.MAP_SHARED); err != nil {
			return nil, errors.Join(fmt.Errorf("map own file: %w", err), s.unmap())
		}
	}
	// Nodes are scattered: reading ahead of one would only make pages of a file that
	// is still empty, in every sandbox.
	if err := unix.Madvise(s.mem, unix.MADV_RANDOM); err != nil {
		return nil, errors.Join(fmt.Errorf("advise on the own file: %w", err), s.unmap())
	}
	return s, nil
}

// inherit maps a segment of an ancestor.
func (s *Store) inherit(seg Segment) error {
	size, err := fileSize(seg.File)
	if err != nil {
		return err
	}
	if size < int64(seg.End)*PageSize {
		// Reading there would be a SIGBUS.
		return fmt.Errorf("%w: file %s has %d bytes and should have pages up to %d", ErrCorrupt, seg.File.Name(), size, seg.End)
	}
	n := int(seg.End-seg.Start) * PageSize
	mem, err := unix.Mmap(int(seg.File.Fd()), int64(seg.Start)*PageSize, n, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("map pages %d to %d of %s: %w", seg.Start, seg.End, seg.File.Name(), err)
	}
	s.inherited = append(s.inherited, mappedSegment{seg, mem})
	return nil
}

// checkSegments returns an error unless segs are sorted, disjoint, not empty and
// below end.
func checkSegments(segs []Segment, end Page) error {
	if end > maxPage {
		return fmt.Errorf("%w: page %d is out of range", ErrCorrupt, end)
	}
	at := Page(1)
	for _, seg := range segs {
		if seg.File == nil || seg.Start < at || seg.End <= seg.Start || seg.End > end {
			return fmt.Errorf("%w: segment of pages %d to %d between %d and %d", ErrCorrupt, seg.Start, seg.End, at, end)
		}
		at = seg.End
	}
	return nil
}

func fileSize(f *os.File) (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, fmt.Errorf("size of a page file: %w", err)
	}
	return info.Size(), nil
}

// Close gives back the memory and closes the own file. No memory that Bytes
// returned may be used any more.
func (s *Store) Close() error {
	return errors.Join(s.unmap(), s.own.Close())
}

func (s *Store) unmap() error {
	var errs []error
	for _, mem := range []*[]byte{&s.mem, &s.readMem} {
		if *mem != nil {
			errs = append(errs, unix.Munmap(*mem))
			*mem = nil
		}
	}
	for _, seg := range s.inherited {
		errs = append(errs, unix.Munmap(seg.mem))
	}
	s.inherited = nil
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("unmap page files: %w", err)
	}
	return nil
}

// End returns the first page number that was never used so far: the base of a
// child that is forked now.
func (s *Store) End() Page { return s.end }

// Own reports whether p is a page of our own file.
func (s *Store) Own(p Page) bool { return p >= s.base && p < s.end }

// Epoch returns the epoch in which pages are born now.
func (s *Store) Epoch() uint32 { return s.epoch }

// Mutable reports whether a page that was born in an epoch may be changed in
// place: it is ours and no pin needs it as it is.
func (s *Store) Mutable(p Page, born uint32) bool {
	return born > s.maxPinned && s.Own(p)
}

// Bytes returns the memory of n contiguous pages of one segment. It is valid
// until Close, and may be written only where Mutable allows it.
func (s *Store) Bytes(p Page, n int) ([]byte, error) { return s.bytes(s.mem, p, n) }

// Contents is Bytes for reading only. Own pages have a mapping for this of their
// own: the first store to a page that was only read so far is a fault of its own,
// and one to a page that was not touched is one for all pages that the host keeps
// together.
func (s *Store) Contents(p Page, n int) ([]byte, error) { return s.bytes(s.readMem, p, n) }

func (s *Store) bytes(own []byte, p Page, n int) ([]byte, error) {
	mem, at, end := own, s.base, s.end
	if p < s.base {
		i := s.segment(p)
		if i < 0 {
			return nil, fmt.Errorf("%w: there is no page %d", ErrCorrupt, p)
		}
		seg := &s.inherited[i]
		mem, at, end = seg.mem, seg.Start, seg.End
	}
	if n < 0 || p >= end || Page(n) > end-p {
		return nil, fmt.Errorf("%w: %d pages from %d on are not within pages %d to %d", ErrCorrupt, n, p, at, end)
	}
	off, size := int(p-at)*PageSize, n*PageSize
	return mem[off : off+size : off+size], nil
}

// segment returns the index of the inherited segment that p is in, or -1.
func (s *Store) segment(p Page) int {
	i := sort.Search(len(s.inherited), func(i int) bool { return p < s.inherited[i].End })
	if i == len(s.inherited) || p < s.inherited[i].Start {
		return -1
	}
	return i
}

// Segments returns what a child that is forked now inherits. The own segment is
// the last, and left out while it is empty.
func (s *Store) Segments() []Segment {
	segs := make([]Segment, 0, len(s.inherited)+1)
	for _, seg := range s.inherited {
		segs = append(segs, seg.Segment)
	}
	if s.end > s.base {
		segs = append(segs, Segment{s.base, s.end, s.own})
	}
	return slices.Clip(segs)
}

// FileOf returns the file that has page p, and its index in Segments.
func (s *Store) FileOf(p Page) (*os.File, int, error) {
	if s.Own(p) {
		return s.own, len(s.inherited), nil
	}
	i := s.segment(p)
	if i < 0 {
		return nil, 0, fmt.Errorf("%w: there is no page %d", ErrCorrupt, p)
	}
	return s.inherited[i].File, i, nil
}
