package audit

import (
	"context"
	"sync"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/service/access"
)

// Note is an entry that is being made. Its caller and its action are known from the
// beginning; the packages that do the work add the result. All its methods may be called on
// nil: work that is not audited has no note.
type Note struct {
	mu sync.Mutex
	e  api.AuditEntry
	// dropped notes are not written.
	dropped bool
}

type key struct{}

// Begin returns a context with a new note about an action of the caller in ctx.
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

// Object sets the id of the thing that the action changes, unless it is set: the first
// thing that is looked up counts.
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

// Of sets the tenant of the thing, if it is another tenant than the caller's.
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

// Set changes the details of the result.
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

// Failed sets the code of the failure. The first call counts.
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

// Drop has no entry written: nothing was changed.
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

// Entry returns the entry to write.
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
