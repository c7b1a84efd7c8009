package cowfs

import "ramet.dev/ramet/internal/storage/pages"

// contents is the data of regular files: extents in the tree, and the pages that they refer
// to. It knows no names.
type contents struct {
	core
	recent *recentExtents // by itself: it has no pointers, the collector leaves it alone
	// held is asked before pages of the present tree are given back; see OnFree.
	held func(p pages.Page, n int, born uint32) bool
}

// OnFree makes f decide about pages that the tree gives up: if it returns true it
// has taken them over, because somebody still maps them, and calls Free later.
// f is called with the tree locked.
func (f *contents) OnFree(held func(p pages.Page, n int, born uint32) bool) { f.held = held }

// Free gives back pages that an OnFree function took over.
func (f *contents) Free(p pages.Page, n int, born uint32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.store.Free(p, n, born)
}

// roomForData returns how many pages there are for a run of a file, at most as many
// as it has, or ErrNoSpace.
func (f *contents) roomForData(r *Run) (uint64, error) {
	if err := f.store.EnsureNodes(pages.RoomNodes); err != nil {
		return 0, err
	}
	if r.Page != 0 || f.state.Limit == 0 { // they take the place of others
		return r.N, nil
	}
	free := f.space().Free
	if free == 0 {
		return 0, pages.ErrNoSpace
	}
	return min(r.N, uint64(free)), nil
}

// drop gives back an extent's pages, which the tree does not refer to any more.
func (f *contents) drop(e extent) {
	if e.page == 0 {
		return
	}
	f.state.Blocks -= int64(e.n)
	if f.held == nil || !f.held(e.page, int(e.n), e.born) {
		f.store.Free(e.page, int(e.n), e.born)
	}
}
