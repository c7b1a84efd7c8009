package node

import (
	"context"
	"fmt"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/service"
)

// Ports implements service.Ports.
func (m *Node) Ports(ctx context.Context, ref string) ([]api.Port, error) {
	b, err := m.resolve(ctx, ref)
	if err != nil {
		return nil, err
	}
	sentry, done, err := m.use(ctx, b, api.StateRunning, api.StatePaused)
	if err != nil {
		return nil, err
	}
	defer done()
	list := []api.Port{}
	if _, err := sentry.Call(ctx, &wire.Call{Op: wire.OpPorts}, &list); err != nil {
		return nil, fmt.Errorf("list ports: %w", m.explain(b, sentry, err))
	}
	return list, nil
}

// DialPort implements service.Ports.
func (m *Node) DialPort(ctx context.Context, ref string, port uint16, wait time.Duration) (service.PortConn, error) {
	b, err := m.resolve(ctx, ref)
	if err != nil {
		return nil, err
	}
	sentry, done, err := m.use(ctx, b, api.StateRunning)
	if err != nil {
		return nil, err
	}
	defer done()
	c, err := sentry.Dial(ctx, port, wait)
	if err != nil {
		return nil, m.explain(b, sentry, err)
	}
	return activeConn{c, m, b}, nil
}
