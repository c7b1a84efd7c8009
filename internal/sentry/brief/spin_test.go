package brief

import (
	"testing"
	"time"
)

// TestSpinning checks when threads may spin, by the times at which tasks are heard of.
func TestSpinning(t *testing.T) {
	before := neverEnableFastPath
	t.Cleanup(func() { neverEnableFastPath = before })
	const ms = time.Millisecond
	for name, c := range map[string]struct {
		from, to, every time.Duration
		spins           bool
	}{
		"a command":             {100 * ms, 100*ms + spinAfter/2, ms / 10, false},
		"just not long enough":  {100 * ms, 100*ms + spinAfter, ms / 10, false},
		"long enough":           {100 * ms, 101*ms + spinAfter, ms / 10, true},
		"heard of all the time": {100 * ms, 101*ms + spinAfter, ms / 1000, true},
		"short rests":           {100 * ms, 150 * ms, rest, true},
		"rests":                 {100 * ms, 150 * ms, rest + ms/100, false},
	} {
		b := &busy{maySpin: true}
		neverEnableFastPath = false // as the work before left it
		for now := c.from; now <= c.to; now += c.every {
			b.look(now)
		}
		if spins := !neverEnableFastPath; spins != c.spins {
			t.Errorf("%s: it spins: %v", name, spins)
		}
		if b.look(c.to + 50*ms); !neverEnableFastPath {
			t.Errorf("%s: it spins after a rest", name)
		}
	}
	neverEnableFastPath = true
	b := &busy{}
	for now := 100 * ms; now < 200*ms; now += ms {
		b.look(now)
	}
	if !neverEnableFastPath {
		t.Error("it spins on one processor")
	}
}
