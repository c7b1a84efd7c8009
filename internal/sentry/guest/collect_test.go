package guest

import (
	"math"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"time"
)

// collecting reports whether the process collects garbage, and how often it has.
func collecting(t *testing.T) (on bool, cycles uint64) {
	t.Helper()
	samples := []metrics.Sample{{Name: "/gc/gogc:percent"}, {Name: "/gc/cycles/total:gc-cycles"}}
	metrics.Read(samples)
	return samples[0].Value.Uint64() == gcPercent, samples[1].Value.Uint64()
}

// TestGarbageIsBounded looks at what a process may have before it settles.
func TestGarbageIsBounded(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(-1))
	for limit, most := range map[int64]int64{0: mostUnsettled, 100_000: mostUnsettled, 200: 100, 16: leastUnsettled} {
		unsettled(limit)
		if got := debug.SetMemoryLimit(-1); got != most<<20 {
			t.Errorf("with a limit of %d MiB it may have %d bytes", limit, got)
		}
	}
	c := &collector{}
	bound := debug.SetMemoryLimit(-1)
	resume := c.stop()
	if limit := debug.SetMemoryLimit(-1); limit != math.MaxInt64 {
		t.Errorf("in a freeze it is bound to %d bytes", limit)
	}
	if resume(); debug.SetMemoryLimit(-1) != bound {
		t.Error("after a freeze it is bound to something else than before")
	}
	c.settle(true)
	if limit := debug.SetMemoryLimit(-1); limit != math.MaxInt64 {
		t.Errorf("it has settled, and is bound to %d bytes", limit)
	}
}

// TestSettleInFreeze has a sandbox settle while it is being frozen: collections
// must stay off until the end of that.
func TestSettleInFreeze(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	c := &collector{}
	resume := c.stop()
	_, before := collecting(t)
	settled := make(chan struct{})
	go func() {
		defer close(settled)
		c.settle(true)
	}()
	select { // time enough for one that does not wait
	case <-settled:
	case <-time.After(100 * time.Millisecond):
	}
	if on, now := collecting(t); on || now != before {
		t.Errorf("in a freeze there were %d collections; more may follow: %v", now-before, on)
	}
	resume()
	<-settled
	if on, now := collecting(t); !on || now == before {
		t.Errorf("it has settled after %d collections; more may follow: %v", now-before, on)
	}
}
