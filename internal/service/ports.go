package service

import (
	"context"
	"net"
	"time"

	"ramet.dev/ramet/api"
)

// Ports is the TCP ports of sandboxes.
type Ports interface {
	Ports(ctx context.Context, ref string) ([]api.Port, error)
	// DialPort connects to a port. It waits at most wait until a process listens there, and
	// returns a CodeUnavailable error if none does. ctx bounds the call and not the
	// connection.
	DialPort(ctx context.Context, ref string, port uint16, wait time.Duration) (PortConn, error)
}

// PublishedPorts is the ports of the host that lead to ports of sandboxes. They are stored, and
// end with their sandboxes.
type PublishedPorts interface {
	PublishedPorts(ctx context.Context, ref string) ([]api.PublishedPort, error)
	// PublishPort listens on a port of the host. It returns a CodeConflict error if the port
	// is in use.
	PublishPort(ctx context.Context, ref string, req api.PublishRequest) (*api.PublishedPort, error)
	// UnpublishPort ends the ports of a sandbox that are published on a port of the host,
	// with their connections.
	UnpublishPort(ctx context.Context, ref string, hostPort int) error
}

// PortConn is a connection to a port. Each direction ends by itself.
type PortConn interface {
	net.Conn
	CloseWrite() error
}
