// Package drain lets a server end without cutting off a request: it counts the requests that
// are being served and refuses new ones. It must never know what a request is.
package drain

import "sync"

// Gate counts the requests that are being served. Its zero value is open.
type Gate struct {
	mu     sync.Mutex
	inside int
	closed bool
	empty  chan struct{} // closed when the gate is closed and no request is inside; nil until Wait is called
}

// Enter reports whether a request may be served. Leave must be called at its end.
func (g *Gate) Enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.inside++
	return true
}

// Leave ends a request that has entered.
func (g *Gate) Leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inside--
	if g.closed && g.inside == 0 && g.empty != nil {
		close(g.empty)
		g.empty = nil
	}
}

// Close refuses all later requests.
func (g *Gate) Close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
}

// Closed reports whether the gate refuses requests.
func (g *Gate) Closed() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.closed
}

// Wait closes the gate and blocks until all requests have left.
func (g *Gate) Wait() {
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
