package cli_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/cli"
	"ramet.dev/ramet/internal/server/rest/apitest"
	"ramet.dev/ramet/internal/service"
)

// TestForward forwards a port to an echo, until it is interrupted.
func TestForward(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			b, _ := io.ReadAll(c) // it is said again
			fmt.Fprintf(c, "heard %s", b)
			c.Close()
		}
	}()
	svc := &apitest.Service{
		GetFunc: find,
		DialPortFunc: func(ctx context.Context, _ string, port uint16, _ time.Duration) (service.PortConn, error) {
			if port != 80 {
				return nil, api.Errorf(api.CodeUnavailable, "nothing listens")
			}
			c, err := (&net.Dialer{}).DialContext(ctx, "tcp", l.Addr().String())
			if err != nil {
				return nil, err
			}
			return c.(*net.TCPConn), nil
		},
	}
	socket := apitest.Serve(t, svc)
	out, w := io.Pipe()
	result := make(chan int, 1)
	go func() {
		code := cli.Run(context.Background(), testDeps(socket, "test"), []string{"port", "base", "80:0", "81:0", "--json"}, cli.Stdio{Out: w, Err: io.Discard})
		w.Close()
		result <- code
	}()
	lines := bufio.NewScanner(out)
	var addrs []string
	for range 2 {
		var f struct {
			Address string
			Port    int
		}
		if !lines.Scan() || json.Unmarshal(lines.Bytes(), &f) != nil {
			t.Fatalf("line %q", lines.Text())
		}
		host, _, err := net.SplitHostPort(f.Address)
		if err != nil || host != "127.0.0.1" {
			t.Errorf("it listens on %q", f.Address)
		}
		addrs = append(addrs, f.Address)
	}
	c, err := net.Dial("tcp", addrs[0])
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(c, "a word")
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(c); string(b) != "heard a word" || err != nil {
		t.Errorf("got %q, %v", b, err)
	}
	c.Close()
	// Where nobody listens, whoever connects is told.
	switch c, err = net.Dial("tcp", addrs[1]); {
	case errors.Is(err, syscall.ECONNRESET): // already
	case err != nil:
		t.Fatal(err)
	default:
		if b, err := io.ReadAll(c); err == nil {
			t.Errorf("got %q, and no reset", b)
		}
		c.Close()
	}
	go io.Copy(io.Discard, out)
	if err := syscall.Kill(os.Getpid(), syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if code := <-result; code != 130 {
		t.Errorf("exit code %d", code)
	}
	if _, err := net.Dial("tcp", addrs[0]); err == nil {
		t.Error("it listens on")
	}
}
