package launch

import "time"

// PoolSize is how many blank sentries a pool keeps.
type PoolSize struct {
	// Least sentries are always kept. Up to Most are kept after so many were asked for at
	// once.
	Least, Most int
}

const (
	// burstGap is the shortest time without requests between two bursts.
	burstGap = 500 * time.Millisecond
	// burstMemory is how long a burst is remembered: a client that forks into a hundred
	// sandboxes does so again within that time, or has gone.
	burstMemory = 10 * time.Minute
)

// demand learns how many sentries are asked for at once.
type demand struct {
	size   PoolSize
	last   time.Time // when a sentry was last asked for
	burst  int       // how many were asked for since the last gap
	peak   int       // the largest burst that is remembered
	peakAt time.Time
}

// note counts a sentry that was asked for at now.
func (d *demand) note(now time.Time) {
	if now.Sub(d.last) > burstGap {
		d.burst = 0
	}
	d.last = now
	d.burst++
	if d.burst >= d.peak || now.Sub(d.peakAt) > burstMemory {
		d.peak, d.peakAt = d.burst, now
	}
}

// want returns how many sentries to keep at now, and for how long that holds without
// further requests; 0 means for ever.
func (d *demand) want(now time.Time) (n int, holds time.Duration) {
	n = min(d.peak, d.size.Most)
	if n <= d.size.Least {
		return d.size.Least, 0
	}
	if holds = burstMemory - now.Sub(d.peakAt); holds <= 0 {
		return d.size.Least, 0
	}
	return n, holds
}
