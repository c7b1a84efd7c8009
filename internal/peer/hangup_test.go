package peer

import (
	"io"
	"net"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// halves is a connection whose directions end by themselves.
type halves interface {
	net.Conn
	CloseWrite() error
}

// connected returns both ends of a connection of a kind.
func connected(t *testing.T, network string) (a, b halves) {
	t.Helper()
	at := "127.0.0.1:0"
	if network == "unix" {
		at = filepath.Join(t.TempDir(), "s")
	}
	l, err := net.Listen(network, at)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dialed, err := net.Dial(network, l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	accepted, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		dialed.Close()
		accepted.Close()
	})
	return dialed.(halves), accepted.(halves)
}

// settled is how long something is watched that must not happen.
const settled = 50 * time.Millisecond

func within(t *testing.T, ch <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-ch:
	case <-time.After(30 * time.Second):
		t.Fatalf("nobody noticed that %s", what)
	}
}

func TestEndedAndGone(t *testing.T) {
	for _, network := range []string{"unix", "tcp"} {
		t.Run(network, func(t *testing.T) {
			a, b := connected(t, network)
			if _, err := b.Write([]byte("unread")); err != nil {
				t.Fatal(err)
			}
			ended, stop := Ended(a)
			gone, stopGone := Gone(a)
			if err := b.CloseWrite(); err != nil {
				t.Fatal(err)
			}
			within(t, ended, "a direction ended")
			stop()
			select {
			case <-gone:
				t.Error("who ended one direction is taken for gone")
			case <-time.After(settled):
			}
			b.Close()
			if network == "tcp" { // what is sent tells
				if _, err := a.Write([]byte("x")); err != nil {
					t.Fatal(err)
				}
			}
			within(t, gone, "the peer is gone")
			stopGone()
		})
	}
}

// TestCloseWhileWatched closes a connection that is being watched: that must not
// wait, and the peer must be told when the watch is over.
func TestCloseWhileWatched(t *testing.T) {
	a, b := connected(t, "unix")
	_, stop := Gone(a)
	a.Close()
	stop()
	if n, err := b.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the peer reads %d bytes, %v", n, err)
	}
}

func TestWhenGone(t *testing.T) {
	a, b := connected(t, "unix")
	called := make(chan struct{})
	stop := WhenGone(a, time.Millisecond, func() { close(called) })
	b.Close()
	within(t, called, "the peer is gone")
	stop()

	a, b = connected(t, "unix")
	var early atomic.Bool
	stop = WhenGone(a, time.Hour, func() { early.Store(true) })
	b.Close()
	stop()
	if early.Load() {
		t.Error("it did not wait")
	}
	_, stop = Gone(notASocket{})
	stop()
}

type notASocket struct{ net.Conn }

// TestReset checks that the peer is told of an end that was none.
func TestReset(t *testing.T) {
	a, b := connected(t, "tcp")
	KeepAlive(a)
	Reset(a)
	if _, err := b.Read(make([]byte, 1)); err == nil || err == io.EOF {
		t.Errorf("the peer reads %v", err)
	}
}
