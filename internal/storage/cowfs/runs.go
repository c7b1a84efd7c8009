package cowfs

import (
	"cmp"
	"slices"

	"ramet.dev/ramet/internal/storage/btree"
	"ramet.dev/ramet/internal/storage/pages"
)

// PageRun are consecutive pages [Start, End) that hold consecutive blocks of one file.
type PageRun struct{ Start, End pages.Page }

// Runs returns the runs of more than one page that the files of a tree have, in their order.
// The pages of a run may be read at once, so they have to be in one segment.
func Runs(v *btree.View) ([]PageRun, error) {
	var list []extent
	var bad error
	err := v.Scan(nil, func(k, val []byte) bool {
		if _, kind, _ := keyOf(k); kind != keyExtent {
			return true
		}
		e, err := extentOf(k, val)
		if bad = err; err == nil && e.page != 0 {
			list = append(list, e)
		}
		return err == nil
	})
	if err = cmp.Or(bad, err); err != nil {
		return nil, err
	}
	slices.SortFunc(list, func(a, b extent) int { return cmp.Compare(a.page, b.page) })
	var runs []PageRun
	var last extent
	for _, e := range list {
		if n := len(runs); n > 0 && e.page < runs[n-1].End || n > 0 && e.page == runs[n-1].End && e.ino == last.ino && e.block == last.block+last.n {
			runs[n-1].End = max(runs[n-1].End, e.page+pages.Page(e.n))
		} else {
			runs = append(runs, PageRun{e.page, e.page + pages.Page(e.n)})
		}
		last = e
	}
	return slices.DeleteFunc(runs, func(r PageRun) bool { return r.End-r.Start == 1 }), nil
}
