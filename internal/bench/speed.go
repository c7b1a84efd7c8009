package bench

import (
	"math"
	"slices"
	"strings"
	"time"
)

// speed measures how fast the processors are while samples are taken. A virtual machine has
// them for itself, as far as it can see, and gets half of one when the host has others work
// on the same core: all takes twice as long then, and nothing else shows it. What it does not
// show is that a processor is taken away for milliseconds at a time.
type speed struct {
	took []float64 // milliseconds
}

// rounds is how often the words are counted in one piece of work, which takes a usual
// processor a tenth of a millisecond, and pieces how many are done at a time. The first ones
// find nothing in the processor's caches.
const rounds, pieces = 80, 4

const words = "sandboxes are forked with their files memory and processes and the children run where their parent runs and keep what it kept"

// sample does fixed pieces of work and returns what the fastest took, in milliseconds. Like a
// daemon they allocate, hash and branch.
func (s *speed) sample() float64 {
	fastest := math.Inf(1)
	for range pieces {
		began := time.Now()
		for range rounds {
			seen := map[string]int{}
			for _, w := range strings.Fields(words) {
				seen[w]++
			}
		}
		fastest = min(fastest, millis(time.Since(began)))
	}
	s.took = append(s.took, fastest)
	return fastest
}

// best returns what a piece of work took at best and in the median, or zeros if there was
// none.
func (s *speed) best() (best, usual float64) {
	if len(s.took) == 0 {
		return 0, 0
	}
	return slices.Min(s.took), *median(s.took)
}
