package control

import (
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/api"
)

// order keeps a change that was told early, and comes late, from being put in force in place of one that
// was told after it: a daemon whose call was not answered tells the gateway once more, and a gateway that
// was stopped answers the calls that have come meanwhile in any order. It is safe for concurrent use.
type order struct {
	mu   sync.Mutex // held while a change is made
	last map[string]int64
}

// errOvertaken says that a change is not made because a later one was.
var errOvertaken = api.Errorf(api.CodeConflict, "a later change has come before this one")

// apply makes a change of what key names, unless a later one was made. Without a number it is made.
func (o *order) apply(key string, number int64, change func() error) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if number > 0 && number < o.last[key] {
		return errOvertaken
	}
	if o.last == nil {
		o.last = map[string]int64{}
	}
	o.last[key] = max(number, o.last[key])
	return change()
}

// forget is called when what key names is gone.
func (o *order) forget(key string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.last, key)
}

// lastChange is the number of the last change that this process has told.
var lastChange atomic.Int64

// nextChange returns a number that is larger than those before, also those of earlier daemons: it is the
// time since the host was booted.
func nextChange() int64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) // it fails only for a clock that there is not
	for {
		was := lastChange.Load()
		next := max(ts.Nano(), was+1)
		if lastChange.CompareAndSwap(was, next) {
			return next
		}
	}
}
