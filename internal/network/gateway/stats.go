package gateway

import "sync/atomic"

// counters are those of all sandboxes together.
type counters struct {
	allowed, denied, held, requests, questions, dropped, protocolErrors, bytesIn, bytesOut atomic.Int64
}

// Stats are numbers about the gateway.
type Stats struct {
	Sandboxes int `json:"sandboxes"`
	// Flows is how many are open.
	Flows     int   `json:"flows"`
	Allowed   int64 `json:"allowed"`
	Denied    int64 `json:"denied"`
	Questions int64 `json:"questions"`
	// Requests is how many requests of HTTP were looked at, and Held how many of them were held.
	Requests int64 `json:"requests"`
	Held     int64 `json:"held"`
	// Dropped is how many messages were lost because a sandbox sent too many, or were none.
	Dropped        int64 `json:"dropped"`
	ProtocolErrors int64 `json:"protocol_errors"`
	// BytesIn and BytesOut are of flows that have ended, to and from sandboxes.
	BytesIn  int64 `json:"bytes_in"`
	BytesOut int64 `json:"bytes_out"`
}

// Stats returns the numbers as they are.
func (g *Gateway) Stats() Stats {
	c := &g.counters
	st := Stats{
		Allowed: c.allowed.Load(), Denied: c.denied.Load(), Questions: c.questions.Load(), Requests: c.requests.Load(), Held: c.held.Load(), Dropped: c.dropped.Load(),
		ProtocolErrors: c.protocolErrors.Load(), BytesIn: c.bytesIn.Load(), BytesOut: c.bytesOut.Load(),
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	st.Sandboxes = len(g.sandboxes)
	for _, s := range g.sandboxes {
		s.mu.Lock()
		st.Flows += len(s.open)
		s.mu.Unlock()
	}
	return st
}
