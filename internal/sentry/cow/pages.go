package cow

import (
	"fmt"
	"os"
	"slices"
	"sort"
	"unsafe"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
	"gvisor.dev/gvisor/pkg/sentry/pgalloc"
	"gvisor.dev/gvisor/pkg/sentry/state/stateio"

	"ramet.dev/ramet/internal/engine/snapfile"
)

const (
	// maxIO is the largest range gVisor may hand over at once, in bytes.
	maxIO = 1 << 30
	// parallel is how many it may hand over before it waits. Nothing is
	// really asynchronous here: work is done when it is added.
	parallel = 16
)

// completions is the part that Writer and Reader have in common.
type completions struct{ done []stateio.Completion }

func (c *completions) finish(id int, n uint64, err error) {
	if err != nil {
		n = 0
	}
	c.done = append(c.done, stateio.Completion{ID: id, N: n, Err: err})
}

// Wait implements stateio.AsyncReader and stateio.AsyncWriter.
func (c *completions) Wait(cs []stateio.Completion, _ int) ([]stateio.Completion, error) {
	cs = append(cs, c.done...)
	c.done = c.done[:0]
	return cs, nil
}

// MaxRanges implements both interfaces; 1 means that only AddRead and AddWrite
// are called.
func (*completions) MaxRanges() int { return 1 }

// MaxParallel implements both interfaces.
func (*completions) MaxParallel() int { return parallel }

// Writer takes the pages of a save: those of frozen ranges are dropped, the
// others are appended to a file.
type Writer struct {
	completions
	file   *os.File
	off    int64
	drop   Ranges
	copied []snapfile.Range
	closed func()
}

// NewWriter returns a Writer that appends pages to file from offset off on, and calls closed when all
// have been written, or will not be. The pages of ahead are not written: CopyAhead does that.
func NewWriter(p *Pinned, file *os.File, off int64, ahead Ranges, closed func()) *Writer {
	w := &Writer{file: file, off: off + int64(ahead.Bytes()), drop: p.drop, closed: closed}
	for _, r := range ahead {
		w.copied = append(w.copied, snapfile.Range(r))
	}
	if len(ahead) > 0 {
		w.drop = normalize(slices.Concat(p.drop, ahead))
	}
	return w
}

// aheadAtMost is the part of the pages that is copied ahead, in percent.
const aheadAtMost = 60

// inUse returns the pages that are in use, as far as is known, but those of drop.
func (m *Memory) inUse(drop Ranges) (pages Ranges) {
	m.visitAccount(func(fr memmap.FileRange, a *account) {
		if a.knownCommitted && !a.wasteOrReleasing {
			drop.minus(fr, func(part memmap.FileRange) { pages = append(pages, part) })
		}
	})
	return pages
}

// MakeRoom allocates in file, from off on, about as much as a save will copy, so that the copying takes a
// quarter of the time. private is all private memory. What is too much has to be cut off.
func (m *Memory) MakeRoom(file *os.File, off int64, private Ranges) {
	n := m.inUse(normalize(slices.Concat(private, m.held.ranges()))).Bytes()
	if n > 0 {
		// If the host has no room, the save says so.
		_ = unix.Fallocate(int(file.Fd()), unix.FALLOC_FL_KEEP_SIZE, off, int64(n))
	}
}

// ToCopy returns the pages that a save copies, in two parts: those to be copied ahead by the process
// itself, and the rest, for a copy of the process, with those that it will look through because it
// is not known whether they are in use. The kernel must be paused.
func (p *Pinned) ToCopy() (ahead, rest Ranges, err error) {
	all := p.mem.inUse(p.drop)
	room := all.Bytes() * aheadAtMost / 100 &^ (hostarch.PageSize - 1)
	for _, r := range all {
		first := r
		first.End = min(r.End, r.Start+room)
		room -= first.Length()
		if first.Length() > 0 {
			ahead = append(ahead, first)
		}
		if r.Start = first.End; r.Length() > 0 {
			rest = append(rest, r)
		}
	}
	unknown, err := p.unknown()
	return ahead, normalize(slices.Concat(rest, unknown)), err
}

// unknown returns pages that the host has, although they are not known to be in use. FindCommitted does
// not learn of those that the host has swapped out.
func (p *Pinned) unknown() (found []memmap.FileRange, err error) {
	fd := int(p.mem.file.Fd())
	at := memmap.FileRange{} // what the host has from there on
	p.mem.visitAccount(func(fr memmap.FileRange, a *account) {
		if a.knownCommitted || a.wasteOrReleasing {
			return
		}
		p.drop.minus(fr, func(part memmap.FileRange) {
			for err == nil && part.Length() > 0 {
				if at.End <= part.Start {
					if at, err = nextData(fd, part.Start); err != nil {
						return
					}
				}
				if at.Start >= part.End {
					return
				}
				both := at.Intersect(part)
				found = append(found, both)
				part.Start = both.End
			}
		})
	})
	return found, err
}

// noData is where nextData finds pages when there are no more.
const noData = 1 << 62

// nextData returns the next pages from an offset on that a file has.
func nextData(fd int, from uint64) (memmap.FileRange, error) {
	start, err := unix.Seek(fd, int64(from), unix.SEEK_DATA)
	if err == unix.ENXIO {
		return memmap.FileRange{Start: noData, End: noData + hostarch.PageSize}, nil
	}
	var end int64
	if err == nil {
		end, err = unix.Seek(fd, start, unix.SEEK_HOLE)
	}
	if err != nil {
		return memmap.FileRange{}, fmt.Errorf("find memory in use: %w", err)
	}
	return memmap.FileRange{Start: uint64(start), End: uint64(end)}, nil
}

// CopyAhead copies the pages of ahead to where a Writer has left room for them.
func (p *Pinned) CopyAhead(file *os.File, off int64, ahead Ranges) error {
	for _, r := range ahead {
		if err := copyPages(p.mem.mf, r, file, off); err != nil {
			return fmt.Errorf("copy memory: %w", err)
		}
		off += int64(r.Length())
	}
	return nil
}

// copyPages writes pages of memory to file.
func copyPages(memory *pgalloc.MemoryFile, fr memmap.FileRange, file *os.File, off int64) error {
	return eachMapped(memory, fr, func(text []byte, at uint64) error {
		_, err := file.WriteAt(text, off+int64(at-fr.Start))
		return err
	})
}

// eachMapped calls fn for the parts of fr, as they are mapped, until it fails; at is where a part begins.
func eachMapped(memory *pgalloc.MemoryFile, fr memmap.FileRange, fn func(text []byte, at uint64) error) error {
	blocks, err := memory.MapInternal(fr, hostarch.Read)
	for at := fr.Start; err == nil && !blocks.IsEmpty(); blocks = blocks.Tail() {
		text := blocks.Head().ToSlice()
		err = fn(text, at)
		at += uint64(len(text))
	}
	return err
}

// Close implements stateio.AsyncWriter.
func (w *Writer) Close() error {
	w.closed()
	return nil
}

// MaxWriteBytes implements stateio.AsyncWriter.
func (*Writer) MaxWriteBytes() uint64 { return maxIO }

// NeedRegisterSourceFD implements stateio.AsyncWriter. True makes gVisor pass
// file ranges to AddWrite.
func (*Writer) NeedRegisterSourceFD() bool { return true }

// RegisterSourceFD implements stateio.AsyncWriter.
func (*Writer) RegisterSourceFD(int32, uint64, []stateio.ClientFileRangeSetting) (stateio.SourceFile, error) {
	return nil, nil
}

// AddWrite implements stateio.AsyncWriter.
func (w *Writer) AddWrite(id int, _ stateio.SourceFile, fr memmap.FileRange, src []byte) {
	var err error
	w.drop.minus(fr, func(part memmap.FileRange) {
		if err != nil {
			return
		}
		if _, err = w.file.WriteAt(src[part.Start-fr.Start:part.End-fr.Start], w.off); err != nil {
			return
		}
		w.off += int64(part.Length())
		w.copied = append(w.copied, snapfile.Range(part))
	})
	w.finish(id, fr.Length(), err)
}

// AddWritev implements stateio.AsyncWriter. It is never called, see MaxRanges.
func (w *Writer) AddWritev(id int, _ uint64, _ stateio.SourceFile, _ []memmap.FileRange, _ []unix.Iovec) {
	w.finish(id, 0, fmt.Errorf("vectored write was not announced"))
}

// Reserve implements stateio.AsyncWriter.
func (*Writer) Reserve(uint64) {}

// Finalize implements stateio.AsyncWriter.
func (*Writer) Finalize() error { return nil }

// Copies returns the index of the pages that were written: each range, in the
// order of the file.
func (w *Writer) Copies() []snapfile.Range { return w.copied }

// End returns the file offset behind the last page.
func (w *Writer) End() int64 { return w.off }

// Reader gives a child its pages: it maps those of generations and copies the
// others from a snapshot file.
type Reader struct {
	completions
	mem    *Memory
	copies []copied
	pages  []byte
}

// copied is a range whose pages are at off in the snapshot's page section.
type copied struct {
	memmap.FileRange
	off uint64
}

// NewReader returns a Reader for mem, which must have inherited already. pages
// is the page section of a snapshot file, index its index.
func NewReader(mem *Memory, index []snapfile.Range, pages []byte) *Reader {
	r := &Reader{mem: mem, pages: pages, copies: make([]copied, len(index))}
	off := uint64(0)
	for i, x := range index {
		r.copies[i] = copied{memmap.FileRange(x), off}
		off += x.Length()
	}
	return r
}

// Close implements stateio.AsyncReader.
func (*Reader) Close() error { return nil }

// MaxReadBytes implements stateio.AsyncReader.
func (*Reader) MaxReadBytes() uint64 { return maxIO }

// NeedRegisterDestinationFD implements stateio.AsyncReader. True makes gVisor
// pass file ranges to AddRead.
func (*Reader) NeedRegisterDestinationFD() bool { return true }

// RegisterDestinationFD implements stateio.AsyncReader.
func (*Reader) RegisterDestinationFD(int32, uint64, []stateio.ClientFileRangeSetting) (stateio.DestinationFile, error) {
	return nil, nil
}

// AddRead implements stateio.AsyncReader. Ranges that neither the table nor the
// copies know were frozen but not mapped any more: nobody can ask for them.
func (r *Reader) AddRead(id int, _ int64, _ stateio.DestinationFile, fr memmap.FileRange, dst []byte) {
	var err error
	r.mem.table.overlapping(fr, func(part memmap.FileRange, gen int) {
		if err != nil {
			return
		}
		to := dst[part.Start-fr.Start : part.End-fr.Start]
		if gen >= 0 {
			err = mapOver(to, r.mem.gens[gen].File, part.Start)
			return
		}
		r.copyPages(part, to)
	})
	r.finish(id, fr.Length(), err)
}

func (r *Reader) copyPages(fr memmap.FileRange, dst []byte) {
	i := sort.Search(len(r.copies), func(i int) bool { return r.copies[i].End > fr.Start })
	for ; i < len(r.copies) && r.copies[i].Start < fr.End; i++ {
		c := r.copies[i]
		part := c.Intersect(fr)
		copy(dst[part.Start-fr.Start:part.End-fr.Start], r.pages[c.off+part.Start-c.Start:])
	}
}

// mapOver replaces the pages of dst by a read-only mapping of file at off.
func mapOver(dst []byte, file *os.File, off uint64) error {
	if err := mapAt(dst, unix.PROT_READ, unix.MAP_SHARED, file.Fd(), off); err != nil {
		return fmt.Errorf("map generation at %#x: %w", off, err)
	}
	return nil
}

// mapAt puts a mapping of fd in the place of dst.
func mapAt(dst []byte, prot, flags int, fd uintptr, off uint64) error {
	_, _, errno := unix.Syscall6(unix.SYS_MMAP, uintptr(unsafe.Pointer(&dst[0])), uintptr(len(dst)),
		uintptr(prot), uintptr(unix.MAP_FIXED|flags), fd, uintptr(off))
	if errno != 0 {
		return errno
	}
	return nil
}

// AddReadv implements stateio.AsyncReader. It is never called, see MaxRanges.
func (r *Reader) AddReadv(id int, _ int64, _ uint64, _ stateio.DestinationFile, _ []memmap.FileRange, _ []unix.Iovec) {
	r.finish(id, 0, fmt.Errorf("vectored read was not announced"))
}
