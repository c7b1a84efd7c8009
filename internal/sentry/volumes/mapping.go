package volumes

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/fsutil"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
)

// This file implements memmap.Mappable. All sandboxes map the same file of the host, so a store
// in one is seen by the others.

// AddMapping implements memmap.Mappable.AddMapping.
func (i *contents) AddMapping(_ context.Context, ms memmap.MappingSpace, ar hostarch.AddrRange, offset uint64, writable bool) error {
	i.mapsMu.Lock()
	defer i.mapsMu.Unlock()
	i.mappings.AddMapping(ms, ar, offset, writable)
	return nil
}

// RemoveMapping implements memmap.Mappable.RemoveMapping.
func (i *contents) RemoveMapping(_ context.Context, ms memmap.MappingSpace, ar hostarch.AddrRange, offset uint64, writable bool) {
	i.mapsMu.Lock()
	defer i.mapsMu.Unlock()
	i.mappings.RemoveMapping(ms, ar, offset, writable)
}

// CopyMapping implements memmap.Mappable.CopyMapping.
func (i *contents) CopyMapping(ctx context.Context, ms memmap.MappingSpace, _, dstAR hostarch.AddrRange, offset uint64, writable bool) error {
	return i.AddMapping(ctx, ms, dstAR, offset, writable)
}

// Translate implements memmap.Mappable.Translate.
func (i *contents) Translate(_ context.Context, required, optional memmap.MappableRange, at hostarch.AccessType) ([]memmap.Translation, error) {
	f, err := i.file()
	if err != nil {
		return nil, &memmap.BusError{Err: err}
	}
	size, err := sizeOf(f)
	if err != nil {
		return nil, &memmap.BusError{Err: err}
	}
	pages, writable, err := i.mapped(f)
	if err != nil {
		return nil, &memmap.BusError{Err: err}
	}
	end := (uint64(size) + hostarch.PageSize - 1) &^ (hostarch.PageSize - 1)
	if required.Start >= end {
		return nil, &memmap.BusError{Err: io.EOF}
	}
	var beyond error
	if required.End > end {
		beyond = &memmap.BusError{Err: io.EOF}
	}
	source := memmap.MappableRange{Start: required.Start, End: min(max(optional.End, required.End), end)}
	perms := hostarch.ReadExecute
	if writable {
		perms = hostarch.AnyAccess
	}
	if at.Write && !perms.Write {
		return nil, &memmap.BusError{Err: unix.EACCES}
	}
	return []memmap.Translation{{Source: source, File: pages, Offset: source.Start, Perms: perms}}, beyond
}

// mapped returns what mappings of the contents f are of, and whether they may be stored to.
func (i *contents) mapped(f *os.File) (pages *fsutil.MmapCachedFile, writable bool, err error) {
	i.filesMu.Lock()
	defer i.filesMu.Unlock()
	flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0)
	if err != nil {
		return nil, false, err
	}
	if i.pages == nil {
		fd, err := unix.Dup(int(f.Fd()))
		if err != nil {
			return nil, false, err
		}
		i.pages = &fsutil.MmapCachedFile{}
		i.pages.SetFD(fd)
	}
	return i.pages, flags&unix.O_ACCMODE == unix.O_RDWR, nil
}

// InvalidateUnsavable implements memmap.Mappable.InvalidateUnsavable: a child has other
// descriptors.
func (i *contents) InvalidateUnsavable(context.Context) error {
	i.mapsMu.Lock()
	defer i.mapsMu.Unlock()
	i.mappings.InvalidateAll(memmap.InvalidateOpts{})
	return nil
}

// cut unmaps what a file lost that has a size from now on.
func (i *contents) cut(size uint64) {
	i.mapsMu.Lock()
	defer i.mapsMu.Unlock()
	if start := (size + hostarch.PageSize - 1) &^ (hostarch.PageSize - 1); start < 1<<63-hostarch.PageSize {
		i.mappings.Invalidate(memmap.MappableRange{Start: start, End: 1<<63 - hostarch.PageSize}, memmap.InvalidateOpts{InvalidatePrivate: true})
	}
}
