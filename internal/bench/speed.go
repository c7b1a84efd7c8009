package bench

import (
	"math"
	"slices"
	"strings"
	"time"
)

// speed measures how fast the processors are while samples are taken. A virtual machine gets half
// of a processor when the host has other work on the same core. Everything takes twice as long
// then, and no other metric shows it. speed does not show that a processor is taken away for
// milliseconds at a time.
type speed struct {
	took []float64 // milliseconds
}

// rounds is the number of times that the words are counted in one piece of work, which takes a
// usual processor a tenth of a millisecond. pieces is the number of pieces in a sample. The first
// ones find cold caches.
const rounds, pieces = 80, 4

const words = "sandboxes are forked with their files memory and processes and the children run where their parent runs and keep what it kept"

// sample does fixed pieces of work, and returns the time of the fastest in milliseconds. The work
// allocates, hashes and branches, as a daemon does.
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

// best returns the best and the median time of a piece of work, or zeros without samples.
func (s *speed) best() (best, usual float64) {
	if len(s.took) == 0 {
		return 0, 0
	}
	return slices.Min(s.took), *median(s.took)
}
