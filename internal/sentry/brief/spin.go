package brief

import (
	"sync/atomic"
	"time"
	_ "unsafe" // for go:linkname
)

// neverEnableFastPath keeps systrap's threads from spinning. Systrap looks at it every 400
// µs while there is something to do; what spins already goes on until there is nothing. It
// is a byte that is read and written at any time, by several: either value is right.
//
//go:linkname neverEnableFastPath gvisor.dev/gvisor/pkg/sentry/platform/systrap.neverEnableFastPath
var neverEnableFastPath bool

const (
	// spinAfter is how long guests are busy before threads may spin.
	spinAfter = 5 * time.Millisecond
	// rest is how long no task is heard of when they are not.
	rest = 2 * time.Millisecond
	// grain is how often it is written down that one was: every processor reads it.
	grain = 200 * time.Microsecond
	// lookEvery is how often a task looks at the time, in switches, if it does not sleep
	// between them.
	lookEvery = 4
)

// epoch is when the times of busy begin.
var epoch = time.Now()

// activity is that of all tasks of this process.
var activity busy

// busy knows how long guests have been busy. It may be used by several goroutines.
type busy struct {
	maySpin     bool         // whether there are processors for it
	since, last atomic.Int64 // when it began to be busy, and was heard of: nanoseconds from epoch
}

// look is called by a task that is about to run.
func (b *busy) look(now time.Duration) {
	last := time.Duration(b.last.Load())
	if !b.maySpin || now-last < grain {
		return
	}
	if now-last > rest {
		b.since.Store(int64(now)) // before last, by which others see that there was no rest
	}
	b.last.Store(int64(now))
	switch {
	case now-last > rest:
		neverEnableFastPath = true
	case now-time.Duration(b.since.Load()) > spinAfter:
		neverEnableFastPath = false
	}
}
