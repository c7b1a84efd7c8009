package rest

import "sync"

// gate counts the requests that are being served, and lets none in any more when
// the daemon is about to end.
type gate struct {
	mu     sync.Mutex
	inside int
	closed bool
	empty  chan struct{} // closed when it is closed and nobody is inside; nil before that is asked for
}

// enter reports whether a request may be served. Then leave is called at its end.
func (g *gate) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.inside++
	return true
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inside--
	g.settle()
}

// settle tells those who wait if there is nothing left to wait for.
func (g *gate) settle() {
	if g.closed && g.inside == 0 && g.empty != nil {
		close(g.empty)
		g.empty = nil
	}
}

func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
}

func (g *gate) isClosed() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.closed
}

// wait closes the gate and blocks until nobody is inside.
func (g *gate) wait() {
	g.mu.Lock()
	g.closed = true
	if g.inside == 0 {
		g.mu.Unlock()
		return
	}
	if g.empty == nil {
		g.empty = make(chan struct{})
	}
	empty := g.empty
	g.mu.Unlock()
	<-empty
}
