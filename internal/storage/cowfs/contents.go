package cowfs

import "ramet.dev/ramet/internal/storage/pages"

// contents is the data of regular files: extents in the tree, and the pages that they refer
// to. It knows no names.
type contents struct {
	core
	recent *recentExtents // a pointer: recentExtents has none, so the collector skips it
	// held is called before pages of the present tree are freed; see OnFree.
	held func(p pages.Page, n int, born uint32) bool
}

// OnFree sets a function that decides about pages that the tree gives up: if held returns
// true it has taken the pages over, because they are still mapped, and calls Free later.
// held is called with the tree locked.
func (f *contents) OnFree(held func(p pages.Page, n int, born uint32) bool) { f.held = held }

// Free frees pages that the function of OnFree took over.
func (f *contents) Free(p pages.Page, n int, born uint32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.store.Free(p, n, born)
}

// roomForData returns the number of pages that there is space for, at most the blocks of a
// run, or ErrNoSpace.
func (f *contents) roomForData(r *Run) (uint64, error) {
	if err := f.store.EnsureNodes(pages.RoomNodes); err != nil {
		return 0, err
	}
	if r.Page != 0 || f.state.Limit == 0 { // new pages replace those of the run
		return r.N, nil
	}
	free := f.space().Free
	if free == 0 {
		return 0, pages.ErrNoSpace
	}
	return min(r.N, uint64(free)), nil
}

// drop frees an extent's pages, which the tree does not refer to any more.
func (f *contents) drop(e extent) {
	if e.page == 0 {
		return
	}
	f.state.Blocks -= int64(e.n)
	if f.held == nil || !f.held(e.page, int(e.n), e.born) {
		f.store.Free(e.page, int(e.n), e.born)
	}
}
