package audit

import (
	"context"
	"sync"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/service/access"
)

// Note is an entry that is being made: who does something is known, and what comes
// of it is added by whoever knows it. All its methods may be called on nil, by what
// is done for nobody who is written down.
type Note struct {
	mu sync.Mutex
	e  api.AuditEntry
	// dropped notes are not written.
	dropped bool
}

type key struct{}

// Begin returns a context in which a note is made of what the caller in ctx does.
func Begin(ctx context.Context, action, request string) (context.Context, *Note) {
	c := access.From(ctx)
	n := &Note{e: api.AuditEntry{Action: action, Request: request, Tenant: c.Tenant, Token: c.Token, By: c.By}}
	if c.Owner {
		uid := c.UID
		n.e.UID = &uid
	}
	return context.WithValue(ctx, key{}, n), n
}

// Of returns the note that is being made, or nil.
func Of(ctx context.Context) *Note {
	n, _ := ctx.Value(key{}).(*Note)
	return n
}

// Object says what it is done to, if that was not said before: the first thing that
// was looked up.
func (n *Note) Object(id string) {
	if n == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.e.Object == "" {
		n.e.Object = id
	}
}

// Of says whose the thing is, if it is another tenant's than the caller's.
func (n *Note) Of(tenant string) {
	if n == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.e.Of == "" {
		n.e.Of = tenant
	}
}

// Set adds what came of it.
func (n *Note) Set(change func(*api.AuditDetails)) {
	if n == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.e.Details == nil {
		n.e.Details = &api.AuditDetails{}
	}
	change(n.e.Details)
}

// Failed says how it failed. The first word counts.
func (n *Note) Failed(code api.Code) {
	if n == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.e.Result == "" {
		n.e.Result = string(code)
	}
}

// Drop says that nothing was done after all.
func (n *Note) Drop() {
	if n == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.dropped = true
}

// Dropped reports whether there is nothing to write.
func (n *Note) Dropped() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.dropped
}

// Entry returns what is to be written.
func (n *Note) Entry() api.AuditEntry {
	n.mu.Lock()
	defer n.mu.Unlock()
	e := n.e
	if e.Result == "" {
		e.Result = "ok"
	}
	e.Time = time.Now().UTC()
	return e
}
