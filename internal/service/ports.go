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

// PortConn is a connection to a port. Each direction ends by itself.
type PortConn interface {
	net.Conn
	CloseWrite() error
}
