package pages

import "math/bits"

// freeSpace has the free ranges of a file. Neighbours of the same kind are one range: clean
// ranges are known to be zero, as they were never used or punched; dirty ranges are not, and
// take disk space.
type freeSpace struct {
	byStart, byEnd map[Page]*freeRange
	lists          [2][sizeClasses]*freeRange // by kind and bits.Len of the length
	dirtyPages     Page
}

// sizeClasses is enough for any Page.
const sizeClasses = 65

// fitTries is the number of ranges of the right size class that are tried before a range of a
// larger class is cut.
const fitTries = 16

type freeRange struct {
	start, n   Page
	clean      bool
	prev, next *freeRange // within its list
}

func newFreeSpace() freeSpace {
	return freeSpace{byStart: map[Page]*freeRange{}, byEnd: map[Page]*freeRange{}}
}

func (f *freeSpace) list(clean bool, n Page) **freeRange {
	kind := 0
	if clean {
		kind = 1
	}
	return &f.lists[kind][bits.Len64(uint64(n))]
}

func (f *freeSpace) insert(r *freeRange) {
	f.byStart[r.start], f.byEnd[r.start+r.n] = r, r
	head := f.list(r.clean, r.n)
	r.prev, r.next = nil, *head
	if *head != nil {
		(*head).prev = r
	}
	*head = r
	if !r.clean {
		f.dirtyPages += r.n
	}
}

func (f *freeSpace) remove(r *freeRange) {
	delete(f.byStart, r.start)
	delete(f.byEnd, r.start+r.n)
	if r.prev != nil {
		r.prev.next = r.next
	} else {
		*f.list(r.clean, r.n) = r.next
	}
	if r.next != nil {
		r.next.prev = r.prev
	}
	if !r.clean {
		f.dirtyPages -= r.n
	}
}

// add inserts a range, together with its neighbours of the same kind.
func (f *freeSpace) add(r *freeRange) {
	if left := f.byEnd[r.start]; left != nil && left.clean == r.clean {
		f.remove(left)
		r.start, r.n = left.start, r.n+left.n
	}
	if right := f.byStart[r.start+r.n]; right != nil && right.clean == r.clean {
		f.remove(right)
		r.n += right.n
	}
	f.insert(r)
}

func (f *freeSpace) addClean(start, n Page) {
	f.add(&freeRange{start: start, n: n, clean: true})
}

func (f *freeSpace) addDirty(start, n Page) *freeRange {
	r := &freeRange{start: start, n: n}
	f.add(r)
	return r
}

// makeClean makes a range that has been punched a clean one.
func (f *freeSpace) makeClean(r *freeRange) {
	f.remove(r)
	r.clean = true
	f.add(r)
}

// enclosed returns whether both neighbours of a range are free, of the other kind: the range
// cannot become longer.
func (f *freeSpace) enclosed(r *freeRange) bool {
	return f.byEnd[r.start] != nil && f.byStart[r.start+r.n] != nil
}

// take removes n pages from p on, which are within r.
func (f *freeSpace) take(r *freeRange, p, n Page) {
	f.remove(r)
	if left := p - r.start; left > 0 {
		f.insert(&freeRange{start: r.start, n: left, clean: r.clean})
	}
	if right := r.start + r.n - p - n; right > 0 {
		f.insert(&freeRange{start: p + n, n: right, clean: r.clean})
	}
}

// fit returns a range of at least n pages, preferably a short one, or nil. Dirty ranges come
// first: they have disk space.
func (f *freeSpace) fit(n Page) *freeRange {
	class := bits.Len64(uint64(n))
	for kind := range f.lists {
		tries := 0
		for r := f.lists[kind][class]; r != nil && tries < fitTries; r = r.next {
			if r.n >= n {
				return r
			}
			tries++
		}
		for c := class + 1; c < sizeClasses; c++ {
			if r := f.lists[kind][c]; r != nil {
				return r
			}
		}
	}
	return nil
}

// fitAligned returns a range that has n pages aligned to n, a power of two, and the first of
// them.
func (f *freeSpace) fitAligned(n Page) (*freeRange, Page) {
	for kind := range f.lists {
		for c := bits.Len64(uint64(n)); c < sizeClasses; c++ {
			tries := 0
			for r := f.lists[kind][c]; r != nil && tries < fitTries; r = r.next {
				at := (r.start + n - 1) &^ (n - 1)
				if at+n <= r.start+r.n {
					return r, at
				}
				tries++
			}
		}
	}
	return nil, 0
}

// largest returns a range of the largest size class of one kind, or nil.
func (f *freeSpace) largest(clean bool) *freeRange {
	for n := Page(1) << 63; n > 0; n >>= 1 {
		if r := *f.list(clean, n); r != nil {
			return r
		}
	}
	return nil
}
