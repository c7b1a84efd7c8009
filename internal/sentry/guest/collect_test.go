package guest

import (
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
		c.settle()
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
