package pages

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
	// MaxPage keeps offsets within int64 with room to spare.
	MaxPage Page = 1 << 48
)

// mappedSegment is an inherited segment in memory.
type mappedSegment struct {
	Segment
	mem []byte
}

// pageFiles are the files that the pages of a store are in, and their memory: the store's own
// file, which grows, and those of its ancestors, which do not change.
type pageFiles struct {
	own       *os.File
	base, end Page // pages [base, end) are ours and were used at least once
	most      Page // end is not above it
	fileEnd   Page // the length of own; end <= fileEnd
	mem       []byte
	readMem   []byte // the same pages as mem, see Contents
	inherited []mappedSegment
}

// mapOwn maps the own file.
func (f *pageFiles) mapOwn() error {
	for mem, prot := range map[*[]byte]int{&f.mem: unix.PROT_READ | unix.PROT_WRITE, &f.readMem: unix.PROT_READ} {
		var err error
		if *mem, err = unix.Mmap(int(f.own.Fd()), int64(f.base)*PageSize, ownMapping, prot, unix.MAP_SHARED); err != nil {
			return fmt.Errorf("map own file: %w", err)
		}
	}
	// Nodes are scattered: reading ahead of one would only make pages of a file that
	// is still empty, in every sandbox.
	if err := unix.Madvise(f.mem, unix.MADV_RANDOM); err != nil {
		return fmt.Errorf("advise on the own file: %w", err)
	}
	return nil
}

// inherit maps a segment of an ancestor.
func (f *pageFiles) inherit(seg Segment) error {
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
	f.inherited = append(f.inherited, mappedSegment{seg, mem})
	return nil
}

// CheckSegments returns an error unless segs are sorted, disjoint, not empty and
// below end.
func CheckSegments(segs []Segment, end Page) error {
	if end > MaxPage {
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
func (f *pageFiles) Close() error {
	return errors.Join(f.unmap(), f.own.Close())
}

func (f *pageFiles) unmap() error {
	var errs []error
	for _, mem := range []*[]byte{&f.mem, &f.readMem} {
		if *mem != nil {
			errs = append(errs, unix.Munmap(*mem))
			*mem = nil
		}
	}
	for _, seg := range f.inherited {
		errs = append(errs, unix.Munmap(seg.mem))
	}
	f.inherited = nil
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("unmap page files: %w", err)
	}
	return nil
}

// End returns the first page number that was never used so far: the base of a
// child that is forked now.
func (f *pageFiles) End() Page { return f.end }

// Base returns the first page number of our own file.
func (f *pageFiles) Base() Page { return f.base }

// Own reports whether p is a page of our own file.
func (f *pageFiles) Own(p Page) bool { return p >= f.base && p < f.end }

// Bytes returns the memory of n contiguous pages of one segment. It is valid
// until Close, and may be written only where Mutable allows it.
func (f *pageFiles) Bytes(p Page, n int) ([]byte, error) { return f.bytes(f.mem, p, n) }

// Contents is Bytes for reading only. Own pages have a mapping for this of their
// own: the first store to a page that was only read so far is a fault of its own,
// and one to a page that was not touched is one for all pages that the host keeps
// together.
func (f *pageFiles) Contents(p Page, n int) ([]byte, error) { return f.bytes(f.readMem, p, n) }

func (f *pageFiles) bytes(own []byte, p Page, n int) ([]byte, error) {
	mem, at, end := own, f.base, f.end
	if p < f.base {
		i := f.segment(p)
		if i < 0 {
			return nil, fmt.Errorf("%w: there is no page %d", ErrCorrupt, p)
		}
		seg := &f.inherited[i]
		mem, at, end = seg.mem, seg.Start, seg.End
	}
	if n < 0 || p >= end || Page(n) > end-p {
		return nil, fmt.Errorf("%w: %d pages from %d on are not within pages %d to %d", ErrCorrupt, n, p, at, end)
	}
	off, size := int(p-at)*PageSize, n*PageSize
	return mem[off : off+size : off+size], nil
}

// segment returns the index of the inherited segment that p is in, or -1.
func (f *pageFiles) segment(p Page) int {
	i := sort.Search(len(f.inherited), func(i int) bool { return p < f.inherited[i].End })
	if i == len(f.inherited) || p < f.inherited[i].Start {
		return -1
	}
	return i
}

// Segments returns what a child that is forked now inherits. The own segment is
// the last, and left out while it is empty.
func (f *pageFiles) Segments() []Segment {
	segs := make([]Segment, 0, len(f.inherited)+1)
	for _, seg := range f.inherited {
		segs = append(segs, seg.Segment)
	}
	if f.end > f.base {
		segs = append(segs, Segment{f.base, f.end, f.own})
	}
	return slices.Clip(segs)
}

// FileOf returns the file that has page p, and its index in Segments.
func (f *pageFiles) FileOf(p Page) (*os.File, int, error) {
	if f.Own(p) {
		return f.own, len(f.inherited), nil
	}
	i := f.segment(p)
	if i < 0 {
		return nil, 0, fmt.Errorf("%w: there is no page %d", ErrCorrupt, p)
	}
	return f.inherited[i].File, i, nil
}

// extend returns up to want pages that were never used.
func (f *pageFiles) extend(want Page) (Page, int, error) {
	want = min(want, f.most-f.end)
	if want == 0 {
		return 0, 0, ErrNoSpace
	}
	if err := f.grow(f.end + want); err != nil {
		return 0, 0, err
	}
	p := f.end
	f.end += want
	return p, int(want), nil
}

// grow makes the own file long enough for pages below end.
func (f *pageFiles) grow(end Page) error {
	if end <= f.fileEnd {
		return nil
	}
	to := min((end+growStep-1)/growStep*growStep, f.most)
	if err := f.own.Truncate(int64(to) * PageSize); err != nil {
		return fmt.Errorf("grow page file: %w", NoSpace(err))
	}
	f.fileEnd = to
	return nil
}

// zeros is what wipe writes.
var zeros [PieceSize]byte

// wipe fills pages of our own file with zeros, which gives them their space on the
// host too. Through the mapping it would be a SIGBUS where they have none and the
// disk is full.
func (f *pageFiles) wipe(p, n Page) error {
	for off, end := int64(p)*PageSize, int64(p+n)*PageSize; off < end; {
		done, err := f.own.WriteAt(zeros[:min(end-off, int64(MaxCall(off)))], off)
		if err != nil {
			return fmt.Errorf("fill pages with zeros: %w", NoSpace(err))
		}
		off += int64(done)
	}
	return nil
}

// Reserve gives n pages of our own file from p on their space on the host, so that
// writing to them does not run out of it. What is in them stays. Where the host's
// file system has no such call nothing is done.
func (f *pageFiles) Reserve(p, n Page) error {
	for {
		err := unix.Fallocate(int(f.own.Fd()), 0, int64(p)*PageSize, int64(n)*PageSize)
		switch {
		case err == nil, errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOSYS):
			return nil
		case errors.Is(err, unix.EINTR): // tmpfs
		default:
			return fmt.Errorf("allocate %d pages: %w", n, NoSpace(err))
		}
	}
}

// punch gives the space of pages of our own file back to the host. They are zero then.
func (f *pageFiles) punch(p, n Page) error {
	const flags = unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE
	if err := unix.Fallocate(int(f.own.Fd()), flags, int64(p)*PageSize, int64(n)*PageSize); err != nil {
		return fmt.Errorf("give back %d pages: %w", n, err)
	}
	return nil
}
