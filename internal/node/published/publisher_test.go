package published

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/polltest"
	"ramet.dev/ramet/internal/server/portguard"
	"ramet.dev/ramet/internal/service/access"
	"ramet.dev/ramet/internal/service/audit"
	"ramet.dev/ramet/internal/storage/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const timeout = 30 * time.Second

// owner is the context of the owner of the daemon, tenant that of the holder of a token.
var (
	owner  = access.With(context.Background(), access.Owner(0))
	tenant = access.With(context.Background(), access.Caller{Tenant: "a", Scope: api.ScopeAdmin, Token: "tok"})
)

// host is a store, and sandboxes "a" and "b" whose ports are those of a server on loopback.
type host struct {
	t      *testing.T
	store  *store.Store
	server string
	dials  atomic.Int64

	mu     sync.Mutex
	gone   map[string]bool
	events []string         // by Tell; guarded by mu
	audit  []api.AuditEntry // guarded by mu
	*Publisher
}

func newHost(t *testing.T, server net.Addr) *host {
	t.Helper()
	records, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "registry.db"))
	if err != nil {
		t.Fatal(err)
	}
	h := &host{t: t, store: records, gone: map[string]bool{}}
	if server != nil {
		h.server = server.String()
	}
	h.open()
	t.Cleanup(func() {
		h.Close()
		if err := records.Close(); err != nil {
			t.Error(err)
		}
	})
	return h
}

func (h *host) open() {
	h.t.Helper()
	p, err := Open(context.Background(), Config{
		Store: h.store, MaxOpen: 1000, Guard: portguard.New, RetryEvery: 10 * time.Millisecond, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Find: func(_ context.Context, ref string) (string, error) {
			if !h.exists(ref) {
				return "", api.NotFound("sandbox", ref)
			}
			return ref, nil
		},
		Exists: h.exists,
		Tell: func(id string, kind api.EventKind, e api.Event) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.events = append(h.events, fmt.Sprint(kind, " ", id, " ", e.Port, " ", e.Listen, " ", e.Refused))
		},
		Audit: func(e api.AuditEntry) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.audit = append(h.audit, e)
		},
		Dial: func(ctx context.Context, id string, port uint16) (Conn, error) {
			h.dials.Add(1)
			if port == 1 {
				return nil, api.Errorf(api.CodeUnavailable, "nobody listens")
			}
			c, err := (&net.Dialer{}).DialContext(ctx, "tcp", h.server)
			if err != nil {
				return nil, err
			}
			return c.(*net.TCPConn), nil
		},
	})
	if err != nil {
		h.t.Fatal(err)
	}
	h.Publisher = p
}

func (h *host) exists(id string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return (id == "a" || id == "b") && !h.gone[id]
}

// destroy ends a sandbox as a registry does.
func (h *host) destroy(id string) {
	h.t.Helper()
	h.mu.Lock()
	h.gone[id] = true
	h.mu.Unlock()
	if err := h.store.Apply(h.t.Context(), h.Remove(id)); err != nil {
		h.t.Error(err)
	}
}

func (h *host) publish(id string, req api.PublishRequest) *api.PublishedPort {
	h.t.Helper()
	p, err := h.PublishPort(owner, id, req)
	if err != nil {
		h.t.Fatal(err)
	}
	return p
}

func (h *host) list(id string) []api.PublishedPort {
	h.t.Helper()
	l, err := h.PublishedPorts(owner, id)
	if err != nil {
		h.t.Fatal(err)
	}
	return l
}

// echo serves connections until the test ends: what a client sends, after its end "end".
func echo(t *testing.T) net.Addr {
	return serve(t, func(c *net.TCPConn) {
		if _, err := io.Copy(c, c); err == nil {
			_, _ = io.WriteString(c, "end") // the client may be gone
		}
	})
}

func serve(t *testing.T, each func(*net.TCPConn)) net.Addr {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				each(c.(*net.TCPConn))
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		wg.Wait()
	})
	return l.Addr()
}

func dial(t *testing.T, at string) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(timeout))
	return c.(*net.TCPConn)
}

// exchange sends text, ends its direction and returns the answer.
func exchange(at, text string) (string, error) {
	c, err := net.Dial("tcp", at)
	if err != nil {
		return "", err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(timeout))
	if _, err := io.WriteString(c, text); err != nil {
		return "", err
	}
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		return "", err
	}
	b, err := io.ReadAll(c)
	return string(b), err
}

func wantEcho(t *testing.T, at string) {
	t.Helper()
	if got, err := exchange(at, "hello "); got != "hello end" || err != nil {
		t.Errorf("%s answers %q, %v", at, got, err)
	}
}

func wantCode(t *testing.T, err error, code api.Code) {
	t.Helper()
	if api.CodeOf(err) != code {
		t.Errorf("error is %v, want code %s", err, code)
	}
}

// TestPublished publishes a port, opens the store again as a next daemon does, and ends it.
func TestPublished(t *testing.T) {
	h := newHost(t, echo(t))
	p := h.publish("a", api.PublishRequest{Port: 80})
	if p.Port != 80 || p.Address != "127.0.0.1" || p.HostPort == 0 || p.Protected || p.Error != "" {
		t.Errorf("published is %+v", p)
	}
	wantEcho(t, p.At())
	h.Close()
	if _, err := net.Dial("tcp", p.At()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("without a daemon: %v", err)
	}
	h.open()
	wantEcho(t, p.At())
	if l := h.list("a"); len(l) != 1 || l[0].HostPort != p.HostPort || l[0].Port != 80 {
		t.Errorf("listed are %+v", l)
	}
	if l := h.list("b"); len(l) != 0 {
		t.Errorf("of the other sandbox are listed %+v", l)
	}
	if l := h.list("a"); l[0].Accepted != 1 || l[0].LastUsedAt == nil || l[0].Refused != 0 {
		t.Errorf("the use since the second start is %+v", l[0])
	}
	wantCode(t, h.UnpublishPort(owner, "b", p.HostPort), api.CodeNotFound)
	open := dial(t, p.At())
	ctx, note := audit.Begin(owner, "unpublish-port", "")
	if err := h.UnpublishPort(ctx, "a", p.HostPort); err != nil {
		t.Fatal(err)
	}
	if e := note.Entry(); e.Object != "a" || e.Details == nil || e.Details.Port != 80 || e.Details.Listen != p.At() {
		t.Errorf("the audit has %+v, %+v", e, e.Details)
	}
	want := []string{"port_published a 80 " + p.At() + " 0", "port_unpublished a 80 " + p.At() + " 0"}
	if !slices.Equal(h.events, want) {
		t.Errorf("events are %q, want %q", h.events, want)
	}
	if u := h.Usage(); u.Ports != 0 || u.Accepted < 1 || u.Refused != 0 {
		t.Errorf("the use of all is %+v", u)
	}
	if _, err := open.Read(make([]byte, 1)); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("an open connection reads %v", err)
	}
	wantCode(t, h.UnpublishPort(owner, "a", p.HostPort), api.CodeNotFound)
	// The port is free at once.
	if again := h.publish("b", api.PublishRequest{Port: 81, HostPort: p.HostPort}); again.HostPort != p.HostPort {
		t.Errorf("published again on %+v", again)
	}
	h.Close()
	h.open()
	if l := h.list("a"); len(l) != 0 {
		t.Errorf("after the end are listed %+v", l)
	}
}

// TestEndsWithTheSandbox destroys sandboxes, one of them while no daemon knows.
func TestEndsWithTheSandbox(t *testing.T) {
	h := newHost(t, echo(t))
	a, b := h.publish("a", api.PublishRequest{Port: 80}), h.publish("b", api.PublishRequest{Port: 80})
	h.destroy("a")
	if _, err := net.Dial("tcp", a.At()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("after the end of the sandbox: %v", err)
	}
	_, err := h.PublishPort(owner, "a", api.PublishRequest{Port: 80})
	wantCode(t, err, api.CodeNotFound)
	h.Close()
	h.mu.Lock()
	h.gone["b"] = true
	h.mu.Unlock()
	h.open()
	if _, err := net.Dial("tcp", b.At()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("after the end of the other sandbox: %v", err)
	}
	err = h.store.Each(t.Context(), store.Published, func(id string, _ []byte) error { return fmt.Errorf("a record of %s is left", id) })
	if err != nil {
		t.Error(err)
	}
}

// TestAnotherDescriptorOfTheListener is there while the daemon starts a process: the process has it from
// its fork to its execution. Nobody is accepted for that long.
func TestAnotherDescriptorOfTheListener(t *testing.T) {
	h := newHost(t, nil)
	p := h.publish("a", api.PublishRequest{Port: 80})
	f, err := h.groups["a"].endpoints[0].listener.File()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	h.destroy("a")
	if c, err := net.Dial("tcp", p.At()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("the port of a sandbox that is gone: %v", err)
		if err == nil {
			c.Close()
		}
	}
}

func TestRefused(t *testing.T) {
	h := newHost(t, echo(t))
	taken := h.publish("a", api.PublishRequest{Port: 80})
	for name, c := range map[string]struct {
		ctx  context.Context
		ref  string
		req  api.PublishRequest
		code api.Code
	}{
		"no port":           {owner, "a", api.PublishRequest{}, api.CodeInvalid},
		"port too high":     {owner, "a", api.PublishRequest{Port: 65536}, api.CodeInvalid},
		"host port":         {owner, "a", api.PublishRequest{Port: 80, HostPort: -1}, api.CodeInvalid},
		"name as address":   {owner, "a", api.PublishRequest{Port: 80, Address: "localhost"}, api.CodeInvalid},
		"another's address": {owner, "a", api.PublishRequest{Port: 80, Address: "192.0.2.1"}, api.CodeInvalid},
		"short token":       {owner, "a", api.PublishRequest{Port: 80, Token: "short"}, api.CodeInvalid},
		"token with spaces": {owner, "a", api.PublishRequest{Port: 80, Token: "a token with white space"}, api.CodeInvalid},
		"no sandbox":        {owner, "c", api.PublishRequest{Port: 80}, api.CodeNotFound},
		"taken":             {owner, "b", api.PublishRequest{Port: 80, HostPort: taken.HostPort}, api.CodeConflict},
		"all addresses":     {tenant, "a", api.PublishRequest{Port: 80, Address: "0.0.0.0"}, api.CodeForbidden},
		"a tenant's low":    {tenant, "a", api.PublishRequest{Port: 80, HostPort: 1023}, api.CodeForbidden},
	} {
		if _, err := h.PublishPort(c.ctx, c.ref, c.req); api.CodeOf(err) != c.code {
			t.Errorf("%s: %v, want %s", name, err, c.code)
		}
	}
	if _, err := h.PublishPort(tenant, "a", api.PublishRequest{Port: 80}); err != nil {
		t.Errorf("a tenant on loopback: %v", err)
	}
	for _, ipv6 := range []string{"::1", "::ffff:127.0.0.1"} {
		if p := h.publish("b", api.PublishRequest{Port: 80, Address: ipv6}); p.Error != "" {
			t.Errorf("%s: %+v", ipv6, p)
		} else {
			wantEcho(t, p.At())
		}
	}
	for len(h.list("b")) < maxPorts {
		h.publish("b", api.PublishRequest{Port: 80})
	}
	_, err := h.PublishPort(owner, "b", api.PublishRequest{Port: 80})
	wantCode(t, err, api.CodeLimit)
}

// TestErrorsOfListening has the kernel refuse a port as it does for an ordinary user.
func TestErrorsOfListening(t *testing.T) {
	h := newHost(t, nil)
	if _, err := listen(t.Context(), netip.MustParseAddrPort("127.0.0.1:1023")); err == nil {
		t.Skip("this user may listen on all ports")
	}
	_, err := h.PublishPort(owner, "a", api.PublishRequest{Port: 80, HostPort: 1023})
	wantCode(t, err, api.CodeUnsupported)
	if !strings.Contains(fmt.Sprint(err), "1024") {
		t.Errorf("the error does not say which ports may be used: %v", err)
	}
}

// TestTakenWhileNoDaemonRan has another program take a port, which is listened on again when
// that program has ended.
func TestTakenWhileNoDaemonRan(t *testing.T) {
	h := newHost(t, echo(t))
	p := h.publish("a", api.PublishRequest{Port: 80})
	h.Close()
	other, err := net.Listen("tcp", p.At())
	if err != nil {
		t.Fatal(err)
	}
	h.open()
	if l := h.list("a"); len(l) != 1 || !strings.Contains(l[0].Error, "in use") {
		t.Errorf("listed are %+v", l)
	}
	other.Close()
	polltest.Eventually(t, timeout, "it listens again", func() bool { return h.list("a")[0].Error == "" })
	wantEcho(t, p.At())
}

// TestManyConnections opens 100 connections at once, and then more than there is room for,
// which wait.
func TestManyConnections(t *testing.T) {
	h := newHost(t, echo(t))
	p := h.publish("a", api.PublishRequest{Port: 80})
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			text := strings.Repeat(strconv.Itoa(i)+" ", 1000)
			if got, err := exchange(p.At(), text); got != text+"end" || err != nil {
				t.Errorf("connection %d: %d bytes, %v", i, len(got), err)
			}
		})
	}
	wg.Wait()
	polltest.Eventually(t, timeout, "all are closed", func() bool { return h.list("a")[0].Connections == 0 })
	h.dials.Store(0)
	var open []*net.TCPConn
	for range maxOpen {
		open = append(open, dial(t, p.At()))
	}
	polltest.Eventually(t, timeout, "the room is used up", func() bool {
		return h.list("a")[0].Connections == maxOpen && h.dials.Load() == maxOpen
	})
	late := dial(t, p.At())
	if _, err := io.WriteString(late, "late "); err != nil {
		t.Fatal(err)
	}
	if n := h.dials.Load(); n != maxOpen {
		t.Errorf("%d connections to the sandbox, want %d", n, maxOpen)
	}
	wantEcho(t, h.publish("b", api.PublishRequest{Port: 80}).At()) // another sandbox has its own room
	open[0].Close()
	if err := late.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(late); string(b) != "late end" || err != nil {
		t.Errorf("the one that waited reads %q, %v", b, err)
	}
}

// TestNobodyListens resets connections to a port in the sandbox on which nobody listens.
func TestNobodyListens(t *testing.T) {
	h := newHost(t, nil)
	if _, err := exchange(h.publish("a", api.PublishRequest{Port: 1}).At(), ""); !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.ENOTCONN) {
		t.Errorf("the client reads %v", err)
	}
}
