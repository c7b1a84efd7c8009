package front

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"ramet.dev/ramet/api"
)

// TestStrangersDoNotHoldConnections sends the head of a request, and never its body.
func TestStrangersDoNotHoldConnections(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		Stranger(w, r)
		w.WriteHeader(http.StatusUnauthorized)
	}))
	defer s.Close()
	c, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n")
	from := bufio.NewReader(c)
	if res, err := http.ReadResponse(from, nil); err != nil || res.StatusCode != http.StatusUnauthorized {
		t.Fatalf("%+v, %v", res, err)
	}
	if _, err := from.ReadByte(); err != io.EOF {
		t.Errorf("the connection stays: %v", err)
	}
}

// TestBodies of admitted requests have a limit, and no deadline while nothing reads.
func TestBodies(t *testing.T) {
	got := make(chan error, 1)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		Stranger(w, r)
		Body(w, r, 4)
		_, err := io.ReadAll(r.Body)
		got <- err
	}))
	defer s.Close()
	for body, code := range map[string]api.Code{"1234": "", "12345": api.CodeInvalid} {
		res, err := http.Post(s.URL, "", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if err := <-got; api.CodeOf(err) != code {
			t.Errorf("%q: %v", body, err)
		}
	}
}
