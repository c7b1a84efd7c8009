package rest_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/server/rest/apitest"
	"ramet.dev/ramet/internal/service"
)

// portOf is a service whose port 80 is that of a listener here.
func portOf(addr net.Addr) *apitest.Service {
	return &apitest.Service{
		DialPortFunc: func(ctx context.Context, _ string, port uint16, _ time.Duration) (service.PortConn, error) {
			if port != 80 {
				return nil, api.Errorf(api.CodeUnavailable, "nobody listens on %d", port)
			}
			c, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr.String())
			if err != nil {
				return nil, err
			}
			return c.(*net.TCPConn), nil
		},
		PortsFunc: func(context.Context, string) ([]api.Port, error) {
			return []api.Port{{Port: 53, Protocol: "udp"}, {Port: 80, Protocol: "tcp", Address: "::", PID: 7}}, nil
		},
	}
}

// TestProxySmuggling sends requests whose framing servers disagree about: the
// server behind must see one of them, or none, and never what is in a body.
func TestProxySmuggling(t *testing.T) {
	var mu sync.Mutex
	var seen []string
	behind := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body) // its length is told
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, fmt.Sprintf("%s %s %d %v", r.Method, r.RequestURI, len(b), r.Header["X-Evil"]))
	}))
	defer behind.Close()
	socket := apitest.Serve(t, portOf(behind.Listener.Addr()))
	const path, smuggled = "/v1/sandboxes/" + sbxA + "/ports/80/x", "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"
	for name, c := range map[string]struct{ raw, want string }{
		"length and chunks": {"POST " + path + " HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n0\r\n\r\n" + smuggled, "POST /x 0 []"},
		"two lengths":       {"POST " + path + " HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 50\r\n\r\n" + smuggled, ""},
		"odd coding":        {"POST " + path + " HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n" + smuggled, ""},
		"spaced header":     {"POST " + path + " HTTP/1.1\r\nHost: a\r\nContent-Length : 5\r\n\r\n" + smuggled, ""},
		"header for us":     {"GET " + path + " HTTP/1.1\r\nHost: a\r\nX-Evil: 1\r\nConnection: close, X-Evil\r\n\r\n", "GET /x 0 []"},
		"line in the path":  {"GET " + path + "%0d%0aX-Evil:%201 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", "GET /x%0d%0aX-Evil:%201 0 []"},
	} {
		t.Run(name, func(t *testing.T) {
			seen = nil
			conn, err := net.Dial("unix", socket)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if _, err := io.WriteString(conn, c.raw); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadAll(conn); err != nil && !strings.Contains(err.Error(), "reset") {
				t.Fatal(err)
			}
			mu.Lock()
			defer mu.Unlock()
			if got := strings.Join(seen, "; "); got != c.want {
				t.Errorf("the server saw %q, not %q", got, c.want)
			}
		})
	}
}

func TestPortRoutes(t *testing.T) {
	behind := httptest.NewServer(http.NotFoundHandler())
	defer behind.Close()
	c := testClient(t, apitest.Serve(t, portOf(behind.Listener.Addr())))
	const ports = "/v1/sandboxes/" + sbxA + "/ports"
	if a := ask(t, c, "GET", ports, ""); a.status != 200 || !strings.Contains(a.body, `"port":53`) {
		t.Errorf("list: %d %s", a.status, a.body)
	}
	if a := ask(t, c, "GET", ports+"/80?wait=1s", ""); a.status != 200 || !strings.Contains(a.body, `"pid":7`) {
		t.Errorf("one: %d %s", a.status, a.body)
	}
	for path, status := range map[string]int{
		ports + "/81": 503, ports + "/0": 400, ports + "/x": 400, ports + "/80?wait=-1s": 400, ports + "/80?wait=soon": 400, ports + "/+80": 400,
		ports + "/81/": 503, ports + "/0/": 400, ports + "//x": 400, "/v1/sandboxes/%20/ports/80/": 400,
	} {
		a := ask(t, c, "GET", path, "")
		if a.status != status {
			t.Errorf("%s: %d %s", path, a.status, a.body)
			continue
		}
		a.problem(t)
	}
	if a := ask(t, c, "GET", ports+"/80/none", ""); a.status != 404 || !strings.HasPrefix(a.body, "404 page") {
		t.Errorf("the server's own answer: %d %s", a.status, a.body)
	}
}

// TestPublishedRoutes publishes a port and ends it, below a path that requests for web servers
// in sandboxes could have, too.
func TestPublishedRoutes(t *testing.T) {
	const token = "a-token-of-some-characters"
	var asked []string
	svc := &apitest.Service{PublishedFuncs: apitest.PublishedFuncs{
		PublishPortFunc: func(_ context.Context, ref string, req api.PublishRequest) (*api.PublishedPort, error) {
			asked = append(asked, fmt.Sprint("publish ", ref, req))
			return &api.PublishedPort{Port: req.Port, Address: "127.0.0.1", HostPort: 8080, Protected: true}, nil
		},
		PublishedPortsFunc: func(_ context.Context, ref string) ([]api.PublishedPort, error) {
			asked = append(asked, "list "+ref)
			return []api.PublishedPort{{Port: 80, HostPort: 8080}}, nil
		},
		UnpublishPortFunc: func(_ context.Context, ref string, hostPort int) error {
			asked = append(asked, fmt.Sprint("unpublish ", ref, hostPort))
			return nil
		},
	}}
	c := testClient(t, apitest.Serve(t, svc))
	const published = "/v1/sandboxes/base/ports/published"
	for _, r := range []struct {
		method, path, body string
		status             int
		answer             string
	}{
		{"POST", published, `{"port":80,"host_port":8080,"token":"` + token + `"}`, 201, `"protected":true`},
		{"GET", published, "", 200, `"host_port":8080`},
		{"DELETE", published + "/8080", "", 204, ""},
		{"POST", published, `{"port":0}`, 400, "port"},
		{"POST", published, `{"port":80,"host_port":65536}`, 400, "host_port"},
		{"DELETE", published + "/0", "", 400, "hostport"},
		{"DELETE", published + "/x", "", 400, "hostport"},
	} {
		a := ask(t, c, r.method, r.path, r.body)
		if a.status != r.status || !strings.Contains(a.body, r.answer) || strings.Contains(a.body, token) {
			t.Errorf("%s %s %s: %d %s", r.method, r.path, r.body, a.status, a.body)
		}
	}
	if want := "[publish base{80  8080 " + token + "} list base unpublish base8080]"; fmt.Sprint(asked) != want {
		t.Errorf("asked was %v\nwant %s", asked, want)
	}
}

// TestTunnel upgrades a connection, with data that comes right behind it.
func TestTunnel(t *testing.T) {
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
			b, _ := io.ReadAll(c) // what came is told
			fmt.Fprintf(c, "got %s", b)
			c.Close()
		}
	}()
	socket := apitest.Serve(t, portOf(l.Addr()))
	conn, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET /v1/sandboxes/%s/ports/80 HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\nearly", sbxA)
	in := bufio.NewReader(conn)
	resp, err := http.ReadResponse(in, nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols || resp.Header.Get("Upgrade") != "tcp" {
		t.Fatalf("%+v, %v", resp, err)
	}
	if _, err := io.WriteString(conn, " and late"); err != nil {
		t.Fatal(err)
	}
	if err := conn.(*net.UnixConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(in); string(b) != "got early and late" || err != nil {
		t.Errorf("answer %q, %v", b, err)
	}
}
