package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/network/control"
	"ramet.dev/ramet/internal/network/gateway"
	"ramet.dev/ramet/internal/network/process"
	"ramet.dev/ramet/internal/network/wire"
	"ramet.dev/ramet/internal/polltest"
)

// TestMain lets the binary of the test be the gateway.
func TestMain(m *testing.M) {
	if code, is := process.Main(os.Args); is {
		os.Exit(code)
	}
	os.Exit(m.Run())
}

// daemon is a Host with the sentries of its sandboxes.
type daemon struct {
	*Host
	t   *testing.T
	cfg Config

	mu       sync.Mutex
	sentries map[string]*sentry // guarded by mu
}

// newConfig returns a configuration whose gateway ends with the test.
func newConfig(t *testing.T) Config {
	t.Helper()
	dir, err := os.MkdirTemp("", "host") // short, as sockets lie in it
	if err != nil {
		t.Fatal(err)
	}
	// The gateway may be another user.
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	hosts := filepath.Join(dir, "hosts")
	if err := os.WriteFile(hosts, []byte("192.0.2.1 a.example.org\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		client := control.NewClient(socket(dir))
		_ = client.End(context.Background()) // there may be none
		polltest.Eventually(t, 15*time.Second, "the gateway has ended", func() bool { return !alive(dir) })
		if t.Failed() {
			b, err := os.ReadFile(logFile(dir))
			t.Logf("log of the gateway: %s (%v)", b, err)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return Config{Dir: dir, Executable: "/proc/self/exe", Build: "b1", ResolvConf: "/nonexistent/resolv.conf", Hosts: hosts, Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Grace: time.Minute}
}

// newDaemon returns a daemon with such a gateway, and the sentries of another one.
func newDaemon(t *testing.T, cfg Config, before *daemon) *daemon {
	t.Helper()
	d := &daemon{t: t, sentries: map[string]*sentry{}}
	if before != nil {
		d.sentries = before.sentries
	}
	cfg.Attach = d.attach
	d.cfg, d.Host = cfg, New(cfg)
	t.Cleanup(d.Close)
	return d
}

// sentry is that of a sandbox.
type sentry struct {
	t        *testing.T
	mu       sync.Mutex
	channel  *wire.Channel // guarded by mu
	next     uint32
	attached chan struct{} // has one for each channel
}

// attach implements Config.Attach.
func (d *daemon) attach(_ context.Context, id string, end *os.File) error {
	d.mu.Lock()
	s := d.sentries[id]
	d.mu.Unlock()
	if s == nil {
		return errors.New("the sandbox has no sentry")
	}
	return s.attach(end)
}

// attach takes a duplicate of the end of a channel, as a sentry does to which it is sent.
func (s *sentry) attach(end *os.File) error {
	raw, err := end.SyscallConn()
	if err != nil {
		return err
	}
	var fd int
	var derr error
	if err := raw.Control(func(old uintptr) { fd, derr = syscall.Dup(int(old)) }); err != nil || derr != nil {
		return errors.Join(err, derr)
	}
	ch, err := wire.SentryChannel(os.NewFile(uintptr(fd), "channel"))
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.channel != nil {
		s.channel.Close()
	}
	s.channel = ch
	select {
	case s.attached <- struct{}{}:
	default:
	}
	return nil
}

// connect registers a sandbox as one that is made, and returns the sentry's end of its channel.
func connect(d *daemon, r gateway.Registration) (*os.File, error) {
	if err := d.Ready(d.t.Context()); err != nil {
		return nil, err
	}
	ours, theirs, err := wire.Pair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	if err := d.Put(d.t.Context(), r, theirs); err != nil {
		ours.Close()
		return nil, err
	}
	return ours, nil
}

// create makes a sandbox whose policy allows something.
func (d *daemon) create(id string, allow ...string) *sentry {
	d.t.Helper()
	end, err := connect(d, registration(d.t, id, allow...))
	if err != nil {
		d.t.Fatal(err)
	}
	defer end.Close()
	s := &sentry{t: d.t, attached: make(chan struct{}, 10)}
	if err := s.attach(end); err != nil {
		d.t.Fatal(err)
	}
	<-s.attached
	d.mu.Lock()
	d.sentries[id] = s
	d.mu.Unlock()
	d.t.Cleanup(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.channel.Close()
	})
	return s
}

func registration(t *testing.T, id string, allow ...string) gateway.Registration {
	t.Helper()
	r := gateway.Registration{ID: id, Name: id}
	for _, text := range allow {
		rule, err := api.ParseNetworkRule("allow", text)
		if err != nil {
			t.Fatal(err)
		}
		r.Policy.Document.Allow = append(r.Policy.Document.Allow, rule)
	}
	return r
}

// dial asks for a connection.
func (s *sentry) dial(address string) (conn *os.File, code wire.Code, err error) {
	s.mu.Lock()
	ch := s.channel
	s.next++
	flow := s.next
	s.mu.Unlock()
	at := netip.MustParseAddrPort(address)
	if err := ch.Send(&wire.Message{Kind: wire.Dial, Protocol: wire.TCP, Flow: flow, Address: at.Addr(), Port: at.Port()}, -1); err != nil {
		return nil, 0, err
	}
	for {
		var got wire.Message
		var file *os.File
		if err := ch.Receive(func(m wire.Message, f *os.File) error { got, file = m, f; return nil }); err != nil {
			return nil, 0, err
		}
		if got.Kind == wire.Verdict && got.Flow == flow {
			if file != nil {
				s.t.Cleanup(func() { file.Close() })
			}
			return file, got.Code, nil
		}
	}
}

// open is dial for what must be allowed.
func (s *sentry) open(address string) *os.File {
	s.t.Helper()
	conn, code, err := s.dial(address)
	if conn == nil {
		s.t.Fatalf("dial %s: %v, %v", address, code, err)
	}
	return conn
}

func trip(conn *os.File, words string) error {
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return err
	}
	if _, err := io.WriteString(conn, words); err != nil {
		return err
	}
	b := make([]byte, len(words))
	_, err := io.ReadFull(conn, b)
	return err
}

// echoes runs a server that sends back what it is sent.
func echoes(t *testing.T) string {
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
			wg.Go(func() { _, _ = io.Copy(c, c); c.Close() })
		}
	})
	t.Cleanup(func() { l.Close(); wg.Wait() })
	return l.Addr().String()
}

func (d *daemon) pid() int {
	d.t.Helper()
	h, err := d.Hello(d.t.Context())
	if err != nil || h.PID == 0 {
		d.t.Fatalf("hello: %+v, %v", h, err)
	}
	return h.PID
}

func TestAGatewayIsStartedWhenItIsNeeded(t *testing.T) {
	d := newDaemon(t, newConfig(t), nil)
	if err := d.Adopt(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if h, err := d.Hello(t.Context()); err != nil || h.PID != 0 {
		t.Errorf("there is a gateway without a sandbox: %+v, %v", h, err)
	}
	server := echoes(t)
	s := d.create("one", server)
	if err := trip(s.open(server), "words"); err != nil {
		t.Error(err)
	}
	if _, code, err := s.dial("127.0.0.1:1"); code != wire.CodeRefused || err != nil {
		t.Errorf("what is not allowed: %v, %v", code, err)
	}
	h, err := d.Hello(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range h.Confinement {
		t.Logf("%s: %v %s", l.Name, l.On, l.Reason)
		if !l.On && l.Reason == "" {
			t.Errorf("%s is off without a reason", l.Name)
		}
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", h.PID))
	if err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 && strings.Contains(string(status), "\nUid:\t0") {
		t.Errorf("the gateway is root")
	}
	if !strings.Contains(string(status), "\nSeccomp:\t2") {
		t.Errorf("the gateway has no filter:\n%s", status)
	}
	if err := d.Remove(t.Context(), "one"); err != nil {
		t.Fatal(err)
	}
	if err := d.Remove(t.Context(), "one"); err != nil {
		t.Errorf("removed once more: %v", err)
	}
	if _, _, err := s.dial(server); err == nil {
		t.Error("a sandbox that was removed has a network")
	}
}

// TestAGatewayThatIsKilled is killed while bytes pass, again and again. What it had ends, and what
// comes after has the policy that it had.
func TestAGatewayThatIsKilled(t *testing.T) {
	d := newDaemon(t, newConfig(t), nil)
	server := echoes(t)
	sentries := map[string]*sentry{"one": d.create("one", server), "two": d.create("two", "192.0.2.1:1")}
	for range 5 {
		conn := sentries["one"].open(server)
		passing := make(chan error, 1)
		go func() {
			for {
				if err := trip(conn, "words"); err != nil {
					passing <- err
					return
				}
			}
		}()
		pid := d.pid()
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if err := <-passing; err == nil {
			t.Error("a flow outlived its gateway")
		}
		for id, s := range sentries {
			select {
			case <-s.attached:
			case <-time.After(20 * time.Second):
				t.Fatalf("%s has no new channel", id)
			}
		}
		if now := d.pid(); now == pid {
			t.Errorf("process %d again", pid)
		}
		if err := trip(sentries["one"].open(server), "words"); err != nil {
			t.Error(err)
		}
		if _, code, err := sentries["two"].dial(server); code != wire.CodeRefused || err != nil {
			t.Errorf("the policy is wider than before: %v, %v", code, err)
		}
	}
}

func TestTheNextDaemonFindsTheGateway(t *testing.T) {
	cfg := newConfig(t)
	first := newDaemon(t, cfg, nil)
	server, other := echoes(t), echoes(t)
	kept := first.create("kept", server, other)
	first.create("gone", server)
	conn, cut := kept.open(server), kept.open(other)
	pid := first.pid()
	first.Close()
	if err := trip(conn, "no daemon"); err != nil {
		t.Errorf("without a daemon: %v", err)
	}
	second := newDaemon(t, cfg, first)
	// The first has ended in the middle of making a sandbox, and the policy was made narrower.
	if err := second.Adopt(t.Context(), []gateway.Registration{registration(t, "kept", server), registration(t, "lost", server)}); err != nil {
		t.Fatalf("adopt: %v", err)
	}
	if second.sandboxes["kept"].cut || !second.sandboxes["lost"].cut {
		t.Errorf("the one is cut off: %t; the other, which takes no channel: %t", second.sandboxes["kept"].cut, second.sandboxes["lost"].cut)
	}
	if now := second.pid(); now != pid {
		t.Errorf("process %d in place of %d", now, pid)
	}
	if err := trip(conn, "the second daemon"); err != nil {
		t.Errorf("a flow of before: %v", err)
	}
	if err := trip(cut, "not allowed"); err == nil {
		t.Error("a flow is open that the policy does not allow")
	}
	ids, err := second.Client().List(t.Context())
	if err != nil || !strings.Contains(fmt.Sprint(ids), "kept") || strings.Contains(fmt.Sprint(ids), "gone") {
		t.Errorf("the gateway has %v, %v", ids, err)
	}
	// A daemon of another build has another gateway, and its sandboxes move there.
	second.Close()
	cfg.Build = "b2"
	third := newDaemon(t, cfg, second)
	if err := third.Adopt(t.Context(), []gateway.Registration{registration(t, "kept", server)}); err != nil {
		t.Fatalf("adopt: %v", err)
	}
	<-kept.attached
	if now := third.pid(); now == pid {
		t.Error("the gateway of another build serves")
	}
	if err := trip(kept.open(server), "the third"); err != nil {
		t.Error(err)
	}
}

func TestAGatewayThatHangs(t *testing.T) {
	cfg := newConfig(t)
	first := newDaemon(t, cfg, nil)
	first.create("one", "192.0.2.1:1")
	pid := first.pid()
	first.Close()
	stop(t, pid)
	second := newDaemon(t, cfg, first)
	if err := second.Adopt(t.Context(), []gateway.Registration{registration(t, "one", "192.0.2.1:1")}); err != nil {
		t.Fatalf("adopt: %v", err)
	}
	if now := second.pid(); now == pid {
		t.Error("a gateway that hangs serves")
	}
}

func TestAGatewayThatCannotStartSaysWhy(t *testing.T) {
	cfg := newConfig(t)
	if err := os.MkdirAll(filepath.Join(socket(cfg.Dir), "in the way"), 0o755); err != nil {
		t.Fatal(err)
	}
	d := newDaemon(t, cfg, nil)
	if _, err := connect(d, registration(t, "one")); err == nil || !strings.Contains(err.Error(), "gateway.sock") {
		t.Errorf("connect: %v", err)
	}
	cfg = newConfig(t)
	cfg.Executable = "/bin/false"
	d = newDaemon(t, cfg, nil)
	if _, err := connect(d, registration(t, "one")); api.CodeOf(err) != api.CodeUnavailable {
		t.Errorf("connect: %v", err)
	}
	d.Close()
	if _, err := connect(d, registration(t, "one")); err == nil {
		t.Error("a daemon that has ended connects a sandbox")
	}
}

// TestAGatewayThatCannotBeTold ends between the start of a sandbox and its registration, and cannot be
// started for a while: what the guest asks for is answered when it is there again.
func TestAGatewayThatCannotBeTold(t *testing.T) {
	cfg := newConfig(t)
	d := newDaemon(t, cfg, nil)
	d.create("first", "192.0.2.1:1") // has the gateway started
	d.Host.cfg.Executable = "/bin/false"
	if err := syscall.Kill(d.pid(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	polltest.Eventually(t, 15*time.Second, "the gateway has ended", func() bool { return !alive(cfg.Dir) })
	ours, theirs, err := wire.Pair()
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	s := &sentry{t: t, attached: make(chan struct{}, 10)}
	if err := s.attach(ours); err != nil {
		t.Fatal(err)
	}
	<-s.attached
	d.mu.Lock()
	d.sentries["late"] = s
	d.mu.Unlock()
	server := echoes(t)
	if err := d.Put(t.Context(), registration(t, "late", server), theirs); err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	if err := d.take(t.Context()); err != nil {
		t.Fatal(err)
	}
	d.Host.cfg.Executable = cfg.Executable
	d.give()
	select {
	case <-s.attached:
	case <-time.After(20 * time.Second):
		t.Fatal("the sandbox has no channel")
	}
	if err := trip(s.open(server), "words"); err != nil {
		t.Error(err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.channel.Close()
}

func TestAPolicyThatIsNone(t *testing.T) {
	d := newDaemon(t, newConfig(t), nil)
	bad := registration(t, "one")
	bad.Policy.Document.Default = "sometimes"
	if _, err := connect(d, bad); api.CodeOf(err) != api.CodeInvalid {
		t.Errorf("connect: %v", err)
	}
	server := echoes(t)
	s := d.create("one", server)
	if err := d.Put(t.Context(), bad, nil); api.CodeOf(err) != api.CodeInvalid {
		t.Errorf("replace: %v", err)
	}
	if err := trip(s.open(server), "the old policy"); err != nil {
		t.Error(err)
	}
	if err := d.Put(t.Context(), registration(t, "two"), nil); err == nil || !strings.Contains(err.Error(), "has no sentry") {
		t.Errorf("connect one that takes no channel: %v", err)
	}
	if d.Has("two") || !d.Has("one") {
		t.Errorf("one that could not be connected is there: %t; one that is: %t", d.Has("two"), d.Has("one"))
	}
}

// TestManySandboxes measures the memory of the gateway with 500 that do nothing.
func TestManySandboxes(t *testing.T) {
	d := newDaemon(t, newConfig(t), nil)
	began := time.Now()
	for i := range 500 {
		end, err := connect(d, registration(t, fmt.Sprint("sandbox", i), "a.example.org", "*.b.example.org", "10.1.0.0/16:5432"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { end.Close() })
	}
	each := time.Since(began) / 500
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", d.pid()))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "VmRSS:")
	rss, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("500 idle sandboxes: %d KiB resident, %v to connect one", rss, each)
	if rss > 64<<10 && !raceEnabled {
		t.Errorf("500 idle sandboxes: %d KiB resident", rss)
	}
}
