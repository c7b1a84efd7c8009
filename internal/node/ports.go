package node

import (
	"context"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/node/published"
	"ramet.dev/ramet/internal/service/access"
)

// maxPublishedConns bounds the open connections to published ports. Each has two buffers of
// 64 KiB and up to descriptorsOfConn descriptors.
const (
	maxPublishedConns = 2048
	descriptorsOfConn = 4
)

// openPublisher returns the publisher of the ports of the node's sandboxes.
func (m *Node) openPublisher(ctx context.Context) (*published.Publisher, error) {
	conns := uint64(maxPublishedConns)
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err == nil {
		conns = min(conns, files.Cur/(2*descriptorsOfConn)) // half of them are for sandboxes
	}
	return published.Open(ctx, published.Config{
		Store: m.cfg.Store, MaxOpen: int(conns), Guard: m.cfg.PortGuard, Log: m.cfg.Log,
		Find: func(ctx context.Context, ref string) (string, error) {
			b, err := m.sandboxes.Find(ctx, ref)
			if err != nil {
				return "", err
			}
			return b.ID, nil
		},
		Audit: m.cfg.Audit.AppendAudit,
		Tell: func(id string, kind api.EventKind, e api.Event) {
			if b := m.sandboxes.Get(id); b != nil {
				m.events.Publish(kind, b, e)
			}
		},
		Exists: func(id string) bool { return m.sandboxes.Get(id) != nil },
		Dial: func(ctx context.Context, id string, port uint16) (published.Conn, error) {
			b := m.sandboxes.Get(id)
			if b == nil {
				return nil, api.NotFound("sandbox", id)
			}
			caller := access.Caller{Tenant: b.Tenant(), Scope: api.ScopeExec, Sandbox: id}
			return m.plane.DialPort(access.With(ctx, caller), id, port, 0)
		},
	})
}
