package inode

import (
	"os"
	"sync"

	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/safemem"
	"gvisor.dev/gvisor/pkg/sentry/fsutil"
	"gvisor.dev/gvisor/pkg/sentry/memmap"

	"ramet.dev/ramet/internal/storage/cowfs"
	"ramet.dev/ramet/internal/storage/pages"
)

// hostFiles are the files of the host that pages of guest files are in.
type hostFiles struct {
	tree     *cowfs.FS
	segments []*hostFile // of the tree's store, in its order
	image    *hostFile

	// moveMu is held for reading from when pages of a mapped file are moved or freed until
	// its mappings are told. Pages that are freed meanwhile become zombies.
	moveMu sync.RWMutex

	// refsMu protects the references of address spaces on pages of the sandbox's own file,
	// and the zombies: pages that were freed while they had such references.
	refsMu  sync.Mutex
	refs    fsutil.FrameRefSet
	moving  int
	zombies []freed
}

// freed are pages that the tree gave up while they may still be mapped.
type freed struct {
	page pages.Page
	n    int
	born uint32
}

func (h *hostFiles) attach(tree *cowfs.FS, own, image *os.File, bytes []byte) {
	h.tree = tree
	h.image = &hostFile{hosts: h, file: image, image: bytes}
	segments := tree.Store().Segments()
	for _, s := range segments {
		if s.File != own { // a store whose own file is still empty has no segment of it
			h.segments = append(h.segments, &hostFile{hosts: h, file: s.File})
		}
	}
	h.segments = append(h.segments, &hostFile{hosts: h, file: own, own: true})
	tree.OnFree(h.onFree)
}

// onFree decides about pages that the tree gives up, see cowfs.FS.OnFree.
func (h *hostFiles) onFree(p pages.Page, n int, born uint32) bool {
	h.refsMu.Lock()
	defer h.refsMu.Unlock()
	if h.moving == 0 && h.refs.IsEmptyRange(pageRange(p, n)) {
		return false
	}
	h.zombies = append(h.zombies, freed{p, n, born})
	return true
}

// beginMove is called before pages of a mapped file are moved or freed, and endMove when its
// mappings were told. In between no page is used again, since an address space may be about
// to map it.
func (h *hostFiles) beginMove() {
	h.moveMu.RLock()
	h.refsMu.Lock()
	h.moving++
	h.refsMu.Unlock()
}

func (h *hostFiles) endMove() {
	h.refsMu.Lock()
	h.moving--
	gone := h.unmapped()
	h.refsMu.Unlock()
	h.moveMu.RUnlock()
	h.free(gone)
}

// unmapped removes the zombies that no address space maps, and returns them. h.refsMu must
// be locked.
func (h *hostFiles) unmapped() []freed {
	if h.moving > 0 || len(h.zombies) == 0 {
		return nil
	}
	var gone []freed
	kept := h.zombies[:0]
	for _, z := range h.zombies {
		if h.refs.IsEmptyRange(pageRange(z.page, z.n)) {
			gone = append(gone, z)
		} else {
			kept = append(kept, z)
		}
	}
	h.zombies = kept
	return gone
}

func (h *hostFiles) free(gone []freed) {
	for _, z := range gone {
		h.tree.Free(z.page, z.n, z.born)
	}
}

func pageRange(p pages.Page, n int) memmap.FileRange {
	return memmap.FileRange{Start: uint64(p) * pages.PageSize, End: (uint64(p) + uint64(n)) * pages.PageSize}
}

// hostFile is one of the files: it implements memmap.File.
type hostFile struct {
	memmap.DefaultMemoryType
	memmap.NoBufferedIOFallback

	hosts *hostFiles
	file  *os.File
	image []byte // if it is the image
	own   bool   // if pages of it may be freed
}

// IncRef implements memmap.File.IncRef.
func (f *hostFile) IncRef(fr memmap.FileRange, memCgID uint32) {
	if f.own {
		f.hosts.refsMu.Lock()
		defer f.hosts.refsMu.Unlock()
		f.hosts.refs.IncRefAndAccount(fr, memCgID)
	}
}

// DecRef implements memmap.File.DecRef.
func (f *hostFile) DecRef(fr memmap.FileRange) {
	if !f.own {
		return
	}
	f.hosts.refsMu.Lock()
	f.hosts.refs.DecRefAndAccount(fr)
	gone := f.hosts.unmapped()
	f.hosts.refsMu.Unlock()
	f.hosts.free(gone)
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
	bytes := f.hosts.tree.Store().Contents
	if at.Write {
		bytes = f.hosts.tree.Store().Bytes
	}
	mem, err := bytes(pages.Page(first), int((fr.End+page-1)/page-first))
	if err != nil {
		return safemem.BlockSeq{}, &memmap.BusError{Err: Errno(err)}
	}
	return hostMemory(mem[fr.Start-first*page:][:fr.Length()]), nil
}

// DataFD implements memmap.File.DataFD.
func (f *hostFile) DataFD(memmap.FileRange) (int, error) { return f.FD(), nil }

// FD implements memmap.File.FD.
func (f *hostFile) FD() int { return int(f.file.Fd()) }
