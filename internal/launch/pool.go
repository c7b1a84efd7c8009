package launch

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// refillDelay is how long the pool stays quiet after a sentry was taken before
// it starts new ones: whoever takes one is about to need the processors.
const refillDelay = 150 * time.Millisecond

// Pool keeps blank sentries ready. It is safe for concurrent use.
type Pool struct {
	launcher *Launcher
	log      *slog.Logger
	size     int

	mu    sync.Mutex
	ready []*Sentry // guarded by mu
	taken time.Time // guarded by mu; when one was last taken

	wake   chan struct{}
	cancel context.CancelFunc
	filler sync.WaitGroup
}

// NewPool starts filling a pool of size sentries in the background. Size 0 is a
// pool that starts each sentry when it is asked for.
func NewPool(launcher *Launcher, size int, log *slog.Logger) *Pool {
	ctx, cancel := context.WithCancel(context.Background())
	p := &Pool{launcher: launcher, log: log, size: size, wake: make(chan struct{}, 1), cancel: cancel}
	p.filler.Add(1)
	go func() {
		defer p.filler.Done()
		p.fill(ctx)
	}()
	return p
}

// Close stops filling and ends the sentries that nobody took.
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
	select {
	case p.wake <- struct{}{}:
	default:
	}
	for len(p.ready) > 0 {
		s := p.ready[0]
		p.ready = p.ready[1:]
		select {
		case <-s.Done():
			s.Kill() // somebody killed it: collect what it left
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
		wait, full := p.due()
		switch {
		case full:
			select {
			case <-p.wake:
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

// due returns how long to wait before the next start, and whether none is
// needed.
func (p *Pool) due() (wait time.Duration, full bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.ready) >= p.size {
		return 0, true
	}
	return time.Until(p.taken.Add(refillDelay)), false
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
		// Get reports the error to whoever needs a sentry; here it only
		// makes the pool pause.
		p.log.Warn("start a pooled sentry", "error", err)
		p.taken = time.Now().Add(time.Second)
		return true
	}
	p.ready = append(p.ready, s)
	return true
}
