package manager

import (
	"context"
	"fmt"
	"time"

	"ramet.dev/ramet/internal/httpapi"
	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/wire"
)

// Ports implements httpapi.PortService.
func (m *Manager) Ports(ctx context.Context, ref string) ([]sandbox.Port, error) {
	b, err := m.resolve(ctx, ref)
	if err != nil {
		return nil, err
	}
	sentry, done, err := m.use(ctx, b, sandbox.StateRunning, sandbox.StatePaused)
	if err != nil {
		return nil, err
	}
	defer done()
	list := []sandbox.Port{}
	if _, err := sentry.Call(ctx, &wire.Call{Op: wire.OpPorts}, &list); err != nil {
		return nil, fmt.Errorf("list ports: %w", m.explain(b, sentry, err))
	}
	return list, nil
}

// DialPort implements httpapi.PortService.
func (m *Manager) DialPort(ctx context.Context, ref string, port uint16, wait time.Duration) (httpapi.PortConn, error) {
	b, err := m.resolve(ctx, ref)
	if err != nil {
		return nil, err
	}
	sentry, done, err := m.use(ctx, b, sandbox.StateRunning)
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
