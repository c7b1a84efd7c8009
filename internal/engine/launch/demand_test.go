package launch

import (
	"testing"
	"time"
)

func TestDemand(t *testing.T) {
	start := time.Unix(1_000_000, 0)
	d := demand{size: PoolSize{Least: 4, Most: 50}}
	check := func(at time.Time, want int, holds time.Duration) {
		t.Helper()
		if n, h := d.want(at); n != want || h != holds {
			t.Errorf("at %v: %d for %v, want %d for %v", at.Sub(start), n, h, want, holds)
		}
	}
	burst := func(at time.Time, n int) {
		for range n {
			d.note(at)
		}
	}
	check(start, 4, 0)
	burst(start, 3)
	check(start, 4, 0)
	burst(start.Add(burstGap), 17) // one burst of 20
	check(start.Add(burstGap), 20, burstMemory)
	for n := range 5 { // as many, one after the other
		burst(start.Add(time.Duration(3+2*n)*burstGap), 19)
		check(start.Add(time.Duration(3+2*n)*burstGap), 20, burstMemory-time.Duration(2+2*n)*burstGap)
	}
	burst(start.Add(time.Minute), 10) // a smaller one changes nothing
	check(start.Add(time.Minute), 20, burstMemory+burstGap-time.Minute)
	burst(start.Add(2*time.Minute), 100)
	check(start.Add(2*time.Minute), 50, burstMemory)
	burst(start.Add(3*time.Minute), 30)
	after := start.Add(2*time.Minute + burstMemory)
	check(after, 4, 0)
	burst(after.Add(time.Second), 1)
	check(after.Add(time.Second), 4, 0)
	burst(after.Add(time.Second+burstGap), 7)
	check(after.Add(time.Second+burstGap), 8, burstMemory)
}

func TestDemandIsFixed(t *testing.T) {
	d := demand{size: PoolSize{Least: 4, Most: 4}}
	for range 100 {
		d.note(time.Unix(1, 0))
	}
	if n, _ := d.want(time.Unix(1, 0)); n != 4 {
		t.Errorf("%d", n)
	}
}
