package share

import (
	"context"
	"math"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"ramet.dev/ramet/internal/network/relay"
)

// Pace delays bytes to a rate that may change while flows wait. Its zero value delays nothing. It is
// safe for concurrent use.
type Pace struct{ now atomic.Pointer[tempo] }

// tempo is a rate that is in force.
type tempo struct {
	limit *rate.Limiter
	most  int           // bytes that are asked for at once
	over  chan struct{} // closed when another one is in force
}

const (
	// turnsPerSecond is how many turns there are in a second: flows that share a rate take turns, and
	// one with little to say waits for one turn of each other.
	turnsPerSecond = 50
	minTurn        = 4 << 10
)

// Set puts a rate in force, in megabits per second; 0 delays nothing.
func (p *Pace) Set(mbit int) {
	var next *tempo
	if mbit > 0 {
		bytes := float64(mbit) * 1e6 / 8
		most := min(max(int(bytes/turnsPerSecond), minTurn), relay.MaxWait)
		next = &tempo{limit: rate.NewLimiter(rate.Limit(bytes), relay.MaxWait), most: most, over: make(chan struct{})}
	}
	was := p.now.Load()
	if was == nil && next == nil || was != nil && next != nil && was.limit.Limit() == next.limit.Limit() {
		return // else what has passed would be forgotten
	}
	if p.now.Store(next); was != nil {
		close(was.over)
	}
}

// Most implements relay.Limiter.
func (p *Pace) Most() int {
	if t := p.now.Load(); t != nil {
		return t.most
	}
	return relay.MaxWait
}

// WaitN implements relay.Limiter.
func (p *Pace) WaitN(ctx context.Context, n int) error {
	for {
		t := p.now.Load()
		if t == nil {
			return nil
		}
		turn := t.limit.ReserveN(time.Now(), n)
		delay := turn.Delay()
		if delay <= 0 {
			return nil
		}
		late := time.NewTimer(delay)
		select {
		case <-late.C:
			return nil
		case <-ctx.Done():
			late.Stop()
			turn.Cancel()
			return context.Cause(ctx)
		case <-t.over:
			late.Stop()
		}
	}
}

// Paces are limiters that all have to let bytes pass.
type Paces []relay.Limiter

// Most implements relay.Limiter.
func (p Paces) Most() int {
	most := math.MaxInt
	for _, one := range p {
		most = min(most, one.Most())
	}
	return most
}

// WaitN implements relay.Limiter.
func (p Paces) WaitN(ctx context.Context, n int) error {
	for _, one := range p {
		if err := one.WaitN(ctx, n); err != nil {
			return err
		}
	}
	return nil
}
