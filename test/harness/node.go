package harness

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/client"
	"ramet.dev/ramet/internal/machine"
	"ramet.dev/ramet/internal/node"
	"ramet.dev/ramet/internal/node/meter"
	"ramet.dev/ramet/internal/node/quota"
	"ramet.dev/ramet/internal/node/timer"
	"ramet.dev/ramet/internal/server/rest"
	"ramet.dev/ramet/internal/server/rest/apitest"
	who "ramet.dev/ramet/internal/service/access"
	"ramet.dev/ramet/internal/storage/paths"
)

// AsOwner is the context of what the owner of the daemon does.
var AsOwner = who.With(context.Background(), who.Owner(0))

// AsOwnerIn is AsOwner until the test ends.
func AsOwnerIn(t testing.TB) context.Context { return who.With(t.Context(), who.Owner(0)) }

// Node is a node on directories of its own.
type Node struct {
	T       testing.TB
	Machine *machine.Machine
	Paths   paths.Paths
	Build   string // tells this node's sentries from others
	Pool    int
	Log     *slog.Logger
	// Command is the one inside of sandboxes that may control themselves, nil if
	// the test needs none.
	Command *os.File
	Clock   timer.Clock      // nil for the machine's
	BootID  string           // which run of the host it is; empty for the real one
	Memory  quota.HostMemory // nil for the machine's
	// Observer is told of operations, if it is set.
	Observer meter.Observer
	// ResolvConf and Hosts are those of the gateway's resolver, empty for the machine's; NetworkMax
	// bounds all networks.
	ResolvConf, Hosts string
	NetworkMax        *api.NetworkRequest
	// Configure changes how the node is opened, if it is set.
	Configure func(*node.Config)
	// HostCAs is the bundle of the host, and there is none unless a test names one; empty for the machine's.
	HostCAs string
	// What was there before the node was.
	FDs        map[string]int
	goroutines goleak.Option
}

// NewNode opens a node with the image "box". At the end of the test all
// sandboxes are destroyed and nothing may be left.
func NewNode(t testing.TB) *Node { return NewNodeIn(t, filepath.Join(NewDir(t), "data")) }

// NewNodeIn opens a node with the data directory data.
func NewNodeIn(t testing.TB, data string) *Node {
	t.Helper()
	n := NewClosedNode(t, data)
	n.Open()
	t.Cleanup(n.Finish)
	return n
}

// NewClosedNode makes the directories of a node with the image "box".
func NewClosedNode(t testing.TB, data string) *Node {
	t.Helper()
	p, err := paths.New(filepath.Join(NewDir(t), "run"), data)
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{p.MakeRuntime(), p.MakeData()} {
		if err != nil {
			t.Fatal(err)
		}
	}
	n := &Node{T: t, Paths: p, Build: "test-" + RandomHex(), Pool: 2, HostCAs: "/nonexistent/certificates", Log: slog.New(slog.NewTextHandler(testWriter{t}, nil))}
	n.FDs, n.goroutines = OpenFiles(t), goleak.IgnoreCurrent()
	n.importImage("box")
	return n
}

// Config is how the node is opened: its sentries are this binary.
func (n *Node) Config() node.Config {
	c := node.Config{
		Paths: n.Paths, Executable: "/proc/self/exe", Engine: n.Build, PoolSize: node.FixedPoolSize(n.Pool), Command: n.Command, Log: n.Log, Clock: n.Clock, BootID: n.BootID, Observer: n.Observer, HostMemory: n.Memory,
		Gateway: "/proc/self/exe", GatewayBuild: n.Build, ResolvConf: n.ResolvConf, Hosts: n.Hosts, HostCAs: n.HostCAs, NetworkMax: n.NetworkMax,
	}
	if n.Configure != nil {
		n.Configure(&c)
	}
	return c
}

// Open opens the node, as a daemon that starts does.
func (n *Node) Open() {
	n.T.Helper()
	m, err := machine.Open(AsOwner, n.Config())
	if err != nil {
		n.T.Fatal(err)
	}
	n.Machine = m
}

// Close closes the node, as a daemon that ends does. Its sandboxes run on.
func (n *Node) Close() {
	n.T.Helper()
	if err := n.Machine.Close(); err != nil {
		n.T.Fatal(err)
	}
	n.Machine = nil
}

// Reopen closes the node and opens a new one, as a restarted daemon does.
func (n *Node) Reopen() {
	n.T.Helper()
	n.Close()
	n.Open()
}

// Serve serves the node's REST interface until the end of the test and returns
// the socket's path.
func (n *Node) Serve() string {
	n.T.Helper()
	l, err := net.Listen("unix", n.Paths.Socket())
	if err != nil {
		n.T.Fatal(err)
	}
	server := rest.New(rest.Config{Service: n.Machine, Identify: apitest.Owner, Version: "test"})
	s := &http.Server{Handler: server}
	served := make(chan error)
	go func() { served <- s.Serve(l) }()
	n.T.Cleanup(func() {
		s.Close()
		<-served // always an error, that of Close
		server.Wait()
	})
	return n.Paths.Socket()
}

// ServeREST serves the REST interface of a node.
func ServeREST(t *testing.T, n *Node) (*client.Client, *http.Client) {
	t.Helper()
	socket := filepath.Join(NewDir(t), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := rest.New(rest.Config{Service: n.Machine, Identify: apitest.Owner, Version: "test"})
	srv := &http.Server{Handler: server, ReadHeaderTimeout: time.Minute}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	c, err := client.New("unix:" + socket)
	if err != nil {
		t.Fatal(err)
	}
	raw := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}}
	t.Cleanup(func() {
		c.Close()
		srv.Close()
		<-served
		server.Wait()
	})
	return c, raw
}

type testWriter struct{ t testing.TB }

func (w testWriter) Write(b []byte) (int, error) {
	w.t.Logf("manager: %s", bytes.TrimSpace(b))
	return len(b), nil
}
