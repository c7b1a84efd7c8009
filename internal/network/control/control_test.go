package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/network/dns"
	"ramet.dev/ramet/internal/network/gateway"
	"ramet.dev/ramet/internal/network/held"
	"ramet.dev/ramet/internal/network/policy"
	"ramet.dev/ramet/internal/network/secrets"
	"ramet.dev/ramet/internal/network/wire"
	"ramet.dev/ramet/internal/polltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// served is a gateway with its server.
type served struct {
	*Client
	log  *Log
	done chan error
	stop context.CancelFunc
	held *heldRequests
}

func serve(t *testing.T, grace time.Duration) *served {
	t.Helper()
	dir, err := os.MkdirTemp("", "control") // short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "gateway.sock")
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	s := &served{Client: NewClient(path), log: &Log{}, held: &heldRequests{}, done: make(chan error, 1)}
	g := gateway.New(gateway.Config{
		Upstream: dns.NewUpstream("/nonexistent", "/nonexistent"), Log: s.log, Own: func(netip.Addr) bool { return false },
	})
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	server := NewServer(g, s.held, s.log, Hello{Build: "b1", PID: 7, Confinement: []Layer{{Name: "seccomp", On: true}}}, grace)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		err := server.Serve(ctx, l)
		g.Close()
		s.done <- err
	}()
	t.Cleanup(func() {
		stop()
		<-ended
	})
	return s
}

// wait returns when the server has ended.
func (s *served) wait(t *testing.T) {
	t.Helper()
	select {
	case err := <-s.done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("the server does not end")
	}
}

func registration(id string, allow ...string) gateway.Registration {
	r := gateway.Registration{ID: id, Name: id}
	for _, a := range allow {
		rule, err := api.ParseNetworkRule("allow", a)
		if err != nil {
			panic(err)
		}
		r.Policy.Document.Allow = append(r.Policy.Document.Allow, rule)
	}
	return r
}

// add registers a sandbox and returns the sentry's end of its channel.
func (s *served) add(t *testing.T, r gateway.Registration) *wire.Channel {
	t.Helper()
	ours, theirs, err := wire.Pair()
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	if err := s.Add(t.Context(), r, theirs); err != nil {
		ours.Close()
		t.Fatal(err)
	}
	ch, err := wire.SentryChannel(ours)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ch.Close() })
	return ch
}

// dial asks for a connection and returns the verdict.
func dial(t *testing.T, ch *wire.Channel, address string) (code wire.Code) {
	t.Helper()
	at := netip.MustParseAddrPort(address)
	if err := ch.Send(&wire.Message{Kind: wire.Dial, Protocol: wire.TCP, Address: at.Addr(), Port: at.Port()}, -1); err != nil {
		t.Fatal(err)
	}
	err := ch.Receive(func(m wire.Message, f *os.File) error {
		code = m.Code
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return code
}

func TestCalls(t *testing.T) {
	s := serve(t, time.Minute)
	ctx := t.Context()
	if h, err := s.Hello(ctx); err != nil || h.Build != "b1" || h.PID != 7 || len(h.Confinement) != 1 {
		t.Errorf("hello: %+v, %v", h, err)
	}
	ch := s.add(t, registration("one", "192.0.2.1:1"))
	if ids, err := s.List(ctx); err != nil || !slices.Equal(ids, []string{"one"}) {
		t.Errorf("list: %v, %v", ids, err)
	}
	if r, err := s.Test(ctx, "one", "192.0.2.1", "tcp", 1); err != nil || !r.Allowed {
		t.Errorf("test: %+v, %v", r, err)
	}
	if _, err := s.Test(ctx, "one", "192.0.2.1", "sctp", 1); api.CodeOf(err) != api.CodeInvalid {
		t.Errorf("test of an unknown protocol: %v", err)
	}
	if err := s.Replace(ctx, registration("one", "192.0.2.1:2")); err != nil {
		t.Fatal(err)
	}
	if code := dial(t, ch, "192.0.2.1:1"); code != wire.CodeRefused {
		t.Errorf("the new policy gives the verdict %v", code)
	}
	if st, err := s.Stats(ctx); err != nil || st.Sandboxes != 1 || st.Denied != 1 || st.Waiting.Waiting != 3 || st.Waiting.Bytes != 7 {
		t.Errorf("stats: %+v, %v", st, err)
	}
	for range 2 {
		err := s.Remove(ctx, "one")
		if ids, lerr := s.List(ctx); lerr != nil || len(ids) != 0 {
			t.Errorf("removed, but %v is left (%v)", ids, lerr)
		}
		if err != nil && api.CodeOf(err) != api.CodeNotFound {
			t.Errorf("remove: %v", err)
		}
	}
	if err := s.End(ctx); err != nil {
		t.Error(err)
	}
	s.wait(t)
	if _, err := s.Hello(ctx); err == nil {
		t.Error("the gateway answers after its end")
	}
}

func TestCallsThatFail(t *testing.T) {
	s := serve(t, time.Minute)
	ctx := t.Context()
	bad := registration("bad")
	bad.Policy.Document.Default = "sometimes"
	ours, theirs, err := wire.Pair()
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	defer theirs.Close()
	for name, err := range map[string]error{
		"a policy that is none":   s.Add(ctx, bad, theirs),
		"no name":                 s.Add(ctx, registration(""), theirs),
		"no channel":              s.register(ctx, opAdd, &gateway.Registration{ID: "x"}),
		"unknown sandbox":         s.Replace(ctx, registration("none")),
		"unknown call":            s.call(ctx, &call{Op: "dance"}, nil),
		"no registration":         s.call(ctx, &call{Op: opReplace}, nil),
		"no connection is tested": s.call(ctx, &call{Op: opTest}, nil),
	} {
		if err == nil {
			t.Errorf("%s: it worked", name)
		}
	}
	if ids, err := s.List(ctx); err != nil || len(ids) != 0 {
		t.Errorf("registered: %v, %v", ids, err)
	}
	canceled, cancel := context.WithCancelCause(ctx)
	why := errors.New("enough")
	cancel(why)
	if _, err := s.Hello(canceled); err != why {
		t.Errorf("a call with a context that has ended: %v", err)
	}
}

func TestALargePolicy(t *testing.T) {
	s := serve(t, time.Minute)
	r := registration("one")
	for i := range 1000 {
		rule, err := api.ParseNetworkRule("allow", fmt.Sprintf("%s%d.example.org", strings.Repeat("x", 50), i))
		if err != nil {
			t.Fatal(err)
		}
		r.Policy.Document.Allow = append(r.Policy.Document.Allow, rule)
		if i%250 == 0 {
			r.Policy.Bounds = append(r.Policy.Bounds, policy.Bound{Of: "the daemon", Document: r.Policy.Document})
		}
	}
	s.add(t, r)
	if got, err := s.Test(t.Context(), "one", strings.Repeat("x", 50)+"0.example.org", "tcp", 443); err != nil || !got.Allowed {
		t.Errorf("test: %+v, %v", got, err)
	}
}

func TestTheLogIsFollowed(t *testing.T) {
	for name, c := range map[string]struct {
		sandbox string
		kept    bool
		want    []string
	}{
		"all":            {"", true, []string{"old0", "old1", "old2", "new0"}},
		"of one sandbox": {"new", true, []string{"new0"}},
		"to come":        {"", false, []string{"new0"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, time.Minute)
			for i := range 3 {
				s.log.Add(api.NetworkLogEntry{Sandbox: "old", Flow: uint64(i)})
			}
			ctx, cancel := context.WithCancel(t.Context())
			got := make(chan string, 100)
			done := make(chan error, 1)
			go func() {
				done <- s.Log(ctx, Reading{Sandbox: c.sandbox, Kept: c.kept, Follow: true}, func(l Line) error {
					got <- fmt.Sprint(l.Sandbox, l.Flow)
					return nil
				})
			}()
			eventuallyRead(t, s.log)
			s.log.Add(api.NetworkLogEntry{Sandbox: "new"})
			for i, want := range c.want {
				if line := <-got; line != want {
					t.Errorf("line %d is %s, want %s", i, line, want)
				}
			}
			cancel()
			if err := <-done; !errors.Is(err, context.Canceled) {
				t.Errorf("the log ends with %v", err)
			}
		})
	}
}

func TestTheLogIsReadToItsEnd(t *testing.T) {
	s := serve(t, time.Minute)
	for i := range 200 {
		s.log.Add(api.NetworkLogEntry{Sandbox: "one", Flow: uint64(i)})
	}
	n := 0
	err := s.Log(t.Context(), Reading{Sandbox: "one", Kept: true}, func(l Line) error { n++; return nil })
	if err != nil || n != 200 {
		t.Errorf("%d lines, %v", n, err)
	}
}

func TestTheEndOfTheGatewayEndsItsLog(t *testing.T) {
	s := serve(t, time.Minute)
	done := make(chan error, 1)
	go func() { done <- s.Log(t.Context(), Reading{Follow: true}, func(Line) error { return nil }) }()
	eventuallyRead(t, s.log)
	s.stop()
	if err := <-done; !errors.Is(err, io.EOF) {
		t.Errorf("the end of the gateway ends the log with %v", err)
	}
}

// eventuallyRead waits until a reader of the log waits.
func eventuallyRead(t *testing.T, l *Log) {
	t.Helper()
	polltest.Eventually(t, 10*time.Second, "somebody reads the log", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.readers) > 0
	})
}

func TestTheGatewayEndsWhenNobodyNeedsIt(t *testing.T) {
	const grace = 2 * time.Second // in which somebody must come, on a slow machine, too
	s := serve(t, grace)
	ctx, cancel := context.WithCancel(t.Context())
	ended, err := s.Watch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	ch := s.add(t, registration("one"))
	cancel()
	<-ended
	// A sandbox needs it, though no daemon watches.
	<-time.After(grace + grace/2) // in which nothing happens
	if _, err := s.Hello(t.Context()); err != nil {
		t.Fatalf("the gateway ended with a sandbox: %v", err)
	}
	ch.Close()
	s.wait(t)
}

func TestWatchSeesTheEnd(t *testing.T) {
	s := serve(t, time.Minute)
	ended, err := s.Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s.stop()
	<-ended
	s.wait(t)
}

// heldRequests is a Held of tests.
type heldRequests struct {
	mu    sync.Mutex
	calls []string
	under *gateway.Registration
	list  []held.Request
	wait  bool // Release waits until its caller hangs up
	ended chan error
}

func (h *heldRequests) Waiting() held.Stats { return held.Stats{Waiting: 3, Bytes: 7} }

func (h *heldRequests) note(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls = append(h.calls, fmt.Sprintf(format, args...))
}

// set changes what calls are answered with.
func (h *heldRequests) set(change func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	change()
}

func (h *heldRequests) setUnder(r *gateway.Registration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.under = r
}

// secret returns the secret of the registration that requests were released under last.
func (h *heldRequests) secret() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.under == nil {
		return ""
	}
	return h.under.Secrets[0].Value.Reveal()
}

func (h *heldRequests) take() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	defer func() { h.calls = nil }()
	return strings.Join(h.calls, ", ")
}

func (h *heldRequests) Held(sandbox string) ([]held.Request, error) {
	h.note("held %s", sandbox)
	if sandbox == "bad" {
		return nil, api.Errorf(api.CodeUnavailable, "requests cannot be held")
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.list, nil
}

func (h *heldRequests) Release(ctx context.Context, sandbox, id string, again bool, r *gateway.Registration) (held.Request, error) {
	h.note("release %s %s %t", sandbox, id, again)
	h.setUnder(r)
	h.mu.Lock()
	wait, ended := h.wait, h.ended
	h.mu.Unlock()
	if wait {
		<-ctx.Done()
		ended <- context.Cause(ctx)
		return held.Request{}, ctx.Err()
	}
	return held.Request{ID: id, State: held.Sent, Status: 201}, nil
}

func (h *heldRequests) ReleaseAll(_ context.Context, sandbox string, r *gateway.Registration) error {
	h.note("release all of %s", sandbox)
	h.setUnder(r)
	return nil
}

func (h *heldRequests) Drop(sandbox, id string) error { h.note("drop %s %s", sandbox, id); return nil }

func (h *heldRequests) DropAll(sandbox string, forget bool) error {
	h.note("drop all of %s, forget %t", sandbox, forget)
	return nil
}

func (h *heldRequests) DropUndone(u *held.Undone) error {
	h.note("drop undone of %s since %s until %s by %s", u.Sandbox, u.Since.Format(time.DateOnly), u.Until.Format(time.DateOnly), u.Run)
	return nil
}

func (h *heldRequests) Resume() { h.note("resume") }

func (h *heldRequests) Sending() bool { return false }

func TestHeldRequests(t *testing.T) {
	s := serve(t, time.Minute)
	ctx := t.Context()
	s.held.set(func() {
		for i := range 40 {
			s.held.list = append(s.held.list, held.Request{ID: fmt.Sprint(i), Target: "/" + strings.Repeat("<", 60<<10)})
		}
	})
	var ids []string
	if err := s.Held(ctx, "one", func(r held.Request) error { ids = append(ids, r.ID); return nil }); err != nil || len(ids) != 40 || ids[39] != "39" {
		t.Errorf("%d requests, %v", len(ids), err)
	}
	stop := errors.New("stop")
	if err := s.Held(ctx, "one", func(held.Request) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("a reader that stops: %v", err)
	}
	if err := s.Held(ctx, "bad", func(held.Request) error { return nil }); api.CodeOf(err) != api.CodeUnavailable {
		t.Errorf("a list that there is not: %v", err)
	}
	s.held.take()
	if r, err := s.Release(ctx, "one", "req_x", true, nil); err != nil || r.ID != "req_x" || r.State != held.Sent || r.Status != 201 || s.held.secret() != "" {
		t.Errorf("released %+v, %v", r, err)
	}
	under := secretRegistration("one")
	if err := s.ReleaseAll(ctx, "child", &under); err != nil || s.held.secret() != secretText {
		t.Errorf("released under %q, %v", s.held.secret(), err)
	}
	if err := errors.Join(s.Drop(ctx, "one", "req_y"), s.DropAll(ctx, "one", true)); err != nil {
		t.Error(err)
	}
	if got := s.held.take(); got != "release one req_x true, release all of child, drop one req_y, drop all of one, forget true" {
		t.Errorf("the calls are %s", got)
	}
	// A daemon that hangs up does not wait, and neither does the gateway.
	ended := make(chan error, 1)
	s.held.set(func() { s.held.wait, s.held.ended = true, ended })
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() {
		_, err := s.Release(ctx, "one", "req_z", false, nil)
		done <- err
	}()
	polltest.Eventually(t, 10*time.Second, "it is released", func() bool { return s.held.take() != "" })
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("the daemon is told %v", err)
	}
	if err := <-ended; !errors.Is(err, errHungUp) {
		t.Errorf("the gateway is told %v", err)
	}
}

const secretText = "sk-very-secret-0123456789"

func secretRegistration(id string) gateway.Registration {
	return gateway.Registration{
		ID: id, Authority: secrets.NewValue("key of the authority"), RecordGroup: "group",
		Secrets: []gateway.Secret{{Name: "KEY", Value: secrets.NewValue(secretText), Placeholder: "p", Binding: secrets.Binding{Names: []string{"a.example.org"}, Header: "X"}}},
	}
}

// TestSecretsOfARegistration pass in its file, and are in nothing else that is made of it.
func TestSecretsOfARegistration(t *testing.T) {
	r := secretRegistration("one")
	f, err := writeRegistration(&r)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	got, err := readRegistration(f)
	if err != nil || got.Authority.Reveal() != "key of the authority" || len(got.Secrets) != 1 || got.Secrets[0].Value.Reveal() != secretText ||
		got.Secrets[0].Placeholder != "p" || got.Secrets[0].Binding.Header != "X" || got.RecordGroup != "group" {
		t.Errorf("read %+v, %v", got, err)
	}
	b, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{string(b), fmt.Sprintf("%v %+v %#v", got, got, got), fmt.Sprintf("%+v", &got)} {
		if strings.Contains(text, secretText) || strings.Contains(text, "key of") {
			t.Errorf("the registration prints as %s", text)
		}
	}
	for _, bad := range []string{`{"id":"one","secrets":[{"name":"KEY"}]}`, `{"id":"one","values":["` + secretText + `"]}`, `{"id":"one","values":"` + secretText + `"}`, `{"values":["` + secretText, `{}`, ``} {
		if err := f.Truncate(0); err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt([]byte(bad), 0); err != nil {
			t.Fatal(err)
		}
		if r, err := readRegistration(f); err == nil || strings.Contains(err.Error(), secretText) {
			t.Errorf("%s is read as %+v, %v", bad, r, err)
		}
	}
}

func FuzzRegistration(f *testing.F) {
	r := secretRegistration("one")
	file, err := writeRegistration(&r)
	if err != nil {
		f.Fatal(err)
	}
	defer file.Close()
	good, err := io.ReadAll(io.NewSectionReader(file, 0, maxRegistration))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(`{"id":"x","secrets":[{}],"values":[""]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		file, err := os.CreateTemp(t.TempDir(), "")
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		if _, err := file.Write(b); err != nil {
			t.Fatal(err)
		}
		r, err := readRegistration(file)
		if err != nil {
			return
		}
		again, err := writeRegistration(&r)
		if err != nil {
			t.Fatal(err)
		}
		defer again.Close()
		if back, err := readRegistration(again); err != nil || back.ID != r.ID || len(back.Secrets) != len(r.Secrets) {
			t.Errorf("%+v is read again as %+v, %v", r, back, err)
		}
	})
}
