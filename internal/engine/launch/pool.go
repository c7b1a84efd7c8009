package launch

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// refillDelay is how long the pool stays quiet after a sentry was taken before
// it starts new ones: the taker of a sentry is about to need the processors.
const refillDelay = 150 * time.Millisecond

// Pool keeps blank sentries ready. It is safe for concurrent use.
type Pool struct {
	launcher *Launcher
	log      *slog.Logger

	mu     sync.Mutex
	ready  []*Sentry // guarded by mu
	taken  time.Time // guarded by mu; when a sentry was last taken
	demand demand    // guarded by mu

	wake   chan struct{}
	cancel context.CancelFunc
	filler sync.WaitGroup
}

// NewPool starts filling a pool in the background. A pool of size 0 starts each
// sentry when it is asked for.
func NewPool(launcher *Launcher, size PoolSize, log *slog.Logger) *Pool {
	ctx, cancel := context.WithCancel(context.Background())
	p := &Pool{launcher: launcher, log: log, demand: demand{size: size}, wake: make(chan struct{}, 1), cancel: cancel}
	p.filler.Add(1)
	go func() {
		defer p.filler.Done()
		p.fill(ctx)
	}()
	return p
}

// Close stops filling and ends the sentries in the pool.
func (p *Pool) Close() {
	p.cancel()
	p.filler.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.ready {
		s.Kill()
	}
	p.ready = nil
}

// Get returns a blank sentry that the caller owns: from the pool, or a new one.
func (p *Pool) Get(ctx context.Context) (*Sentry, error) {
	if s := p.take(); s != nil {
		return s, nil
	}
	return p.launcher.Start(ctx)
}

// take returns a sentry of the pool that is alive, or nil.
func (p *Pool) take() *Sentry {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken = time.Now()
	p.demand.note(p.taken)
	select {
	case p.wake <- struct{}{}:
	default:
	}
	for len(p.ready) > 0 {
		s := p.ready[0]
		p.ready = p.ready[1:]
		select {
		case <-s.Done():
			s.Kill() // it was killed: remove the files that it left
		default:
			return s
		}
	}
	return nil
}

// Ready returns how many sentries wait in the pool.
func (p *Pool) Ready() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.ready)
}

// fill runs until ctx is done.
func (p *Pool) fill(ctx context.Context) {
	for {
		wait, full, surplus := p.due()
		for _, s := range surplus {
			s.Kill()
		}
		switch {
		case full:
			var changes <-chan time.Time // never, without further requests
			if wait > 0 {
				changes = time.After(wait)
			}
			select {
			case <-p.wake:
			case <-changes:
			case <-ctx.Done():
				return
			}
		case wait > 0:
			select {
			case <-time.After(wait):
			case <-ctx.Done():
				return
			}
		default:
			if !p.addOne(ctx) {
				return
			}
		}
	}
}

// due returns how long to wait before the next start, or that the pool is full and for how
// long (0: for ever), and the sentries that are not needed any more.
func (p *Pool) due() (wait time.Duration, full bool, surplus []*Sentry) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	want, holds := p.demand.want(now)
	if len(p.ready) > want {
		surplus, p.ready = p.ready[want:], p.ready[:want:want]
	}
	if len(p.ready) == want {
		return holds, true, surplus
	}
	return p.taken.Add(refillDelay).Sub(now), false, nil
}

// addOne reports whether to go on.
func (p *Pool) addOne(ctx context.Context) bool {
	s, err := p.launcher.Start(ctx)
	if ctx.Err() != nil {
		if s != nil {
			s.Kill()
		}
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		// Get reports the error to a caller that needs a sentry; here it only
		// makes the pool pause.
		p.log.Warn("start a pooled sentry", "error", err)
		p.taken = time.Now().Add(time.Second)
		return true
	}
	p.ready = append(p.ready, s)
	return true
}
