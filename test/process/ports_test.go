package process

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/service"
	"ramet.dev/ramet/test/harness"
)

func TestPortsAreListed(t *testing.T) {
	n := harness.NewNode(t)
	ref := n.Create("").ID
	if ports, err := n.Machine.Ports(harness.AsOwnerIn(t), ref); err != nil || len(ports) != 0 {
		t.Errorf("ports are %v, %v", ports, err)
	}
	for _, addr := range []string{"127.0.0.1:80", "[::1]:80", ":81", "[::]:82", "127.0.0.9:83"} {
		n.StartServer(ref, "tcp", addr)
	}
	harness.Eventually(t, "all are listed", func() error {
		ports, err := n.Machine.Ports(harness.AsOwnerIn(t), ref)
		if err != nil {
			return err
		}
		var got []string
		for _, p := range ports {
			if p.PID <= 1 || !strings.HasPrefix(p.Command, "guest serve tcp") {
				t.Errorf("%+v has no process", p)
			}
			got = append(got, fmt.Sprintf("%s %s %d", p.Protocol, p.Address, p.Port))
		}
		if want := []string{"tcp 127.0.0.1 80", "tcp ::1 80", "tcp :: 81", "tcp :: 82", "tcp 127.0.0.9 83"}; !slices.Equal(got, want) {
			return fmt.Errorf("ports are %q", got)
		}
		return nil
	})
	for port := uint16(80); port <= 83; port++ {
		c := n.DialPort(ref, port, "echo")
		if err := harness.RoundTrip(c, "hello"); err != nil {
			t.Errorf("port %d: %v", port, err)
		}
	}
	_, err := n.Machine.DialPort(harness.AsOwnerIn(t), ref, 84, 0)
	harness.WantCode(t, err, api.CodeUnavailable)
}

func TestPortConnections(t *testing.T) {
	n := harness.NewNode(t)
	ref := n.Create("").ID
	// Whoever waits is connected as soon as somebody listens.
	waited := make(chan error, 1)
	go func() {
		c, err := n.Machine.DialPort(harness.AsOwner, ref, 80, harness.Timeout)
		if err == nil {
			c.Close()
		}
		waited <- err
	}()
	n.StartServer(ref, "tcp", "127.0.0.1:80")
	if err := <-waited; err != nil {
		t.Errorf("wait: %v", err)
	}
	// Each direction ends by itself.
	c := n.DialPort(ref, 80, "echo /srv/first")
	data := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	var sender sync.WaitGroup
	sender.Go(func() {
		if _, err := c.Write(data); err != nil {
			t.Error(err)
		}
		if err := c.CloseWrite(); err != nil {
			t.Error(err)
		}
	})
	got, err := io.ReadAll(c)
	sender.Wait()
	if want := string(data) + fmt.Sprintf("end after %d", len(data)); string(got) != want || err != nil {
		t.Errorf("%d bytes came back, %v", len(got), err)
	}
	// The client goes without a word.
	c = n.DialPort(ref, 80, "echo /srv/second")
	if err := harness.RoundTrip(c, "x"); err != nil {
		t.Error(err)
	}
	c.Close()
	for _, f := range []string{"/srv/first", "/srv/second"} {
		harness.Eventually(t, f, func() error {
			if got, err := n.Read(ref, harness.At(f)); err != nil || got != "eof" {
				return fmt.Errorf("the connection ended with %q (%w)", got, err)
			}
			return nil
		})
	}
	// The sandbox resets.
	c = n.DialPort(ref, 80, "reset")
	_, err = io.ReadAll(c)
	harness.WantCode(t, err, api.CodeUnavailable)
	// A client that reads nothing, and a sandbox that does not, hold up nobody.
	for range 3 {
		n.DialPort(ref, 80, "send 1000000000")
		deaf := n.DialPort(ref, 80, "deaf")
		if err := deaf.SetWriteDeadline(time.Now().Add(200 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.CopyN(deaf, zeroes{}, 64<<20); err == nil {
			t.Error("64 MiB were taken by whoever reads nothing")
		}
	}
	c = n.DialPort(ref, 80, "echo")
	if err := harness.RoundTrip(c, "still here"); err != nil {
		t.Error(err)
	}
	// A cancelled wait ends.
	ctx, cancel := context.WithTimeout(harness.AsOwnerIn(t), 50*time.Millisecond)
	defer cancel()
	_, err = n.Machine.DialPort(ctx, ref, 99, time.Hour)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("cancelled: %v", err)
	}
}

type zeroes struct{}

func (zeroes) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// TestManyPortConnections has more connections than a sandbox may have.
func TestManyPortConnections(t *testing.T) {
	n := harness.NewNode(t)
	ref := n.Create("").ID
	n.StartServer(ref, "tcp", "127.0.0.1:80")
	refused := 0
	for range 520 {
		c, err := n.Machine.DialPort(harness.AsOwnerIn(t), ref, 80, 0)
		if err != nil {
			harness.WantCode(t, err, api.CodeLimit)
			refused++
			continue
		}
		defer c.Close()
		if _, err := io.WriteString(c, "echo\n"); err != nil {
			t.Fatal(err)
		}
	}
	if refused != 8 {
		t.Errorf("%d of 520 were refused, not 8", refused)
	}
}

// TestForkWithConnections forks a sandbox that is being talked to: the parent
// goes on, and a child sees resets and answers on the same port.
func TestForkWithConnections(t *testing.T) {
	n := harness.NewNode(t)
	ref := n.Create("").ID
	n.StartServer(ref, "tcp", "127.0.0.1:80")
	n.StartServer(ref, "tcp", "[::1]:81")
	var conns []service.PortConn
	for _, port := range []uint16{80, 81} {
		c := n.DialPort(ref, port, fmt.Sprintf("echo /srv/%d", port))
		if err := harness.RoundTrip(c, "before"); err != nil {
			t.Fatal(err)
		}
		conns = append(conns, c)
	}
	flood := n.DialPort(ref, 80, "send 100000000")
	kids := n.Fork(ref, 3)
	grandkid := n.Fork(kids[0].ID, 1)[0]
	for _, k := range append(kids, grandkid) {
		for _, port := range []uint16{80, 81} {
			harness.Eventually(t, "the child's end is reset", func() error {
				if got, err := n.Read(k.ID, harness.At(fmt.Sprintf("/srv/%d", port))); err != nil || got != "reset" {
					return fmt.Errorf("it ended with %q (%w)", got, err)
				}
				return nil
			})
			if err := harness.RoundTrip(n.DialPort(k.ID, port, "echo"), "of "+k.ID); err != nil {
				t.Errorf("%s: %v", k.ID, err)
			}
		}
	}
	for _, c := range conns {
		if err := harness.RoundTrip(c, "after"); err != nil {
			t.Errorf("the parent's connection: %v", err)
		}
	}
	if n, err := io.Copy(io.Discard, flood); n != 100_000_000 || err != nil {
		t.Errorf("%d bytes of 100000000 came, %v", n, err)
	}
	for _, port := range []uint16{80, 81} {
		_, err := n.Machine.StatFile(harness.AsOwnerIn(t), ref, harness.At(fmt.Sprintf("/srv/%d", port)))
		harness.WantCode(t, err, api.CodeNotFound)
	}
	// What holds a connection when its sandbox goes is told.
	n.Destroy(ref)
	if _, err := io.ReadAll(conns[0]); err == nil {
		t.Error("the connection to a destroyed sandbox ended as if all was said")
	}
}

func TestPortProxy(t *testing.T) {
	n := harness.NewNode(t)
	s := n.Create("web")
	c, raw := harness.ServeREST(t, n)
	base := "http://ramet/v1/sandboxes/web/ports/80"
	ask := func(method, url, host, body string, headers ...string) (int, string) {
		t.Helper()
		req, err := http.NewRequest(method, url, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if req.Host = host; host == "" {
			req.Host = "ramet"
		}
		for i := 0; i < len(headers); i += 2 {
			req.Header.Set(headers[i], headers[i+1])
		}
		resp, err := raw.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(b)
	}
	if status, body := ask("GET", base+"/", "", ""); status != http.StatusServiceUnavailable || !strings.Contains(body, "nothing in the sandbox listens") {
		t.Errorf("nobody listens: %d %s", status, body)
	}
	first := make(chan string, 1)
	go func() {
		_, body := ask("GET", base+"/", "", "", "X-Ramet-Wait", "30s")
		first <- body
	}()
	n.StartServer("web", "http", "127.0.0.1:80")
	if got := <-first; got != "GET / localhost:80 0 /v1/sandboxes/web/ports/80 " {
		t.Errorf("whoever waited got %q", got)
	}
	host := "80-" + strings.Replace(s.ID, "_", "-", 1) + ".localhost:1234"
	for _, q := range []struct{ method, url, host, body, want string }{
		{"POST", base + "/a//b/../%2F/?q=a;b&%zz", "", "12345", "POST /a//b/../%2F/?q=a;b&%zz localhost:80 5 /v1/sandboxes/web/ports/80 "},
		{"PATCH", "http://ramet/v1/sandboxes", host, "", "PATCH /v1/sandboxes localhost:80 0  "},
		{"GET", "http://ramet/x?y", "80-web.localhost", "", "GET /x?y localhost:80 0  "},
	} {
		if status, body := ask(q.method, q.url, q.host, q.body); status != http.StatusTeapot || body != q.want {
			t.Errorf("%s %s: %d %q, not %q", q.method, q.url, status, body, q.want)
		}
	}
	for url, want := range map[string]int{
		"/v1/sandboxes/none/ports/80/": 404, "/v1/sandboxes/web/ports/0/": 400, "/v1/sandboxes/web/ports/080/": 400, "/v1/sandboxes/web/ports/65536/": 400,
		"/v1/sandboxes/..%2f/ports/80/": 400, "/v1/sandboxes/web/ports/80?wait=1h": 400, "/v1/sandboxes/web/ports/81?wait=1ms": 503,
	} {
		if status, body := ask("GET", "http://ramet"+url, "", ""); status != want {
			t.Errorf("%s: %d %s", url, status, body)
		}
	}
	if status, _ := ask("GET", "http://ramet/", "80-no_such.localhost", ""); status != 404 {
		t.Errorf("a host that is no sandbox: %d", status)
	}
	if p, err := c.Ports.Wait(harness.AsOwnerIn(t), "web", 80, time.Second); err != nil || p.Port != 80 || p.PID == 0 {
		t.Errorf("WaitPort = %+v, %v", p, err)
	}
	// An upgrade, as WebSockets begin.
	conn, err := c.Ports.Dial(harness.AsOwnerIn(t), "web", 80, 0)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(conn, "GET /upgrade HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: shout\r\n\r\nhello\n")
	in := bufio.NewReader(conn)
	resp, err := http.ReadResponse(in, nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("upgrade through a tunnel: %v, %v", resp, err)
	}
	if line, err := in.ReadString('\n'); line != "HELLO\n" {
		t.Errorf("got %q, %v", line, err)
	}
	conn.Close()
	req, err := http.NewRequest("GET", base+"/upgrade", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", "shout")
	if resp, err = raw.Do(req); err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("upgrade through the proxy: %v, %v", resp, err)
	}
	both := resp.Body.(io.ReadWriteCloser)
	if _, err := io.WriteString(both, "again\n"); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(both).ReadString('\n'); line != "AGAIN\n" {
		t.Errorf("got %q, %v", line, err)
	}
	both.Close()
	// A reset comes all the way.
	n.StartServer("web", "tcp", "127.0.0.1:81")
	if conn, err = c.Ports.Dial(harness.AsOwnerIn(t), "web", 81, 0); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(conn, "reset")
	if _, err := conn.WriteTo(io.Discard); err == nil {
		t.Error("a reset is taken for an end")
	}
	conn.Close()
	// A stream arrives as it is made, and its server learns that the client left.
	resp, err = raw.Get(base + "/stream")
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(resp.Body)
	for i := range 3 {
		if line, err := lines.ReadString('\n'); line != fmt.Sprintf("%d\n", i) {
			t.Errorf("line %d is %q, %v", i, line, err)
		}
	}
	resp.Body.Close()
	harness.Eventually(t, "the server learns that the client left", func() error {
		_, err := n.Machine.StatFile(harness.AsOwnerIn(t), "web", harness.At("/srv/stream-ended"))
		return err
	})
	// An answer that breaks off is not taken for a whole one.
	if resp, err = raw.Get(base + "/break"); err == nil {
		_, err = io.ReadAll(resp.Body)
		resp.Body.Close()
	}
	if err == nil {
		t.Error("half an answer came without an error")
	}
}
