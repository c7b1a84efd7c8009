package network

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/test/harness"
)

// world is a server of HTTP at files.example.org that counts what it is asked.
type world struct {
	mu       sync.Mutex
	asked    []string
	keys     []string // the X-Key of each
	location string   // where it sends those who ask, if it does
}

// redirect has the server send those who ask elsewhere.
func (w *world) redirect(to string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.location = to
}

func (w *world) seen() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Join(w.asked, "; ")
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{}
	l, err := net.Listen("tcp", "198.51.100.1:80")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: http.HandlerFunc(func(a http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		w.mu.Lock()
		w.asked = append(w.asked, fmt.Sprint(r.Method, " ", r.URL.Path, " ", string(b)))
		w.keys = append(w.keys, r.Header.Get("X-Key"))
		n, location := len(w.asked), w.location
		w.mu.Unlock()
		if location != "" {
			http.Redirect(a, r, location, http.StatusFound)
			return
		}
		fmt.Fprintf(a, "%d %s", n, r.Header.Get("X-Key"))
	})}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() { s.Close(); <-served })
	return w
}

const site = "http://files.example.org"

// request has a guest make a request, and returns what it prints.
func request(n *harness.Node, ref, method, path, body string) string {
	n.T.Helper()
	return strings.TrimSpace(n.Guest(ref, "outside", "request", method, site+path, body))
}

// rules asks for a network with a treatment of the server.
func rules(t testing.TB, treatment api.NetworkTreatment) *api.NetworkRequest {
	req := allow(t, "files.example.org")
	req.Rules = map[string]api.NetworkTreatment{"files.example.org": treatment}
	return req
}

// TestSecret puts a secret into requests whose sandbox has a placeholder.
func TestSecret(t *testing.T) {
	n := newNode(t)
	w := newWorld(t)
	setAs := func(ctx context.Context, value string) {
		t.Helper()
		_, err := n.Machine.SetSecret(ctx, "KEY", api.SecretRequest{Value: value, SecretBinding: api.SecretBinding{Names: []string{"files.example.org"}, Header: "X-Key", Plain: true}})
		if err != nil {
			t.Fatal(err)
		}
	}
	set := func(value string) { t.Helper(); setAs(harness.AsOwner, value) }
	set("first-value")
	create(n, "agent", rules(t, api.NetworkTreatment{Secret: &api.NetworkSecret{Header: "X-Key", Value: "${KEY}", Plain: true}, Methods: []string{"GET"}}))
	env := n.Guest("agent", "env", "KEY")
	if !strings.Contains(env, "ramet-secret-") || strings.Contains(env, "first-value") {
		t.Errorf("the guest has %q", env)
	}
	// The server answers with the header, which is masked for the guest.
	got := request(n, "agent", "GET", "/", "")
	if !strings.HasPrefix(got, "200 1 ") || strings.Contains(got, "first-value") || strings.TrimSpace(got) == "200 1" {
		t.Errorf("the answer is %q", got)
	}
	if got := request(n, "agent", "POST", "/", "x"); !strings.HasPrefix(got, "403 ") {
		t.Errorf("a method that is not allowed: %q", got)
	}
	set("second-value")
	if got := request(n, "agent", "GET", "/", ""); !strings.HasPrefix(got, "200 ") {
		t.Errorf("with the second value: %q", got)
	}
	child := n.Fork("agent", 1)[0]
	n.Reopen()
	for _, ref := range []string{"agent", child.ID} {
		if got := request(n, ref, "GET", "/", ""); !strings.HasPrefix(got, "200 ") || strings.Contains(got, "second-value") || len(strings.Fields(got)) != 3 {
			t.Errorf("%s: the answer is %q", ref, got)
		}
	}
	if got := strings.Join(w.keys, " "); got != "first-value second-value second-value second-value" {
		t.Errorf("the server was given %s", got)
	}
	// A change reaches all who have the secret, also if who made it has gone, and sandboxes end meanwhile.
	n.ForkNamed("agent", "ends", "ends-too")
	var wg sync.WaitGroup
	for _, ref := range []string{"ends", "ends-too"} {
		wg.Go(func() { n.Destroy(ref) })
	}
	left, leave := context.WithCancel(harness.AsOwner)
	leave()
	setAs(left, "third-value")
	wg.Wait()
	for _, ref := range []string{"agent", child.ID} {
		if got := request(n, ref, "GET", "/", ""); !strings.HasPrefix(got, "200 ") || w.keys[len(w.keys)-1] != "third-value" {
			t.Errorf("%s: with the third value: %q; the server was given %q", ref, got, w.keys)
		}
	}
	if err := n.Machine.RemoveSecret(harness.AsOwner, "KEY"); err != nil {
		t.Fatal(err)
	}
	if out, err := n.Exec("agent", "outside", "request", "GET", site+"/", ""); err != nil || out.ExitCode == 0 && strings.HasPrefix(out.Stdout.String(), "200") {
		t.Errorf("without the secret: %s, %v", out.Stdout.String(), err)
	}
}

// TestHeldWrites holds what branches would change until one is promoted.
func TestHeldWrites(t *testing.T) {
	n := newNode(t)
	w := newWorld(t)
	serve(t, "198.51.100.2:5432", echoes)
	create(n, "base", allow(t, "files.example.org", "198.51.100.2:5432"))
	r, err := n.Machine.Fork(harness.AsOwner, "base", api.ForkRequest{Count: 3, Hold: api.HoldWrites})
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for i, c := range n.Children(r) {
		ids = append(ids, c.ID)
		if env := n.Guest(c.ID, "say", "env:SSL_CERT_FILE"); strings.TrimSpace(env) == "" {
			t.Errorf("programs of a child are not told of the authority")
		}
		if got := request(n, c.ID, "GET", "/read", ""); !strings.HasPrefix(got, "200 ") {
			t.Errorf("a child reads %q", got)
		}
		n.Start(c.ID, api.StartRequest{}, "outside", "request", "POST", site+"/write", fmt.Sprint("of ", i))
		mustReach(n, c.ID, map[string]string{"198.51.100.2:5432": refused})
		awaitHeld(n, c.ID, "POST /write waiting")
	}
	// Neither a restart of the daemon nor the end of the gateway loses or sends one.
	n.Reopen()
	if err := syscall.Kill(gatewayOf(n), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		awaitHeld(n, id, "POST /write waiting")
	}
	if got := w.seen(); strings.Contains(got, "POST") {
		t.Fatalf("what is held was sent: %s", got)
	}
	if _, err := n.Machine.Promote(harness.AsOwner, ids[1]); err != nil {
		t.Fatal(err)
	}
	if got := w.seen(); !strings.Contains(got, "POST /write of 1") {
		t.Errorf("the server has seen %s", got)
	}
	if _, err := n.Machine.ReleaseHeld(harness.AsOwner, ids[2], api.HeldRelease{}); err != nil {
		t.Fatal(err)
	}
	n.Destroy(ids[0])
	n.Reopen()
	if got := w.seen(); strings.Count(got, "POST /write of 1") != 1 || strings.Count(got, "POST /write of 2") != 1 || strings.Contains(got, "of 0") {
		t.Errorf("the server has seen %s", got)
	}
	// The winner's parent writes as before.
	if got := request(n, "base", "POST", "/after", "x"); !strings.HasPrefix(got, "200 ") {
		t.Errorf("the parent writes %q", got)
	}
	mustReach(n, "base", map[string]string{"198.51.100.2:5432": connected})
}

// awaitHeld waits until the held requests of a sandbox are those.
func awaitHeld(n *harness.Node, ref, want string) {
	n.T.Helper()
	harness.Eventually(n.T, "held requests", func() error {
		list, err := n.Machine.HeldRequests(harness.AsOwner, ref)
		if err != nil {
			return err
		}
		var got []string
		for _, r := range list {
			got = append(got, fmt.Sprint(r.Method, " ", r.Target, " ", r.State))
		}
		if strings.Join(got, "; ") != want {
			return fmt.Errorf("they are %v, not %s", got, want)
		}
		return nil
	})
}

// gatewayOf returns the process of the gateway, which answers.
func gatewayOf(n *harness.Node) (pid int) {
	n.T.Helper()
	harness.Eventually(n.T, "gateway", func() error {
		if pid = n.Gateway(); pid == 0 {
			return fmt.Errorf("there is none")
		}
		return nil
	})
	return pid
}

// TestRecordedAnswers lets the children of a fork see one world.
func TestRecordedAnswers(t *testing.T) {
	n := newNode(t)
	w := newWorld(t)
	create(n, "base", allow(t, "files.example.org"))
	r, err := n.Machine.Fork(harness.AsOwner, "base", api.ForkRequest{Count: 3, Record: true})
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range n.Children(r) {
		if i == 1 {
			n.Reopen()
		}
		if got := request(n, c.ID, "GET", "/now", ""); got != "200 1" {
			t.Errorf("a child sees %q", got)
		}
	}
	if got := w.seen(); got != "GET /now " {
		t.Errorf("the server has seen %q", got)
	}
	if got := request(n, "base", "GET", "/now", ""); got != "200 2" {
		t.Errorf("the parent sees %q", got)
	}
}
