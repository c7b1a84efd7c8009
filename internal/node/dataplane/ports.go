package dataplane

import (
	"context"
	"fmt"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/service"
)

// ports lists ports and connects to them.
type ports struct{ base }

// Ports implements service.Ports.
func (p ports) Ports(ctx context.Context, ref string) ([]api.Port, error) {
	b, err := p.sandboxes.Find(ctx, ref)
	if err != nil {
		return nil, err
	}
	sentry, release, err := b.Acquire(ctx, api.StateRunning, api.StatePaused)
	if err != nil {
		return nil, err
	}
	defer release()
	list := []api.Port{}
	if _, err := sentry.Call(ctx, &wire.Call{Op: wire.OpPorts}, &list); err != nil {
		return nil, fmt.Errorf("list ports: %w", b.Explain(sentry, err))
	}
	return list, nil
}

// DialPort implements service.Ports.
func (p ports) DialPort(ctx context.Context, ref string, port uint16, wait time.Duration) (service.PortConn, error) {
	b, err := p.sandboxes.Find(ctx, ref)
	if err != nil {
		return nil, err
	}
	sentry, release, err := b.Acquire(ctx, api.StateRunning)
	if err != nil {
		return nil, err
	}
	defer release()
	c, err := sentry.Dial(ctx, port, wait)
	if err != nil {
		return nil, b.Explain(sentry, err)
	}
	return touchingConn{c, b}, nil
}

// touchingConn records the traffic of a connection as use of a sandbox. A connection
// without traffic is no use.
type touchingConn struct {
	service.PortConn
	b Sandbox
}

// Read implements service.PortConn.
func (c touchingConn) Read(p []byte) (int, error) {
	return touchingReader{c.PortConn, c.b}.Read(p)
}

// Write implements service.PortConn.
func (c touchingConn) Write(p []byte) (int, error) {
	c.b.Touch()
	return c.PortConn.Write(p)
}
