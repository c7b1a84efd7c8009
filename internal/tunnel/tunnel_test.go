package tunnel

import (
	"io"
	"net"
	"path/filepath"
	"testing"
	"time"
)

// TestJoinEndsWithTheClient has a client go away that only seemed to have ended
// its direction, while the server on the port goes on listening.
func TestJoinEndsWithTheClient(t *testing.T) {
	pair := func() (near, far *net.UnixConn) {
		l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		dialed, err := net.Dial("unix", l.Addr().String())
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
		return accepted.(*net.UnixConn), dialed.(*net.UnixConn)
	}
	near, client := pair()
	port, server := pair()
	over := make(chan struct{})
	go func() {
		defer close(over)
		Join(near, []byte("early "), port, time.Millisecond)
	}()
	if _, err := io.WriteString(client, "and last words"); err != nil {
		t.Fatal(err)
	}
	client.Close()
	if b, err := io.ReadAll(server); string(b) != "early and last words" || err != nil {
		t.Errorf("the server reads %q, %v", b, err)
	}
	select {
	case <-over: // the server never ended its direction
	case <-time.After(30 * time.Second):
		t.Error("the tunnel stays")
		port.Close()
		<-over
	}
}
