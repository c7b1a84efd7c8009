package network

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/test/harness"
)

// names are those that the resolver of the host knows.
const names = `198.51.100.1 files.example.org
198.51.100.2 other.example.org
10.77.0.1 inside.example.org
2001:db8:1::1 six.example.org
`

// newNode opens a node whose gateway knows names.
func newNode(t *testing.T) *harness.Node {
	t.Helper()
	n := harness.NewClosedNode(t, filepath.Join(harness.NewDir(t), "data"))
	n.Hosts = filepath.Join(harness.NewDir(t), "hosts")
	if err := os.WriteFile(n.Hosts, []byte(names), 0o644); err != nil {
		t.Fatal(err)
	}
	n.ResolvConf = "/nonexistent/resolv.conf" // no server is asked
	n.Open()
	t.Cleanup(n.Finish)
	return n
}

// allow asks for a network with rules.
func allow(t testing.TB, rules ...string) *api.NetworkRequest {
	t.Helper()
	req := &api.NetworkRequest{}
	for _, text := range rules {
		r, err := api.ParseNetworkRule("allow", text)
		if err != nil {
			t.Fatal(err)
		}
		req.Allow = append(req.Allow, r)
	}
	return req
}

// create makes a sandbox with a network, or with none if req is nil.
func create(n *harness.Node, name string, req *api.NetworkRequest) *api.Sandbox {
	n.T.Helper()
	s, err := n.Machine.Create(harness.AsOwner, api.CreateRequest{Image: "box", Name: name, Network: req})
	if err != nil {
		n.T.Fatalf("create: %v", err)
	}
	return s
}

// server counts the connections of a server on the host.
type server struct {
	mu    sync.Mutex
	conns int
}

func (s *server) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conns
}

// serve runs a server until the test ends.
func serve(t testing.TB, address string, handle func(c net.Conn)) *server {
	t.Helper()
	// An address of IPv6 that is local by a route alone is bound only if the socket insists.
	free := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
		cerr := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_FREEBIND, 1) })
		return errors.Join(cerr, err)
	}}
	l, err := free.Listen(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	s := &server{}
	var wg sync.WaitGroup
	open := map[net.Conn]bool{}
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.conns++
			open[c] = true
			s.mu.Unlock()
			wg.Go(func() {
				defer c.Close()
				handle(c)
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		s.mu.Lock()
		for c := range open {
			c.Close()
		}
		s.mu.Unlock()
		wg.Wait()
	})
	return s
}

// echoes sends back what it is sent.
func echoes(c net.Conn) { _, _ = io.Copy(c, c) }

// digest is that of data, as guests tell it.
var digest = fmt.Sprintf("digest %x\n", sha256.Sum256(data))

// dial has a guest connect to addresses, and returns what it says of each.
func dial(n *harness.Node, ref string, addresses ...string) map[string]string {
	n.T.Helper()
	return dialAs(n, harness.AsOwner, ref, addresses...)
}

// dialAs is dial for a caller.
func dialAs(n *harness.Node, ctx context.Context, ref string, addresses ...string) map[string]string {
	n.T.Helper()
	ctx, cancel := context.WithTimeout(ctx, harness.Timeout)
	defer cancel()
	var out, errs bytes.Buffer
	r, err := n.Machine.Exec(ctx, ref, api.ExecRequest{Argv: append([]string{"guest", "outside", "dial"}, addresses...)}, api.ExecIO{Stdout: &out, Stderr: &errs})
	if err != nil || r.ExitCode != 0 {
		n.T.Fatalf("%s: dial %v: %+v, %v: %s", ref, addresses, r, err, errs.String())
	}
	said := map[string]string{}
	for line := range strings.Lines(out.String()) {
		addr, how, _ := strings.Cut(strings.TrimSpace(line), ": ")
		said[addr] = how
	}
	return said
}

// mustReach checks how connections of a guest go.
func mustReach(n *harness.Node, ref string, want map[string]string) {
	n.T.Helper()
	mustReachAs(n, harness.AsOwner, ref, want)
}

// mustReachAs is mustReach for a caller.
func mustReachAs(n *harness.Node, ctx context.Context, ref string, want map[string]string) {
	n.T.Helper()
	var addresses []string
	for a := range want {
		addresses = append(addresses, a)
	}
	got := dialAs(n, ctx, ref, addresses...)
	for a, how := range want {
		if !strings.HasPrefix(got[a], how) {
			n.T.Errorf("%s: %s is %q, not %q", ref, a, got[a], how)
		}
	}
}

// What guests say of connections.
const (
	connected   = "connected"
	refused     = "connection refused"
	unreachable = "network is unreachable"
)

// startDownload starts a download in the background, which goes on as far as pipes and its output let
// it, and waits until it has begun.
func startDownload(n *harness.Node, ref, address string) *harness.Follower {
	n.T.Helper()
	pid := n.Start(ref, api.StartRequest{}, "outside", "download", address)
	f := n.Follow(ref, pid, 0)
	harness.Eventually(n.T, "download", func() error {
		if out, _ := f.Text(); !strings.Contains(out, "MiB") {
			return fmt.Errorf("it says %q", out)
		}
		return nil
	})
	return f
}

// slowly sends the first MiB of data, and the rest when gate is closed.
func slowly(gate chan struct{}) func(net.Conn) {
	return func(c net.Conn) {
		if _, err := c.Write(data[:2<<20]); err != nil {
			return
		}
		<-gate
		_, _ = c.Write(data[2<<20:])
	}
}
