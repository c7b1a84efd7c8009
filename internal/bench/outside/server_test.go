package outside

import (
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"
)

func serve(t *testing.T) *Server {
	t.Helper()
	s, err := Serve("", "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	})
	return s
}

// TestServer: an upload is counted, and close ends what is open.
func TestServer(t *testing.T) {
	s := serve(t)
	dial := func(word string) *net.TCPConn {
		conn, err := net.Dial("tcp", s.listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		if _, err := io.WriteString(conn, word); err != nil {
			t.Fatal(err)
		}
		return conn.(*net.TCPConn)
	}
	up := dial("u" + strings.Repeat("x", 1_000_000))
	if err := up.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(up); err != nil || string(got) != "1000000\n" {
		t.Errorf("%q arrived, %v", got, err)
	}
	echo := dial("ehello")
	got := make([]byte, 5)
	if _, err := io.ReadFull(echo, got); err != nil || string(got) != "hello" {
		t.Errorf("%q came back, %v", got, err)
	}
	down := dial("d")
	if _, err := io.CopyN(io.Discard, down, 1<<20); err != nil {
		t.Errorf("download: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	for name, conn := range map[string]*net.TCPConn{"echo": echo, "download": down} {
		if err := conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("the %s connection is open after close", name)
		}
	}
	if conn, err := net.Dial("tcp", s.listener.Addr().String()); err == nil {
		conn.Close()
		t.Error("a closed server accepts connections")
	}
}
