package node

import (
	"context"
	"testing"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/node/timer/timertest"
)

// told keeps figures.
type told map[string][]float64

func (told) Begin(ctx context.Context, _ string) (context.Context, func(error)) {
	return ctx, func(error) {}
}

func (o told) Metric(name string, value float64) { o[name] = append(o[name], value) }

// TestWhatIdleSandboxesTake looks at a sandbox that is used now and then.
func TestWhatIdleSandboxesTake(t *testing.T) {
	m, b := nodeOf(t, func(*wire.Call) (any, error) { return struct{}{}, nil })
	clock, figures := timertest.New(time.Now()), told{}
	m.clock, m.cfg.Observer = clock, figures
	m.touch(b)
	look := func(seconds float64) int {
		t.Helper()
		m.reportCosts(b, b.sentry, seconds, true)
		return len(figures[MetricIdleCPU])
	}
	look(1)
	clock.Advance(costAfter)
	if look(2) != 0 {
		t.Error("it was in use, or just before")
	}
	b.looked.at = b.looked.at.Add(-time.Minute) // of the machine's clock
	if look(5) != 1 {
		t.Fatal("nobody has used it, and that is not told")
	}
	if got := figures[MetricIdleCPU][0]; got > 3.0/60 || got < 3.0/120 {
		t.Errorf("3 s in a minute is a share of %v", got)
	}
	if _, done, err := m.use(t.Context(), b, api.StateRunning); err != nil {
		t.Fatal(err)
	} else if look(6) != 1 {
		t.Error("it is in use")
	} else {
		done()
	}
	if look(7) != 1 {
		t.Error("it was in use since the last look")
	}
	clock.Advance(costAfter)
	if look(8) != 1 {
		t.Error("it had been used just before the last look")
	}
	if look(9) != 2 {
		t.Error("nobody has used it again")
	}
	if look(8.5) != 3 || figures[MetricIdleCPU][2] != 0 {
		t.Errorf("a process of it has ended: %v", figures[MetricIdleCPU])
	}
	if len(figures[MetricChildCPU]) != 0 {
		t.Error("it is no child")
	}
}

// TestWhatChildrenCost looks at a child whose processes are those of this test.
func TestWhatChildrenCost(t *testing.T) {
	m, b := nodeOf(t, func(*wire.Call) (any, error) { return struct{}{}, nil })
	clock, figures := timertest.New(time.Now()), told{}
	m.clock, m.cfg.Observer, b.born = clock, figures, clock.Now()
	for i, ask := range []bool{true, false} {
		if i > 0 {
			b.born = clock.Now()
		}
		if m.reportCosts(b, b.sentry, 1, ask) {
			t.Error("it is too young")
		}
		clock.Advance(costAfter)
		for again := range 2 {
			if asked := m.reportCosts(b, b.sentry, 2, ask); asked != (ask && again == 0) {
				t.Errorf("the host was asked: %v", asked)
			}
		}
	}
	if got := figures[MetricChildCPU]; len(got) != 1 || got[0] != 2 {
		t.Errorf("processor time is %v", got)
	}
	if got := figures[MetricChildPrivate]; len(got) != 1 || got[0] <= 0 {
		t.Errorf("memory is %v", got)
	}
}
