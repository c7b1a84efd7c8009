package main

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"syscall"
)

// conn notes how it ends: libraries do not keep that in their errors.
type conn struct{ net.Conn }

var (
	mu     sync.Mutex
	broken error // the first end of a connection that this program did not make; guarded by mu
)

func dial(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return conn{c}, nil
}

func note(err error) {
	mu.Lock()
	defer mu.Unlock()
	if err != nil && broken == nil && !errors.Is(err, net.ErrClosed) && !errors.Is(err, os.ErrDeadlineExceeded) {
		broken = err
	}
}

// wasReset reports whether a connection has ended as one does that another process goes on with, since it
// was asked last.
func wasReset() bool {
	mu.Lock()
	defer mu.Unlock()
	err := broken
	broken = nil
	return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// Read implements net.Conn.
func (c conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	note(err)
	return n, err
}

// Write implements net.Conn.
func (c conn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	note(err)
	return n, err
}
