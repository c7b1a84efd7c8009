package cost

import (
	"context"
	"testing"
	"time"

	"ramet.dev/ramet/internal/bench/speed"
)

func TestSettle(t *testing.T) {
	// Busy for the first polls, then quiet.
	used, polls := time.Duration(0), 0
	m := Meter{Speed: &speed.Meter{}, Pace: Pace{Poll: time.Millisecond, Quiet: 20 * time.Millisecond, Most: time.Hour}, Trees: func() (time.Duration, error) {
		polls++
		if polls < 4 {
			used += time.Second
		}
		return used, nil
	}}
	c, err := m.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if polls < 5 || c.CPU != used || c.Memory <= 0 || c.Work <= 0 {
		t.Errorf("%+v after %d polls", c, polls)
	}
	// A hundred sandboxes may tick over.
	ticking := Meter{Pace: Pace{Poll: time.Millisecond, Quiet: 5 * time.Millisecond, Most: time.Hour}, Trees: func() func() (time.Duration, error) {
		began := time.Now()
		return func() (time.Duration, error) { return time.Since(began) / 10, nil }
	}()}
	if err := ticking.Settle(t.Context(), 100); err != nil {
		t.Error(err)
	}
	// Never quiet: the wait ends all the same.
	m.Trees = func() (time.Duration, error) { used += time.Hour; return used, nil }
	m.Pace.Most = 5 * time.Millisecond
	if err := m.Settle(t.Context(), 0); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Settle(ctx, 0); err != context.Canceled {
		t.Errorf("cancelled: %v", err)
	}
}
