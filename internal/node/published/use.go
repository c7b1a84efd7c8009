package published

import (
	"sync/atomic"
	"time"

	"ramet.dev/ramet/api"
)

// tellEvery is how often it is told that requests to a port lacked its token. What is counted meanwhile
// is told with the next one: whoever sends many fills neither the events nor the audit.
const tellEvery = time.Minute

// use counts the use of one published port, or of all.
type use struct {
	accepted, refused atomic.Int64
	last              atomic.Int64 // when a connection was accepted, in nanoseconds of Unix
}

func (u *use) accept() {
	u.accepted.Add(1)
	u.last.Store(time.Now().UnixNano())
}

// Usage returns what there is of published ports, and how they were used since the daemon started.
func (p *Publisher) Usage() (u api.PublishedUsage) {
	u.Accepted, u.Refused = p.use.accepted.Load(), p.use.refused.Load()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, g := range p.groups {
		u.Ports += len(g.endpoints)
		for _, e := range g.endpoints {
			e.mu.Lock()
			u.Connections += len(e.open)
			e.mu.Unlock()
		}
	}
	return u
}

// refuse counts a request without the token, and tells of it if it is time.
func (e *endpoint) refuse() {
	p := e.publisher
	e.use.refused.Add(1)
	p.use.refused.Add(1)
	e.mu.Lock()
	e.untold++
	now, n := time.Now(), e.untold
	due := e.told.IsZero() || now.Sub(e.told) >= tellEvery
	if due {
		e.told, e.untold = now, 0
	}
	e.mu.Unlock()
	if due {
		p.tell(e, api.EventPortRefused, n)
		p.cfg.Audit(api.AuditEntry{
			Time: now.UTC(), Action: "refuse-port", Object: e.group.id, Result: string(api.CodeForbidden),
			Details: &api.AuditDetails{Port: int(e.record.Port), Listen: e.record.Listen.String(), Refused: n},
		})
	}
}

// tell publishes an event about a port.
func (p *Publisher) tell(e *endpoint, kind api.EventKind, refused int) {
	p.cfg.Tell(e.group.id, kind, api.Event{Port: int(e.record.Port), Listen: e.record.Listen.String(), Refused: refused})
}

// audited returns the details of the audit about a port.
func audited(e *endpoint) func(*api.AuditDetails) {
	return func(d *api.AuditDetails) { d.Port, d.Listen = int(e.record.Port), e.record.Listen.String() }
}
