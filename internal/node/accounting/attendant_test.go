package accounting

import (
	"context"
	"testing"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/node/meter"
	"ramet.dev/ramet/internal/node/nodetest"
	"ramet.dev/ramet/internal/node/sandboxes"
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
	clock, figures := timertest.New(time.Now()), told{}
	p := nodetest.New(t, nodetest.Options{Clock: clock})
	b := p.Add(t, nodetest.Answer)
	m := attendantOf(p, nil, figures)
	b.Touch(clock.Now())
	look := func(seconds float64) int {
		t.Helper()
		m.reportCosts(b, b.Sentry(), seconds, true)
		return len(figures[meter.IdleCPU])
	}
	look(1)
	clock.Advance(costAfter)
	if look(2) != 0 {
		t.Error("it was in use, or just before")
	}
	last := m.looked[b]
	last.at = last.at.Add(-time.Minute) // of the machine's clock
	m.looked[b] = last
	if look(5) != 1 {
		t.Fatal("nobody has used it, and that is not told")
	}
	if got := figures[meter.IdleCPU][0]; got > 3.0/60 || got < 3.0/120 {
		t.Errorf("3 s in a minute is a share of %v", got)
	}
	if b.BeginUse(clock.Now(), []api.State{api.StateRunning}) == nil {
		t.Fatal("it cannot be used")
	}
	if look(6) != 1 {
		t.Error("it is in use")
	}
	b.EndUse(clock.Now())
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
	if look(8.5) != 3 || figures[meter.IdleCPU][2] != 0 {
		t.Errorf("a process of it has ended: %v", figures[meter.IdleCPU])
	}
	if len(figures[meter.ChildCPU]) != 0 {
		t.Error("it is no child")
	}
}

// TestWhatChildrenCost looks at a child whose processes are those of this test.
func TestWhatChildrenCost(t *testing.T) {
	clock, figures := timertest.New(time.Now()), told{}
	p := nodetest.New(t, nodetest.Options{Clock: clock})
	b := p.Add(t, nodetest.Answer)
	m := attendantOf(p, nil, figures)
	b.Birth.Mark(clock.Now())
	for i, ask := range []bool{true, false} {
		if i > 0 {
			b.Birth.Mark(clock.Now())
		}
		if m.reportCosts(b, b.Sentry(), 1, ask) {
			t.Error("it is too young")
		}
		clock.Advance(costAfter)
		for again := range 2 {
			if asked := m.reportCosts(b, b.Sentry(), 2, ask); asked != (ask && again == 0) {
				t.Errorf("the host was asked: %v", asked)
			}
		}
	}
	if got := figures[meter.ChildCPU]; len(got) != 1 || got[0] != 2 {
		t.Errorf("processor time is %v", got)
	}
	if got := figures[meter.ChildPrivate]; len(got) != 1 || got[0] <= 0 {
		t.Errorf("memory is %v", got)
	}
}

// TestBusySandboxesAreNotWaitedFor has something done to a sandbox that does not end,
// as a fork whose children's hooks hang.
func TestBusySandboxesAreNotWaitedFor(t *testing.T) {
	p := nodetest.New(t, nodetest.Options{})
	b := p.Add(t, nil)
	nodetest.SpendAll(t, p.Ledger, b)
	paused := make(pauser, 1)
	a := attendantOf(p, paused, nil)
	b.Op.RLock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		a.stopSpenders()
	}()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Error("it is waited for, and the sandboxes of others are not looked at")
	}
	b.Op.RUnlock()
	<-done
	a.stopSpenders()
	p.Chores.Wait()
	select {
	case id := <-paused:
		if id != b.ID {
			t.Errorf("%s was paused", id)
		}
	default:
		t.Error("it runs, and its processor time is used up")
	}
}

// pauser gets the id of each sandbox that is paused.
type pauser chan string

func (p pauser) SetPaused(_ context.Context, b *sandboxes.Instance, pause bool) error {
	if pause {
		p <- b.ID
	}
	return nil
}

// attendantOf returns an attendant for the sandboxes of p.
func attendantOf(p *nodetest.Parts, by Pauser, o meter.Observer) *Attendant {
	return NewAttendant(Config{
		Books: NewBooks(p.Ledger, p.Sandboxes, p.Snapshots, p.MemFiles, p.Log), Admission: p.Admission, Pauser: by,
		Chores: p.Chores, Audit: nodetest.Audit{}, Clock: p.Clock, Meter: meter.Meter{Observer: o}, Log: p.Log,
	})
}
