package inode

import (
	"io"

	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/memmap"

	"ramet.dev/ramet/internal/storage/cowfs"
	"ramet.dev/ramet/internal/storage/pages"
)

// This file implements memmap.Mappable.
//
// A pinned page is mapped read-only. A store to it through a shared mapping replaces it by
// another page. All mappings must see that page, so none may have the old page. Therefore,
// as long as a mapping is shared and writable, every page that is touched through a mapping
// is made writable first; and when the first such mapping is added, all pages are unmapped
// once.
//
// A store through a mapping changes the file's times if it is the first store since they
// were last read. Before a store all pages are mapped read-only, so it faults; reading the
// times unmaps the pages that were mapped after a store.

// AddMapping implements memmap.Mappable.AddMapping.
func (c *contents) AddMapping(_ context.Context, ms memmap.MappingSpace, ar hostarch.AddrRange, offset uint64, writable bool) error {
	c.mapsMu.Lock()
	defer c.mapsMu.Unlock()
	c.mapped.Store(true)
	if writable {
		if c.writable.Add(int64(ar.Length()/hostarch.PageSize)) == int64(ar.Length()/hostarch.PageSize) {
			c.mappings.InvalidateAll(memmap.InvalidateOpts{})
		}
	}
	c.mappings.AddMapping(ms, ar, offset, writable)
	return nil
}

// RemoveMapping implements memmap.Mappable.RemoveMapping.
func (c *contents) RemoveMapping(_ context.Context, ms memmap.MappingSpace, ar hostarch.AddrRange, offset uint64, writable bool) {
	c.mapsMu.Lock()
	defer c.mapsMu.Unlock()
	c.mappings.RemoveMapping(ms, ar, offset, writable)
	if writable {
		c.writable.Add(-int64(ar.Length() / hostarch.PageSize))
	}
}

// CopyMapping implements memmap.Mappable.CopyMapping.
func (c *contents) CopyMapping(ctx context.Context, ms memmap.MappingSpace, _, dstAR hostarch.AddrRange, offset uint64, writable bool) error {
	return c.AddMapping(ctx, ms, dstAR, offset, writable)
}

const (
	// mapAround is the number of bytes before a fault and behind it that are mapped at
	// least, if the file has them. A longer piece around the fault is mapped as a whole.
	mapAround = 2 << 20
	// fillAhead is the number of bytes that are made writable ahead of a fault.
	fillAhead = 64 << 10
)

// Translate implements memmap.Mappable.Translate.
func (c *contents) Translate(_ context.Context, required, optional memmap.MappableRange, at hostarch.AccessType) ([]memmap.Translation, error) {
	// A store to a page that is mapped for reading and executing. gVisor then asks for the
	// whole range that it has joined with the first page, which may belong to another
	// mapping beside this one, of another file: only the first page is certain. gVisor
	// calls again for the next page.
	if at.Write && at.Execute {
		required.End = required.Start + pages.PageSize
		optional = required
	}
	c.translated.Store(true)
	c.attrMu.Lock()
	defer c.attrMu.Unlock()
	end := (c.attr.Size + pages.PageSize - 1) &^ (pages.PageSize - 1)
	if required.Start >= end {
		return nil, &memmap.BusError{Err: io.EOF}
	}
	var beyond error
	if required.End > end {
		beyond = &memmap.BusError{Err: io.EOF}
		required.End = end
	}
	optional.End = min(optional.End, end)
	write := at.Write || c.writable.Load() > 0
	if write {
		if err := c.fill(required, optional); err != nil {
			return nil, err
		}
	}
	if at.Write {
		now := c.table.Now()
		c.attr.Mtime, c.attr.Ctime = now, now
		c.table.markDirty(c.ino)
		c.stored = true
	}
	off, err := c.mapFrom(required.Start, optional.Start)
	if err != nil {
		return nil, &memmap.BusError{Err: Errno(err)}
	}
	var ts []memmap.Translation
	for off < optional.End && off < max(required.End, required.Start+mapAround) {
		r, err := c.table.tree.Map(c.ino, &c.attr, off/pages.PageSize, (optional.End-off)/pages.PageSize)
		if err != nil {
			return ts, &memmap.BusError{Err: Errno(err)}
		}
		end := off + r.N*pages.PageSize
		unready := r.Zero() || write && !r.Mutable
		if unready && off >= required.End {
			break
		}
		// The first translation must have the place of the fault, see
		// memmap.CheckTranslateResult: a private copy is made of each part from
		// there on, and nothing before it is to be copied.
		if off < required.Start && (unready || end <= required.Start) {
			off = min(end, required.Start)
			continue
		}
		if r.Zero() { // a hole that is read: all mappings must see a later write there
			if err := c.fill(memmap.MappableRange{Start: off, End: min(required.End, end)}, optional); err != nil {
				return ts, err
			}
			continue
		}
		t, err := c.translation(off, &r)
		if err != nil {
			return ts, err
		}
		t.Perms.Write = at.Write || c.stored && t.Perms.Write
		ts = append(ts, t)
		off = t.Source.End
	}
	return ts, beyond
}

// mapFrom returns the offset from which to map for a fault at an offset, not below lowest.
// A program that has just started often faults from high to low, as a function of a library
// calls others in front of it, and each fault costs it some 30 µs.
func (c *contents) mapFrom(at, lowest uint64) (uint64, error) {
	if lowest == at {
		return at, nil
	}
	r, err := c.table.tree.Map(c.ino, &c.attr, lowest/pages.PageSize, (at-lowest)/pages.PageSize+1)
	if err != nil || at-lowest < max(r.N*pages.PageSize, mapAround) {
		return lowest, err
	}
	return at - mapAround, nil
}

// fill makes required writable, and some of optional. c.attrMu must be locked.
func (c *contents) fill(required, optional memmap.MappableRange) error {
	p, err := c.table.tree.Prepare(c.ino, &c.attr, required.Start, min(optional.End-required.Start, max(required.Length(), fillAhead)))
	if err != nil {
		return &memmap.BusError{Err: Errno(err)}
	}
	if p.Ready < required.Length() {
		return &memmap.BusError{Err: linuxerr.ENOSPC}
	}
	return nil
}

// translation returns the mapping of a run of pages at off.
func (c *contents) translation(off uint64, r *cowfs.Run) (memmap.Translation, error) {
	t := memmap.Translation{
		Source: memmap.MappableRange{Start: off, End: off + r.N*pages.PageSize},
		File:   c.table.hosts.image, Offset: r.ImageOffset, Perms: hostarch.ReadExecute,
	}
	if r.Page == 0 {
		return t, nil
	}
	_, n, err := c.table.tree.Store().FileOf(r.Page)
	if err != nil {
		return t, &memmap.BusError{Err: Errno(err)}
	}
	t.File, t.Offset = c.table.hosts.segments[n], uint64(r.Page)*pages.PageSize
	if r.Mutable {
		t.Perms = hostarch.AnyAccess
	}
	return t, nil
}

// InvalidateUnsavable implements memmap.Mappable.InvalidateUnsavable: a child has
// other descriptors.
func (c *contents) InvalidateUnsavable(context.Context) error {
	c.invalidateAll()
	return nil
}

// invalidateAll unmaps all pages, unless that was done and nothing was mapped since: a
// freeze calls it once for each mapping of each process, after the pin of the files did. No
// process may be running.
func (c *contents) invalidateAll() {
	if !c.translated.Swap(false) {
		return
	}
	c.mapsMu.Lock()
	defer c.mapsMu.Unlock()
	c.noteStores() // a store after a freeze is to be noted again
	c.mappings.InvalidateAll(memmap.InvalidateOpts{})
}

// maybeStored reports whether a process may have a page mapped that it can write to.
func (c *contents) maybeStored() bool {
	c.attrMu.Lock()
	defer c.attrMu.Unlock()
	return c.stored || c.writable.Load() > 0
}

// invalidate unmaps the pages of [from, to). If the file was cut there, that includes private
// copies of whole pages.
func (c *contents) invalidate(from, to uint64, cut bool) {
	const page = pages.PageSize
	to = (to + page - 1) &^ (page - 1)
	whole := (from + page - 1) &^ (page - 1)
	c.mapsMu.Lock()
	defer c.mapsMu.Unlock()
	if first := from &^ (page - 1); first < whole {
		c.mappings.Invalidate(memmap.MappableRange{Start: first, End: whole}, memmap.InvalidateOpts{})
	}
	if whole < to {
		c.mappings.Invalidate(memmap.MappableRange{Start: whole, End: to}, memmap.InvalidateOpts{InvalidatePrivate: cut})
	}
}

// told returns the attributes to a caller that may compare them later: it makes sure that
// the next store through a mapping changes the times. mapsMu is held until the mappings for
// stores are gone, so that no other caller gets the same attributes after a store.
func (c *contents) told() cowfs.Attr {
	if !c.mapped.Load() {
		return c.Attr()
	}
	c.mapsMu.Lock()
	defer c.mapsMu.Unlock()
	a, stored := c.noteStores()
	if stored {
		c.mappings.InvalidateAll(memmap.InvalidateOpts{})
	}
	return a
}
