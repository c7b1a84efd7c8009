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
	broken error // the end of a connection that this program did not make, a reset first; guarded by mu
)

func dial(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return conn{c}, nil
}

// note keeps a reset also if another goroutine has told of an end before: a reset is told once, to the
// one that reads or to the one that writes, and the other sees an end.
func note(err error) {
	mu.Lock()
	defer mu.Unlock()
	if err == nil || errors.Is(err, net.ErrClosed) || errors.Is(err, os.ErrDeadlineExceeded) {
		return
	}
	if broken == nil || isReset(err) {
		broken = err
	}
}

func isReset(err error) bool {
	return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// wasReset reports whether a connection has ended as one does that another process goes on with, since it
// was asked last.
func wasReset() bool {
	mu.Lock()
	defer mu.Unlock()
	err := broken
	broken = nil
	return isReset(err)
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
