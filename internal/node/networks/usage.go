package networks

import (
	"context"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/network/control"
	"ramet.dev/ramet/internal/network/host"
)

// usageTimeout bounds how long a reader of metrics waits for a gateway that is being started.
const usageTimeout = time.Second

// Usage returns what the gateway has and did, nil while none runs, and how many have ended while
// sandboxes needed them.
func (n *Networks) Usage() (u *api.GatewayUsage, restarts int64) {
	restarts = n.host.Restarts()
	ctx, cancel := context.WithTimeout(context.Background(), usageTimeout)
	defer cancel()
	if !runs(ctx, n.host) {
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
	for _, t := range traffic(ctx, n.host) {
		u.Tenants = append(u.Tenants, api.TenantTraffic{
			Name: t.Name, Connections: t.Connections, BytesIn: t.BytesIn, BytesOut: t.BytesOut, Questions: t.Questions,
			RefusedConnections: t.Refused.Connections, RefusedQuestions: t.Refused.Questions,
		})
	}
	if at := st.Waiting.Oldest; !at.IsZero() {
		u.OldestHeld = max(0, time.Since(at))
	}
	return u, restarts
}

// runs reports whether there is a gateway, which is not started for who asks.
func runs(ctx context.Context, h *host.Host) bool {
	hello, err := h.Hello(ctx)
	return err == nil && hello.PID != 0
}

// traffic returns what the gateway says about tenants, nothing while there is none.
func traffic(ctx context.Context, h *host.Host) []control.TenantStats {
	ctx, cancel := context.WithTimeout(ctx, usageTimeout)
	defer cancel()
	if !runs(ctx, h) {
		return nil
	}
	list, err := h.Client().Tenants(ctx)
	if err != nil { // it has ended meanwhile
		return nil
	}
	return list
}
