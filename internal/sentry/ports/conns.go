package ports

import (
	"context"
	"slices"
	"sync"

	"gvisor.dev/gvisor/pkg/state"
	"gvisor.dev/gvisor/pkg/tcpip"
)

// ConnsKey names the connections in the kernel's saved state.
const ConnsKey = "ramet.conns"

// Conns are the sandbox's ends of connections from outside. They are saved with the kernel
// so that a child, in which they have no other end, can reset them.
type Conns struct {
	mu   sync.Mutex // not saved
	list []tcpip.Endpoint
}

// add enters an end, and reports whether there is room for one more. The caller has begun
// its access to the gate before it made the end: so every save knows of it.
func (c *Conns) add(ep tcpip.Endpoint) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.list) == maxConns {
		return false
	}
	c.list = append(c.list, ep)
	return true
}

// remove forgets an end, which the caller closes.
func (c *Conns) remove(ep tcpip.Endpoint) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list = slices.DeleteFunc(c.list, func(o tcpip.Endpoint) bool { return o == ep })
}

// DropInherited resets the connections of the parent, which processes see. Nothing runs yet.
func (ps *Ports) DropInherited() {
	for _, ep := range slices.Clone(ps.conns.list) {
		ps.conns.remove(ep)
		ep.Abort()
		ep.Close()
	}
}

// The methods below are what gVisor's state package asks of saved types.

// StateTypeName implements state.Type.
func (*Conns) StateTypeName() string { return "ramet.dev/ramet/internal/sentry/ports.Conns" }

// StateFields implements state.Type.
func (*Conns) StateFields() []string { return []string{"list"} }

// StateSave implements state.SaverLoader.
func (c *Conns) StateSave(sink state.Sink) { sink.Save(0, &c.list) }

// StateLoad implements state.SaverLoader.
func (c *Conns) StateLoad(_ context.Context, src state.Source) { src.Load(0, &c.list) }

func init() { state.Register((*Conns)(nil)) }
