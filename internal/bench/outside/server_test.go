package outside

import (
	"io"
	"net"
	"strings"
	"testing"
)

func serve(t *testing.T) *Server {
	t.Helper()
	s, err := Serve("", "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
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
}
