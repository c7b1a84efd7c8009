package share

import (
	"context"
	"errors"
	"testing"
	"time"
)

// TestAPaceThatIsWaitedFor ends with the context, and with the rate.
func TestAPaceThatIsWaitedFor(t *testing.T) {
	var p Pace
	p.Set(1)
	ctx, cancel := context.WithCancelCause(t.Context())
	if err := p.WaitN(ctx, 256<<10); err != nil {
		t.Fatal(err)
	}
	gone := errors.New("gone")
	cancel(gone)
	if err := p.WaitN(ctx, 256<<10); !errors.Is(err, gone) { // two seconds
		t.Errorf("it ended with %v", err)
	}
	done := make(chan error)
	go func() { done <- p.WaitN(t.Context(), 256<<10) }()
	p.Set(0)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestAMeterTellsWhatWasLately and forgets what was before.
func TestAMeterTellsWhatWasLately(t *testing.T) {
	var m meter
	for second := range 10 {
		m.add(100, started.Add(time.Duration(second)*time.Second))
	}
	for second, want := range map[int]float64{9: 100, 10: 100, 12: 60, 14: 20, 15: 0, 1000: 0} {
		if total, per := m.read(started.Add(time.Duration(second) * time.Second)); total != 1000 || per != want {
			t.Errorf("after %d seconds: %d, %v per second", second, total, per)
		}
	}
}
