package control

import (
	"time"

	"golang.org/x/time/rate"

	"ramet.dev/ramet/api"
)

// How many decisions a sample has of one sandbox, and of all together, for each verdict: some at once,
// and then one each so often. A sandbox that is denied much takes no room from what is allowed, and no
// more than its share from others.
const (
	sampleBurst = 8
	sampleEvery = 15 * time.Second
	totalBurst  = 256
	totalEvery  = 5 * time.Second
	// maxSampled bounds what is known of sandboxes: one that has ended is not forgotten before.
	maxSampled = 4096
)

// sample chooses decisions for a reader who has room for few. The zero sample has chosen none.
type sample struct {
	totals map[api.NetworkVerdict]*rate.Limiter
	of     map[sampled]*sampling
}

// sampled is what a share belongs to.
type sampled struct {
	sandbox string
	verdict api.NetworkVerdict
}

// sampling is what is known of a share.
type sampling struct {
	limiter *rate.Limiter
	lost    uint64 // since the last that was chosen
}

// take reports whether the sample has a decision, and how many of its share it lacks before it.
func (s *sample) take(line *Line) (lost uint64, taken bool) {
	if line.IsEnd() {
		return 0, false
	}
	if line.Verdict == api.NetworkHeld {
		return 0, true // somebody decides on it; how many there are is bounded by the limits of held requests
	}
	if s.totals == nil || len(s.of) >= maxSampled {
		s.of = map[sampled]*sampling{}
	}
	if s.totals == nil {
		s.totals = map[api.NetworkVerdict]*rate.Limiter{}
	}
	total := s.totals[line.Verdict]
	if total == nil {
		total = rate.NewLimiter(rate.Every(totalEvery), totalBurst)
		s.totals[line.Verdict] = total
	}
	key := sampled{line.Sandbox, line.Verdict}
	of := s.of[key]
	if of == nil {
		of = &sampling{limiter: rate.NewLimiter(rate.Every(sampleEvery), sampleBurst)}
		s.of[key] = of
	}
	if !of.limiter.AllowN(line.At, 1) || !total.AllowN(line.At, 1) {
		of.lost++
		return 0, false
	}
	lost, of.lost = of.lost, 0
	return lost, true
}
