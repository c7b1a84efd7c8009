package names

import (
	"container/heap"
	"slices"
	"sort"
	"strings"
)

// Smallest keeps the first strings, in order, of many.
type Smallest struct {
	most int
	heap stringHeap // of no more than most strings, the last of the order on top
}

// First returns a Smallest that keeps up to most strings.
func First(most int) *Smallest { return &Smallest{most: most} }

// Add keeps a string, if it is among the first.
func (s *Smallest) Add(name string) {
	if len(s.heap.StringSlice) < s.most {
		heap.Push(&s.heap, strings.Clone(name))
		return
	}
	if s.most > 0 && name < s.heap.StringSlice[0] {
		s.heap.StringSlice[0] = strings.Clone(name)
		heap.Fix(&s.heap, 0)
	}
}

// Sorted returns the strings that were kept, in order.
func (s *Smallest) Sorted() []string {
	slices.Sort(s.heap.StringSlice)
	return s.heap.StringSlice
}

type stringHeap struct{ sort.StringSlice }

func (h stringHeap) Less(i, j int) bool { return h.StringSlice[i] > h.StringSlice[j] }

// Push implements heap.Interface.
func (h *stringHeap) Push(x any) { h.StringSlice = append(h.StringSlice, x.(string)) }

// Pop implements heap.Interface.
func (h *stringHeap) Pop() any {
	n := len(h.StringSlice) - 1
	last := h.StringSlice[n]
	h.StringSlice = h.StringSlice[:n]
	return last
}
