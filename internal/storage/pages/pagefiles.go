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
	// PageSize is the size of a page in bytes.
	PageSize  = 1 << pageShift
	pageShift = 12

	// growStep is the number of pages by which the own file grows. The file is sparse: a
	// step takes no disk space and saves system calls.
	growStep Page = 16384
	// MaxPage bounds page numbers, so that offsets are far below the limit of int64.
	MaxPage Page = 1 << 48
)

// ownMappings are sizes of the mapping of the own file in bytes, the first of which that the process has room for
// is taken. A mapping may reach beyond the end of its file, so memory never moves when the file grows. A process has
// 512 GiB of addresses in all on some arm64 kernels.
var ownMappings = []int{1 << 40, 1 << 36}

// mappedSegment is an inherited segment in memory.
type mappedSegment struct {
	Segment
	mem []byte
}

// pageFiles are the files that have the pages of a store, and their memory: the store's own
// file, which grows, and those of its ancestors, which do not change.
type pageFiles struct {
	own       *os.File
	base, end Page // pages [base, end) are in own and were used at least once
	most      Page // bounds end
	fileEnd   Page // the length of own; end <= fileEnd
	mem       []byte
	readMem   []byte // the same pages as mem, see Contents
	inherited []mappedSegment
}

// mapOwn maps the own file, and bounds it by what is mapped.
func (f *pageFiles) mapOwn() error {
	var err error
	for _, size := range ownMappings {
		if err = f.mapPieces(size); !errors.Is(err, unix.ENOMEM) {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("map own file: %w", err)
	}
	if most := f.base + Page(len(f.mem)/PageSize); f.most == 0 || f.most > most {
		f.most = most
	}
	// Nodes are scattered: reading ahead of a node would only make pages of a file that is
	// still empty, in every sandbox.
	if err := unix.Madvise(f.mem, unix.MADV_RANDOM); err != nil {
		return fmt.Errorf("advise on the own file: %w", err)
	}
	return nil
}

// mapPieces maps so many bytes of the own file twice, or not at all.
func (f *pageFiles) mapPieces(size int) (err error) {
	if f.mem, err = unix.Mmap(int(f.own.Fd()), int64(f.base)*PageSize, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		return err
	}
	if f.readMem, err = unix.Mmap(int(f.own.Fd()), int64(f.base)*PageSize, size, unix.PROT_READ, unix.MAP_SHARED); err != nil {
		err = errors.Join(err, unix.Munmap(f.mem))
		f.mem = nil
	}
	return err
}

// Protect makes the pages read-only in this process, for good: it is killed if it writes to one.
func (f *pageFiles) Protect() error {
	if err := unix.Mprotect(f.mem, unix.PROT_READ); err != nil {
		return fmt.Errorf("protect own file: %w", err)
	}
	return nil
}

// MoveTo makes the file behind fd, which must be empty, the own file, in a process that is a fork of the one that
// opened the store. There must be no own pages yet.
func (f *pageFiles) MoveTo(fd int) error {
	if f.end != f.base || f.fileEnd != 0 {
		return fmt.Errorf("move own file: it has pages from %d to %d, and %d in all", f.base, f.end, f.fileEnd)
	}
	if err := unix.Dup3(fd, int(f.own.Fd()), unix.O_CLOEXEC); err != nil {
		return fmt.Errorf("move own file: %w", err)
	}
	if err := errors.Join(unix.Munmap(f.mem), unix.Munmap(f.readMem)); err != nil {
		return fmt.Errorf("move own file: %w", err)
	}
	return f.mapOwn()
}

// inherit maps a segment of an ancestor.
func (f *pageFiles) inherit(seg Segment) error {
	size, err := fileSize(seg.File)
	if err != nil {
		return err
	}
	if size < int64(seg.End)*PageSize {
		// Reading the missing pages would be a SIGBUS.
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

// Close unmaps the memory and closes the own file. Memory that Bytes returned must not be used
// any more.
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

// End returns the first page number that was never used: the base of a child that is forked
// now.
func (f *pageFiles) End() Page { return f.end }

// Base returns the first page number of the own file.
func (f *pageFiles) Base() Page { return f.base }

// Own returns whether p is a page of the own file.
func (f *pageFiles) Own(p Page) bool { return p >= f.base && p < f.end }

// Bytes returns the memory of n contiguous pages of a segment. It is valid until Close, and
// may be written only where Mutable allows it.
func (f *pageFiles) Bytes(p Page, n int) ([]byte, error) { return f.bytes(f.mem, p, n) }

// Contents is Bytes for reading only. Own pages have a second mapping for it: through one
// mapping, the first store to a page that was read before is a fault for that page alone, while
// the first store to an untouched page is a fault for all pages that the host keeps together.
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

// segment returns the index of the inherited segment that has p, or -1.
func (f *pageFiles) segment(p Page) int {
	i := sort.Search(len(f.inherited), func(i int) bool { return p < f.inherited[i].End })
	if i == len(f.inherited) || p < f.inherited[i].Start {
		return -1
	}
	return i
}

// Segments returns the segments that a child that is forked now inherits. The own segment is
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

// zeros are the bytes that wipe writes.
var zeros [PieceSize]byte

// wipe fills pages of the own file with zeros, which also gives them their space on the host.
// Stores through the mapping would be a SIGBUS if the disk is full.
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

// Reserve gives n pages of the own file from p on their space on the host, so that writes to
// them do not run out of it. Their contents stay. If the host's file system has no such call,
// Reserve does nothing.
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

// punch gives the space of pages of the own file back to the host. They are zero then.
func (f *pageFiles) punch(p, n Page) error {
	const flags = unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE
	if err := unix.Fallocate(int(f.own.Fd()), flags, int64(p)*PageSize, int64(n)*PageSize); err != nil {
		return fmt.Errorf("give back %d pages: %w", n, err)
	}
	return nil
}
