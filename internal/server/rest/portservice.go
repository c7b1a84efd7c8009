package rest

import (
	"context"
	"net"
	"time"

	"ramet.dev/ramet/api"
)

// PortService is the part of a Service that is about ports of sandboxes.
type PortService interface {
	Ports(ctx context.Context, ref string) ([]api.Port, error)
	// DialPort connects to a TCP port, and waits until somebody listens on it as
	// long as wait says. It is a CodeUnavailable error that nobody does. ctx
	// bounds the call and not the connection.
	DialPort(ctx context.Context, ref string, port uint16, wait time.Duration) (PortConn, error)
}

// PortConn is a connection to a port. Each direction ends by itself.
type PortConn interface {
	net.Conn
	CloseWrite() error
}
