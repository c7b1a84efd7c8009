package timer_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"ramet.dev/ramet/internal/node/timer"
	"ramet.dev/ramet/internal/node/timer/timertest"
)

// start runs the alarms of a clock that stands still, and returns what rings.
func start(t *testing.T) (*timertest.Clock, *timer.Queue, chan string) {
	clock := timertest.New(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	a, rung := timer.New(clock), make(chan string)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		a.Run(ctx, func(id string) {
			select {
			case rung <- id:
			case <-ctx.Done():
			}
		})
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return clock, a, rung
}

func TestAlarmsRingInOrder(t *testing.T) {
	clock, a, rung := start(t)
	now := clock.Now()
	a.Set("second", now.Add(2*time.Second))
	a.Set("third", now.Add(3*time.Second))
	a.Set("first", now.Add(time.Second))
	a.Set("moved", now.Add(time.Second))
	a.Set("moved", now.Add(4*time.Second))
	a.Set("cleared", now.Add(2*time.Second))
	a.Clear("cleared")
	clock.Advance(time.Hour)
	got := []string{<-rung, <-rung, <-rung, <-rung}
	if want := []string{"first", "second", "third", "moved"}; !slices.Equal(got, want) {
		t.Errorf("rang %v, not %v", got, want)
	}
}

func TestAlarmWaitsForItsTime(t *testing.T) {
	clock, a, rung := start(t)
	a.Set("far", clock.Now().Add(time.Hour))
	a.Set("near", clock.Now().Add(time.Minute))
	clock.Advance(time.Minute)
	if id := <-rung; id != "near" {
		t.Errorf("%s rang", id)
	}
	a.Set("past", clock.Now().Add(-time.Second)) // it is not lost, and "far" does not ring before it
	if id := <-rung; id != "past" {
		t.Errorf("%s rang", id)
	}
	a.Clear("unknown")
	clock.Advance(time.Hour)
	if id := <-rung; id != "far" {
		t.Errorf("%s rang", id)
	}
}

func TestSystemClock(t *testing.T) {
	came, stop := timer.System{}.After(time.Millisecond)
	defer stop()
	if at := <-came; time.Since(at) < 0 || (timer.System{}).Now().Before(at) {
		t.Errorf("it was %v", at)
	}
}
