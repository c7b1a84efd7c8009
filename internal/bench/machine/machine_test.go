package machine

import (
	"math"
	"runtime"
	"testing"
	"time"
)

func TestThisMachine(t *testing.T) {
	m, err := This("v1")
	if err != nil {
		t.Fatal(err)
	}
	if m.CPUs < 1 || m.MemoryMiB < 1 || m.Kernel == "" || m.Ramet != "v1" || m.LoadBefore < 0 || math.IsNaN(m.LoadBefore) {
		t.Errorf("%+v makes no sense", m)
	}
}

func TestOthers(t *testing.T) {
	start := time.Now()
	before := Usage{at: start, busy: time.Hour, ours: time.Minute}
	second := time.Second * time.Duration(runtime.NumCPU()) // of all processors
	for _, tc := range []struct {
		busy, ours time.Duration
		want       float64
	}{{0, 0, 0}, {10 * second, 10 * second, 0}, {10 * second, 5 * second, 50}, {10 * second, 11 * second, 0}} {
		after := Usage{at: start.Add(10 * time.Second), busy: before.busy + tc.busy, ours: before.ours + tc.ours}
		if got := after.OthersSince(before); got != tc.want {
			t.Errorf("%+v: %v", tc, got)
		}
	}
}
