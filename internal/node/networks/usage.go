package networks

import (
	"context"
	"time"

	"ramet.dev/ramet/api"
)

// usageTimeout bounds how long a reader of metrics waits for a gateway that is being started.
const usageTimeout = time.Second

// Usage returns what the gateway has and did, nil while none runs, and how many have ended while
// sandboxes needed them.
func (n *Networks) Usage() (u *api.GatewayUsage, restarts int64) {
	restarts = n.host.Restarts()
	ctx, cancel := context.WithTimeout(context.Background(), usageTimeout)
	defer cancel()
	if hello, err := n.host.Hello(ctx); err != nil || hello.PID == 0 {
		return nil, restarts
	}
	st, err := n.host.Client().Stats(ctx)
	if err != nil { // it has ended meanwhile
		return nil, restarts
	}
	u = &api.GatewayUsage{
		Sandboxes: st.Sandboxes, Flows: st.Flows, Questions: st.Questions, Requests: st.Requests, Dropped: st.Dropped, ProtocolErrors: st.ProtocolErrors,
		Decisions: map[api.NetworkVerdict]int64{api.NetworkAllowed: st.Allowed, api.NetworkDenied: st.Denied, api.NetworkHeld: st.Held},
		BytesIn:   st.BytesIn, BytesOut: st.BytesOut,
		Waiting: st.Waiting.Waiting, Unknown: st.Waiting.Unknown, HeldBytes: st.Waiting.Bytes,
	}
	if at := st.Waiting.Oldest; !at.IsZero() {
		u.OldestHeld = max(0, time.Since(at))
	}
	return u, restarts
}
