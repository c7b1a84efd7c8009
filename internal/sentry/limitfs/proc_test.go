package limitfs

import (
	"math"
	"testing"
	"time"
)

// TestLoadAverages has two processors busy for five minutes, then none, and asks at different times in between.
func TestLoadAverages(t *testing.T) {
	start := time.Now()
	for _, step := range []time.Duration{time.Second, time.Minute, 5 * time.Minute} {
		var a loadAverages
		if got := a.add(start, time.Hour); got != [3]float64{} { // of the parent
			t.Fatalf("at first the load is %v", got)
		}
		var got [3]float64
		for passed := step; passed <= 5*time.Minute; passed += step {
			got = a.add(start.Add(passed), time.Hour+2*passed)
		}
		want := [3]float64{2 * (1 - math.Exp(-5)), 2 * (1 - math.Exp(-1)), 2 * (1 - math.Exp(-5./15))}
		for i := range want {
			if math.Abs(got[i]-want[i]) > 1e-6 {
				t.Errorf("asked each %v, the load is %v, not %v", step, got, want)
			}
		}
		idle := a.add(start.Add(6*time.Minute), time.Hour+10*time.Minute)
		if want := got[0] / math.E; math.Abs(idle[0]-want) > 1e-6 {
			t.Errorf("after an idle minute the load is %v, not %v", idle[0], want)
		}
		if again := a.add(start.Add(6*time.Minute), time.Hour+11*time.Minute); again != idle {
			t.Errorf("in no time the load becomes %v", again)
		}
	}
}
