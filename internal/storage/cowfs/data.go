package cowfs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/internal/storage/erofs"
	"ramet.dev/ramet/internal/storage/pages"
)

// extent says which pages hold consecutive blocks of a file. Page 0 is a hole: zeros where
// the image has data.
type extent struct {
	ino   Ino
	block uint64
	n     uint64
	page  pages.Page
	born  uint32
}

const extentSize = 16

func extentOf(k, val []byte) (extent, error) {
	ino, kind, rest := keyOf(k)
	if kind != keyExtent || len(rest) != 8 || len(val) != extentSize {
		return extent{}, fmt.Errorf("%w: extent with a key of %d and a value of %d bytes", pages.ErrCorrupt, len(k), len(val))
	}
	e := extent{
		ino:   ino,
		block: binary.BigEndian.Uint64(rest),
		n:     uint64(binary.LittleEndian.Uint32(val[8:])),
		page:  pages.Page(binary.LittleEndian.Uint64(val)),
		born:  binary.LittleEndian.Uint32(val[12:]),
	}
	if e.n == 0 || e.block+e.n < e.block || e.page+pages.Page(e.n) < e.page {
		return extent{}, fmt.Errorf("%w: extent of %d blocks at %d", pages.ErrCorrupt, e.n, e.block)
	}
	return e, nil
}

func extentKey(buf *[keyRoom]byte, ino Ino, block uint64) []byte {
	return binary.BigEndian.AppendUint64(key(buf, ino, keyExtent), block)
}

func (f *contents) putExtent(e extent) error {
	var buf [keyRoom]byte
	var val [extentSize]byte
	binary.LittleEndian.PutUint64(val[:], uint64(e.page))
	binary.LittleEndian.PutUint32(val[8:], uint32(e.n))
	binary.LittleEndian.PutUint32(val[12:], e.born)
	f.recent.forget(e.ino)
	return f.tree.Put(extentKey(&buf, e.ino, e.block), val[:])
}

func (f *contents) deleteExtent(e extent) error {
	var buf [keyRoom]byte
	f.recent.forget(e.ino)
	_, err := f.tree.Delete(extentKey(&buf, e.ino, e.block))
	return err
}

// maxExtent bounds the blocks of an extent, so that their number has 32 bits and copies are
// short.
const maxExtent = 1 << 20

// reader is a Tree or a View.
type reader interface {
	scanner
	Floor(key []byte) (k, val []byte, ok bool, err error)
}

// extentAt returns the extent that has block. If there is none, next is the block at which
// the next extent begins.
func extentAt(t reader, ino Ino, block uint64) (e extent, next uint64, err error) {
	var buf [keyRoom]byte
	k, val, ok, err := t.Floor(extentKey(&buf, ino, block))
	if err != nil {
		return e, 0, err
	}
	if ok {
		if i, kind, _ := keyOf(k); i == ino && kind == keyExtent {
			if e, err = extentOf(k, val); err != nil {
				return e, 0, err
			}
			if block < e.block+e.n {
				return e, 0, nil
			}
		}
	}
	next = math.MaxUint64
	err2 := t.Scan(extentKey(&buf, ino, block), func(k, val []byte) bool {
		if i, kind, _ := keyOf(k); i == ino && kind == keyExtent {
			var n extent
			n, err = extentOf(k, val)
			next = n.block
		}
		return false
	})
	return extent{}, next, firstError(err, err2)
}

// Run is a range of consecutive blocks of a file that are stored in one piece.
type Run struct {
	Block, N uint64
	// Page is the first page of the blocks. If it is 0, the blocks are at ImageOffset in
	// the image; if that is 0 too, they are zeros.
	Page        pages.Page
	Mutable     bool // the pages may be written
	ImageOffset uint64
}

// Zero returns whether the run is all zeros and takes no space.
func (r *Run) Zero() bool { return r.Page == 0 && r.ImageOffset == 0 }

// Map returns the longest run that begins at block and has at most n blocks.
func (f *contents) Map(ino Ino, a *Attr, block, n uint64) (Run, error) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.run(ino, a, block, n)
}

func (f *contents) run(ino Ino, a *Attr, block, n uint64) (Run, error) {
	if e, ok := f.recent.at(ino, block); ok {
		r := e.run(block, n)
		r.Mutable = r.Page != 0 && f.store.Mutable(r.Page, e.born)
		return r, nil
	}
	r, e, err := findRun(f.tree, f.image, ino, a, block, n)
	if err != nil {
		return r, err
	}
	if e.n > 0 {
		f.recent.note(e, block)
	}
	r.Mutable = r.Page != 0 && f.store.Mutable(r.Page, e.born)
	return r, nil
}

// run returns the part of e that begins at block, which is in e, and has at most n blocks.
func (e *extent) run(block, n uint64) Run {
	r := Run{Block: block, N: min(n, e.block+e.n-block)}
	if e.page != 0 {
		r.Page = e.page + pages.Page(block-e.block)
	}
	return r
}

// findRun is Map for a tree or a view. e is the extent that has the run, if there is one.
func findRun(t reader, image *erofs.Reader, ino Ino, a *Attr, block, n uint64) (r Run, e extent, err error) {
	e, next, err := extentAt(t, ino, block)
	if err != nil {
		return Run{}, e, err
	}
	if e.n > 0 {
		return e.run(block, n), e, nil
	}
	r = Run{Block: block, N: min(n, next-block)}
	imageBlocks := BlocksIn(a.ImageEnd)
	if block >= imageBlocks {
		return r, e, nil
	}
	r.N = min(r.N, imageBlocks-block)
	if image == nil || !ino.OfImage() {
		return r, e, fmt.Errorf("%w: inode %d has %d bytes of an image", pages.ErrCorrupt, ino, a.ImageEnd)
	}
	in, err := image.Inode(uint64(ino))
	if err != nil {
		return r, e, err
	}
	off, err := image.DataOffset(&in)
	r.ImageOffset = off + block*pages.PageSize
	return r, e, err
}

// BlocksIn returns the number of blocks of a file of size bytes.
func BlocksIn(size uint64) uint64 {
	return size/pages.PageSize + (size%pages.PageSize+pages.PageSize-1)/pages.PageSize
}

// memory returns the contents of a run that is not zero. The image's part may be shorter than
// the run.
func (f *contents) memory(r *Run, a *Attr) ([]byte, error) {
	if r.Page != 0 {
		return f.store.Contents(r.Page, int(r.N))
	}
	n := min(r.N*pages.PageSize, a.ImageEnd-r.Block*pages.PageSize)
	if r.ImageOffset > uint64(len(f.data)) || n > uint64(len(f.data))-r.ImageOffset {
		return nil, fmt.Errorf("%w: the image's data at %d", pages.ErrCorrupt, r.ImageOffset)
	}
	return f.data[r.ImageOffset : r.ImageOffset+n], nil
}

// Read calls fn for consecutive pieces of [off, off+n) of a file. mem is nil for a piece of
// zeros. fn returns the number of bytes that it took; if that is less than size, or with an
// error, reading ends. fn is called with the tree locked for reading; if it returns
// ErrUnreadable, it is called once more with a copy.
func (f *contents) Read(ino Ino, a *Attr, off, n uint64, fn func(mem []byte, size int) (int, error)) error {
	f.mu.RLock()
	defer f.mu.RUnlock()
	for end := off + n; off < end; {
		block := off / pages.PageSize
		r, err := f.run(ino, a, block, min(BlocksIn(end)-block, maxExtent))
		if err != nil {
			return err
		}
		skip := off - block*pages.PageSize
		size := min(r.N*pages.PageSize-skip, end-off)
		var mem []byte
		if !r.Zero() {
			if mem, err = f.memory(&r, a); err != nil {
				return err
			}
			if skip >= uint64(len(mem)) {
				mem = nil // behind the end of the image's part
			} else {
				mem = mem[skip:]
				size = min(size, uint64(len(mem)))
				mem = mem[:size]
			}
		}
		got, err := fn(mem, int(size))
		off += uint64(got)
		if errors.Is(err, ErrUnreadable) && r.Page != 0 {
			got, err = f.readCopy(&r, off-block*pages.PageSize, size-uint64(got), fn)
			off, size = off+uint64(got), uint64(got)
		}
		if err != nil || got < int(size) {
			return err
		}
	}
	return nil
}

// Prepared is the result of Prepare.
type Prepared struct {
	// Ready is the number of bytes from the offset on that may be written.
	Ready uint64
	// Fresh says that some of them are in new pages, Moved that some of the new pages
	// replace others, which may be mapped.
	Fresh, Moved bool
}

// Prepare gives the blocks of [off, off+n) pages that may be written, as many of them as
// there is space for. a is changed and stored.
func (f *contents) Prepare(ino Ino, a *Attr, off, n uint64) (Prepared, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.prepare(ino, a, off, n)
}

func (f *contents) prepare(ino Ino, a *Attr, off, n uint64) (p Prepared, err error) {
	block, end := off/pages.PageSize, BlocksIn(off+n)
	before := *a
	for block < end {
		r, err2 := f.run(ino, a, block, min(end-block, maxExtent))
		if err2 != nil {
			err = err2
			break
		}
		if r.Page == 0 || !r.Mutable {
			if r.N, err = f.replace(ino, a, r); err != nil {
				break
			}
			p.Fresh = true
			p.Moved = p.Moved || !r.Zero()
		}
		block += r.N
	}
	if *a != before {
		err = firstError(err, f.setAttr(ino, a))
	}
	if block*pages.PageSize <= off {
		return p, err
	}
	p.Ready = min(block*pages.PageSize-off, n)
	if errors.Is(err, pages.ErrNoSpace) {
		err = nil // Ready is less than n
	}
	return p, err
}

// replace gives a run, or its beginning, new pages with the same contents, and returns their
// number.
func (f *contents) replace(ino Ino, a *Attr, r Run) (uint64, error) {
	want, err := f.roomForData(&r)
	if err != nil {
		return 0, err
	}
	page, got, err := f.store.Alloc(int(want))
	if err != nil {
		return 0, err
	}
	n := uint64(got)
	if !r.Zero() {
		if err := f.copyOver(a, r, page, n); err != nil {
			f.store.Free(page, got, f.store.Epoch())
			return 0, err
		}
	}
	if err := f.setExtent(a, extent{ino: ino, block: r.Block, n: n, page: page, born: f.store.Epoch()}); err != nil {
		f.store.Free(page, got, f.store.Epoch())
		return 0, err
	}
	return n, nil
}

// copyOver copies the first n blocks of a run to pages from page on.
func (f *contents) copyOver(a *Attr, r Run, page pages.Page, n uint64) error {
	old, err := f.memory(&r, a)
	if err != nil {
		return err
	}
	old = old[:min(n*pages.PageSize, uint64(len(old)))]
	file, _, err := f.store.FileOf(page)
	if err != nil {
		return err
	}
	// Writing through a descriptor avoids a page fault for each page.
	at := int64(page) * pages.PageSize
	for len(old) > 0 {
		n := min(len(old), int(pages.MaxCall(at)))
		if _, err := file.WriteAt(old[:n], at); err != nil {
			if errors.Is(err, unix.EFAULT) { // old cannot be read, see ErrUnreadable
				err = unix.ENOSPC
			}
			return fmt.Errorf("copy %d bytes of a file's data: %w", n, pages.NoSpace(err))
		}
		old, at = old[n:], at+int64(n)
	}
	return nil
}

// setExtent stores e in place of the extents that had its blocks before.
func (f *contents) setExtent(a *Attr, e extent) error {
	if err := f.clear(a, e.ino, e.block, e.n); err != nil {
		return err
	}
	if err := f.joinExtent(e); err != nil {
		return err
	}
	if e.page != 0 {
		a.Blocks += e.n
		f.state.Blocks += int64(e.n)
	}
	return nil
}

// joinExtent stores an extent of blocks that have none, as a part of the extent before it if
// that is possible.
func (f *contents) joinExtent(e extent) error {
	if e.block > 0 {
		left, _, err := extentAt(f.tree, e.ino, e.block-1)
		if err != nil {
			return err
		}
		// The last page of an ancestor and the first of our own have consecutive numbers,
		// and are in two files.
		next := left.page == 0 && e.page == 0 || left.page+pages.Page(left.n) == e.page && f.store.Own(left.page)
		if left.n > 0 && left.n+e.n <= maxExtent && left.born == e.born && next {
			left.n += e.n
			return f.putExtent(left)
		}
	}
	return f.putExtent(e)
}

// clear removes blocks from all extents.
func (f *contents) clear(a *Attr, ino Ino, block, n uint64) error {
	for end := block + n; block < end; {
		e, next, err := extentAt(f.tree, ino, block)
		if err != nil {
			return err
		}
		if e.n == 0 {
			block = next
			continue
		}
		from, to := block, min(end, e.block+e.n)
		// The part to the right comes first: if there is no space for it, nothing has
		// changed.
		if to < e.block+e.n {
			right := e
			right.block, right.n = to, e.block+e.n-to
			if e.page != 0 {
				right.page = e.page + pages.Page(to-e.block)
			}
			if err := f.putExtent(right); err != nil {
				return err
			}
		}
		if from > e.block {
			left := e
			left.n = from - e.block
			err = f.putExtent(left)
		} else {
			err = f.deleteExtent(e)
		}
		if err != nil {
			return err
		}
		if e.page != 0 {
			gone := e
			gone.page, gone.n = e.page+pages.Page(from-e.block), to-from
			a.Blocks -= gone.n
			f.drop(gone)
		}
		block = to
	}
	return nil
}

// Punch makes [off, off+n) zeros that take no space. Whole blocks in it may be unmapped after
// it: the function of OnFree keeps their pages. a is changed and stored.
func (f *contents) Punch(ino Ino, a *Attr, off, n uint64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	end := off + n
	first, last := BlocksIn(off), end/pages.PageSize
	if first > last { // within one block
		return f.zero(ino, a, off, end)
	}
	if err := firstError(f.zero(ino, a, off, first*pages.PageSize), f.zero(ino, a, last*pages.PageSize, end)); err != nil {
		return err
	}
	if first == last {
		return nil
	}
	if err := f.clear(a, ino, first, last-first); err != nil {
		return err
	}
	if of := min(last, BlocksIn(a.ImageEnd)); first < of {
		in, err := f.imageInode(ino)
		if err == nil && a.ImageEnd > in.Size {
			err = fmt.Errorf("%w: inode %d has %d bytes of an image", pages.ErrCorrupt, ino, a.ImageEnd)
		}
		if err != nil {
			return err
		}
		for b := first; b < of; {
			c := min(of-b, maxExtent)
			if err := f.setExtent(a, extent{ino: ino, block: b, n: c, born: 0}); err != nil {
				return err
			}
			b += c
		}
	}
	return f.setAttr(ino, a)
}

// Reserve gives the blocks of [off, off+n) pages where they have none, so that writing there
// does not run out of space.
func (f *contents) Reserve(ino Ino, a *Attr, off, n uint64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	need := uint64(0)
	for block, end := off/pages.PageSize, BlocksIn(off+n); block < end; {
		r, err := f.run(ino, a, block, end-block)
		if err != nil {
			return err
		}
		if r.Zero() {
			need += r.N
		}
		block += r.N
	}
	if f.state.Limit > 0 && need > uint64(f.space().Free) {
		return pages.ErrNoSpace
	}
	for block, end := off/pages.PageSize, BlocksIn(off+n); block < end; {
		r, err := f.run(ino, a, block, min(end-block, maxExtent))
		if err != nil {
			return err
		}
		if r.Zero() {
			if r.N, err = f.replace(ino, a, r); err != nil {
				return firstError(f.setAttr(ino, a), err)
			}
			continue // the new pages are the next run
		}
		if r.Mutable {
			if err := f.store.Reserve(r.Page, pages.Page(r.N)); err != nil {
				return firstError(f.setAttr(ino, a), err)
			}
		}
		block += r.N
	}
	return f.setAttr(ino, a)
}

// Seek returns the first offset from off on with data, or without data. It returns the
// file's size if there is none.
func (f *contents) Seek(ino Ino, a *Attr, off uint64, data bool) (uint64, error) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	for off < a.Size {
		block := off / pages.PageSize
		r, err := f.run(ino, a, block, BlocksIn(a.Size)-block)
		if err != nil {
			return 0, err
		}
		if r.Zero() != data {
			return off, nil
		}
		off = (block + r.N) * pages.PageSize
	}
	return a.Size, nil
}
