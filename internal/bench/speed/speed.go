package speed

import (
	"math"
	"slices"
	"strings"
	"time"
)

// Meter measures how fast the processors are while samples are taken. A virtual machine gets half
// of a processor when the host has other work on the same core. Everything takes twice as long
// then, and no other metric shows it. A Meter does not show that a processor is taken away for
// milliseconds at a time.
type Meter struct {
	took []float64 // milliseconds
}

// rounds is the number of times that the words are counted in one piece of work, which takes a
// usual processor a tenth of a millisecond. pieces is the number of pieces in a sample. The first
// ones find cold caches.
const rounds, pieces = 80, 4

const words = "sandboxes are forked with their files memory and processes and the children run where their parent runs and keep what it kept"

// Sample does fixed pieces of work, and returns the time of the fastest in milliseconds. The work
// allocates, hashes and branches, as a daemon does.
func (s *Meter) Sample() float64 {
	fastest := math.Inf(1)
	for range pieces {
		began := time.Now()
		for range rounds {
			seen := map[string]int{}
			for _, w := range strings.Fields(words) {
				seen[w]++
			}
		}
		fastest = min(fastest, float64(time.Since(began))/float64(time.Millisecond))
	}
	s.took = append(s.took, fastest)
	return fastest
}

// Best returns the best and the median time of a piece of work, or zeros without samples.
func (s *Meter) Best() (best, usual float64) {
	if len(s.took) == 0 {
		return 0, 0
	}
	sorted := slices.Sorted(slices.Values(s.took))
	half := len(sorted) / 2
	usual = sorted[half]
	if len(sorted)%2 == 0 {
		usual = (sorted[half-1] + usual) / 2
	}
	return sorted[0], usual
}
