package rootfs

import (
	"io"
	"os"

	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/safemem"
	"gvisor.dev/gvisor/pkg/sentry/memmap"

	"ramet.dev/ramet/internal/storage/cowfs"
	"ramet.dev/ramet/internal/storage/pages"
)

// An inode implements memmap.Mappable.
//
// A page that is pinned is mapped read-only. Who writes to it through a shared
// mapping gets another one in its place; for all others to see that one, nobody may
// have the old one mapped. So as long as there is a shared mapping that may write,
// every page that anybody touches through a mapping is made writable first, and
// when the first such mapping comes, what is mapped is taken away once.
//
// A store through a mapping changes the file's times if it is the first one since
// they were last looked at: it faults, as nothing is mapped to be written to before a
// store, and a look at the times takes away what was mapped after one.

// passing is the key of a context of address spaces that nothing is ever mapped in.
type passing struct{}

// Passing returns a context for making and ending an address space that nobody uses in
// between: the files are not told of what it maps. To tell them takes the longer the
// more others map the same, and all processes map the C library.
func Passing(ctx context.Context) context.Context {
	return context.WithValue(ctx, passing{}, true)
}

// AddMapping implements memmap.Mappable.AddMapping.
func (i *inode) AddMapping(ctx context.Context, ms memmap.MappingSpace, ar hostarch.AddrRange, offset uint64, writable bool) error {
	if ctx.Value(passing{}) != nil {
		return nil
	}
	i.mapsMu.Lock()
	defer i.mapsMu.Unlock()
	i.mapped.Store(true)
	if writable {
		if i.writable.Add(int64(ar.Length()/hostarch.PageSize)) == int64(ar.Length()/hostarch.PageSize) {
			i.mappings.InvalidateAll(memmap.InvalidateOpts{})
		}
	}
	i.mappings.AddMapping(ms, ar, offset, writable)
	return nil
}

// RemoveMapping implements memmap.Mappable.RemoveMapping.
func (i *inode) RemoveMapping(ctx context.Context, ms memmap.MappingSpace, ar hostarch.AddrRange, offset uint64, writable bool) {
	if ctx.Value(passing{}) != nil {
		return
	}
	i.mapsMu.Lock()
	defer i.mapsMu.Unlock()
	i.mappings.RemoveMapping(ms, ar, offset, writable)
	if writable {
		i.writable.Add(-int64(ar.Length() / hostarch.PageSize))
	}
}

// CopyMapping implements memmap.Mappable.CopyMapping.
func (i *inode) CopyMapping(ctx context.Context, ms memmap.MappingSpace, _, dstAR hostarch.AddrRange, offset uint64, writable bool) error {
	return i.AddMapping(ctx, ms, dstAR, offset, writable)
}

const (
	// mapAround is how much before a fault and behind it is mapped at least, in bytes,
	// if it is there. What lies in one piece with it is mapped in any case.
	mapAround = 2 << 20
	// fillAhead is how much is made writable ahead of a fault.
	fillAhead = 64 << 10
)

// Translate implements memmap.Mappable.Translate.
func (i *inode) Translate(_ context.Context, required, optional memmap.MappableRange, at hostarch.AccessType) ([]memmap.Translation, error) {
	// What is mapped, so that it may be read and executed, is to be written to now. What
	// gVisor offers and asks for then is all that it has joined with the first page, which
	// may be of another mapping beside this one, of another file: only that page is
	// certain. It comes again for the next.
	if at.Write && at.Execute {
		required.End = required.Start + pages.PageSize
		optional = required
	}
	i.translated.Store(true)
	i.attrMu.Lock()
	defer i.attrMu.Unlock()
	end := (i.attr.Size + pages.PageSize - 1) &^ (pages.PageSize - 1)
	if required.Start >= end {
		return nil, &memmap.BusError{Err: io.EOF}
	}
	var beyond error
	if required.End > end {
		beyond = &memmap.BusError{Err: io.EOF}
		required.End = end
	}
	optional.End = min(optional.End, end)
	write := at.Write || i.writable.Load() > 0
	if write {
		if err := i.fill(required, optional); err != nil {
			return nil, err
		}
	}
	if at.Write {
		now := i.fs.now()
		i.attr.Mtime, i.attr.Ctime = now, now
		i.fs.markDirty(i)
		i.stored = true
	}
	off, err := i.mapFrom(required.Start, optional.Start)
	if err != nil {
		return nil, &memmap.BusError{Err: errno(err)}
	}
	var ts []memmap.Translation
	for off < optional.End && off < max(required.End, required.Start+mapAround) {
		r, err := i.fs.tree.Map(i.ino, &i.attr, off/pages.PageSize, (optional.End-off)/pages.PageSize)
		if err != nil {
			return ts, &memmap.BusError{Err: errno(err)}
		}
		end := off + r.N*pages.PageSize
		unready := r.Zero() || write && !r.Mutable
		if unready && off >= required.End {
			break
		}
		// The first translation must have the place of the fault, see
		// memmap.CheckTranslateResult: a private copy is made of each part from
		// there on, and of what lies before it nothing is to be copied.
		if off < required.Start && (unready || end <= required.Start) {
			off = min(end, required.Start)
			continue
		}
		if r.Zero() { // a hole that is read: others must see what is written there
			if err := i.fill(memmap.MappableRange{Start: off, End: min(required.End, end)}, optional); err != nil {
				return ts, err
			}
			continue
		}
		t, err := i.translation(off, &r)
		if err != nil {
			return ts, err
		}
		t.Perms.Write = at.Write || i.stored && t.Perms.Write
		ts = append(ts, t)
		off = t.Source.End
	}
	return ts, beyond
}

// mapFrom returns where to begin to map for a fault at an offset, not below lowest:
// faults mostly come from high to low as well, a function of a library calls others
// in front of it, and each costs a program that has just started some 30 µs.
func (i *inode) mapFrom(at, lowest uint64) (uint64, error) {
	if lowest == at {
		return at, nil
	}
	r, err := i.fs.tree.Map(i.ino, &i.attr, lowest/pages.PageSize, (at-lowest)/pages.PageSize+1)
	if err != nil || at-lowest < max(r.N*pages.PageSize, mapAround) {
		return lowest, err
	}
	return at - mapAround, nil
}

// fill makes required writable, and some of optional. i.attrMu must be locked.
func (i *inode) fill(required, optional memmap.MappableRange) error {
	p, err := i.fs.tree.Prepare(i.ino, &i.attr, required.Start, min(optional.End-required.Start, max(required.Length(), fillAhead)))
	if err != nil {
		return &memmap.BusError{Err: errno(err)}
	}
	if p.Ready < required.Length() {
		return &memmap.BusError{Err: linuxerr.ENOSPC}
	}
	return nil
}

func (i *inode) translation(off uint64, r *cowfs.Run) (memmap.Translation, error) {
	t := memmap.Translation{
		Source: memmap.MappableRange{Start: off, End: off + r.N*pages.PageSize},
		File:   i.fs.image, Offset: r.ImageOffset, Perms: hostarch.ReadExecute,
	}
	if r.Page == 0 {
		return t, nil
	}
	_, n, err := i.fs.tree.Store().FileOf(r.Page)
	if err != nil {
		return t, &memmap.BusError{Err: errno(err)}
	}
	t.File, t.Offset = i.fs.files[n], uint64(r.Page)*pages.PageSize
	if r.Mutable {
		t.Perms = hostarch.AnyAccess
	}
	return t, nil
}

// InvalidateUnsavable implements memmap.Mappable.InvalidateUnsavable: a child has
// other descriptors.
func (i *inode) InvalidateUnsavable(context.Context) error {
	i.invalidateAll()
	return nil
}

// invalidateAll takes away what is mapped, unless that was done and nothing was mapped
// since: a freeze comes here once for each mapping of each process, after the pin of the
// files did. No process may be running.
func (i *inode) invalidateAll() {
	if !i.translated.Swap(false) {
		return
	}
	i.mapsMu.Lock()
	defer i.mapsMu.Unlock()
	i.noteStores() // one after a freeze is none that was noted before it
	i.mappings.InvalidateAll(memmap.InvalidateOpts{})
}

// invalidate takes away what is mapped of [from, to). If the file ends there now,
// that includes private copies of whole pages.
func (i *inode) invalidate(from, to uint64, cut bool) {
	const page = pages.PageSize
	to = (to + page - 1) &^ (page - 1)
	whole := (from + page - 1) &^ (page - 1)
	i.mapsMu.Lock()
	defer i.mapsMu.Unlock()
	if first := from &^ (page - 1); first < whole {
		i.mappings.Invalidate(memmap.MappableRange{Start: first, End: whole}, memmap.InvalidateOpts{})
	}
	if whole < to {
		i.mappings.Invalidate(memmap.MappableRange{Start: whole, End: to}, memmap.InvalidateOpts{InvalidatePrivate: cut})
	}
}

// hostFile is a file of the host that pages of guest files are in: it implements
// memmap.File.
type hostFile struct {
	memmap.DefaultMemoryType
	memmap.NoBufferedIOFallback

	fs    *filesystem
	file  *os.File
	image []byte // if it is the image
	own   bool   // if pages of it may be freed
}

// IncRef implements memmap.File.IncRef.
func (f *hostFile) IncRef(fr memmap.FileRange, memCgID uint32) {
	if f.own {
		f.fs.refsMu.Lock()
		defer f.fs.refsMu.Unlock()
		f.fs.refs.IncRefAndAccount(fr, memCgID)
	}
}

// DecRef implements memmap.File.DecRef.
func (f *hostFile) DecRef(fr memmap.FileRange) {
	if !f.own {
		return
	}
	f.fs.refsMu.Lock()
	f.fs.refs.DecRefAndAccount(fr)
	gone := f.fs.unmapped()
	f.fs.refsMu.Unlock()
	f.fs.free(gone)
}

// MapInternal implements memmap.File.MapInternal.
func (f *hostFile) MapInternal(fr memmap.FileRange, at hostarch.AccessType) (safemem.BlockSeq, error) {
	if at.Write && !f.own {
		return safemem.BlockSeq{}, &memmap.BusError{Err: linuxerr.EROFS}
	}
	if f.image != nil {
		if fr.End > uint64(len(f.image)) {
			return safemem.BlockSeq{}, &memmap.BusError{Err: linuxerr.EIO}
		}
		return hostMemory(f.image[fr.Start:fr.End]), nil
	}
	const page = pages.PageSize
	first := fr.Start / page
	bytes := f.fs.tree.Store().Contents
	if at.Write {
		bytes = f.fs.tree.Store().Bytes
	}
	mem, err := bytes(pages.Page(first), int((fr.End+page-1)/page-first))
	if err != nil {
		return safemem.BlockSeq{}, &memmap.BusError{Err: errno(err)}
	}
	return hostMemory(mem[fr.Start-first*page:][:fr.Length()]), nil
}

// DataFD implements memmap.File.DataFD.
func (f *hostFile) DataFD(memmap.FileRange) (int, error) { return f.FD(), nil }

// FD implements memmap.File.FD.
func (f *hostFile) FD() int { return int(f.file.Fd()) }
