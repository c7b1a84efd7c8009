package treatment

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/network/gateway"
	"ramet.dev/ramet/internal/network/held"
	"ramet.dev/ramet/internal/polltest"
)

// holding holds the writes to the name, and puts the secret into all requests.
const holding = `{"rules": {"` + name + `": {"hold": "writes", "secret": {"header": "Authorization", "value": "Bearer ${KEY}"}}}}`

// counting is a server that counts the writes of each path.
func (w *world) counting(s *seen) {
	w.serve("443", func(rw http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		s.add(fmt.Sprintf("%s %s %s %s", r.Method, r.URL.Path, r.Header.Get("Authorization"), body))
		rw.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(rw, "made by "+r.Header.Get("Authorization"))
	})
}

// held waits until a sandbox has so many requests that wait, and returns their ids.
func (w *world) held(sandbox string, n int) (ids []string) {
	w.t.Helper()
	polltest.Eventually(w.t, 10*time.Second, fmt.Sprint(n, " requests wait"), func() bool {
		list, err := w.p.Held(sandbox)
		if err != nil {
			w.t.Fatal(err)
		}
		ids = nil
		for _, r := range list {
			if r.State == held.Waiting {
				ids = append(ids, r.ID)
			}
		}
		return len(ids) == n
	})
	return ids
}

func (w *world) state(id string) held.Request {
	w.t.Helper()
	list, err := w.p.Held("")
	if err != nil {
		w.t.Fatal(err)
	}
	i := slices.IndexFunc(list, func(r held.Request) bool { return r.ID == id })
	if i < 0 {
		w.t.Fatalf("there is no request %s", id)
	}
	return list[i]
}

func TestWritesAreHeld(t *testing.T) {
	w, s := newWorld(t, nil), &seen{}
	w.counting(s)
	g := w.newGuest("one", holding)
	c := g.client(true)
	if got := do(c, "GET", "https://"+name+"/read", "", nil); got.status != http.StatusCreated || len(s.take()) != 1 {
		t.Errorf("a read: %+v", got)
	}
	first := goes(c, "POST", "https://"+name+"/first?q=1", "body")
	id := w.held("one", 1)[0]
	w.logged("the write", func(e api.NetworkLogEntry) bool {
		return e.Verdict == api.NetworkHeld && e.Held == id && e.Status == 0 && e.Method == "POST" && e.Path == "/first"
	})
	entries, err := os.ReadDir(w.dir)
	if err != nil || len(entries) != 2 {
		t.Fatalf("%d files, %v", len(entries), err)
	}
	for _, e := range entries {
		if b, err := os.ReadFile(filepath.Join(w.dir, e.Name())); err != nil || bytes.Contains(b, []byte(value)) {
			t.Errorf("%s has the secret, or %v", e.Name(), err)
		}
	}
	if all := s.take(); all != nil {
		t.Errorf("the server saw %q", all)
	}
	for what, err := range map[string]error{
		"another's":  func() error { _, err := w.p.Release(t.Context(), "two", id, false, nil); return err }(),
		"none":       func() error { _, err := w.p.Release(t.Context(), "one", "req_x", false, nil); return err }(),
		"drop":       w.p.Drop("two", id),
		"drop of no": w.p.Drop("one", "req_x"),
	} {
		if api.CodeOf(err) != api.CodeNotFound {
			t.Errorf("%s: %v", what, err)
		}
	}
	if r, err := w.p.Release(t.Context(), "one", id, false, nil); err != nil || r.State != held.Sent || r.Status != http.StatusCreated {
		t.Errorf("released: %+v, %v", r, err)
	}
	if got := <-first; got.status != http.StatusCreated || got.body != "made by Bearer "+strings.Repeat("*", len(value)) {
		t.Errorf("the guest got %+v", got)
	}
	if all := s.take(); !slices.Equal(all, []string{"POST /first Bearer " + value + " body"}) {
		t.Errorf("the server saw %q", all)
	}
	w.logged("its end", func(e api.NetworkLogEntry) bool {
		return e.Verdict == api.NetworkHeld && e.Held == id && e.Status == http.StatusCreated
	})
	// What is dropped is never sent.
	dropped := goes(c, "PUT", "https://"+name+"/dropped", "body")
	if err := w.p.Drop("one", w.held("one", 1)[0]); err != nil {
		t.Error(err)
	}
	if got := <-dropped; got.status != http.StatusForbidden || !strings.Contains(got.body, "dropped") {
		t.Errorf("the guest got %+v", got)
	}
	all := []chan reply{goes(c, "DELETE", "https://"+name+"/a", ""), goes(c, "POST", "https://"+name+"/b", "")}
	w.held("one", 2)
	if err := w.p.DropAll("one", true); err != nil {
		t.Error(err)
	}
	for _, done := range all {
		if got := <-done; got.status != http.StatusForbidden {
			t.Errorf("the guest got %+v", got)
		}
	}
	if list, err := w.p.Held(""); err != nil || len(list) != 0 || len(s.take()) != 0 {
		t.Errorf("after all were dropped there are %+v, %v", list, err)
	}
	// A connection that becomes something else cannot be held.
	if got := do(g.client(false), "GET", "https://"+name+"/", "", func(r *http.Request) {
		r.Header.Set("Connection", "Upgrade")
		r.Header.Set("Upgrade", "websocket")
	}); got.status != http.StatusForbidden {
		t.Errorf("an upgrade: %+v", got)
	}
	w.logged("the refusal", func(e api.NetworkLogEntry) bool {
		return e.Verdict == api.NetworkDenied && strings.Contains(e.Rule, "upgraded")
	})
}

// TestReleasedUnderAnotherPolicy has requests of sandboxes that are gone, or whose policy has changed.
func TestReleasedUnderAnotherPolicy(t *testing.T) {
	w, s := newWorld(t, nil), &seen{}
	w.counting(s)
	g := w.newGuest("child", strings.Replace(holding, `"writes"`, `"writes", "hold_timeout_ms": 1`, 1))
	c := g.client(true)
	for _, path := range []string{"/1", "/2", "/3"} {
		if got := do(c, "POST", "https://"+name+path, "body", nil); got.status != http.StatusTooEarly || got.header.Get(held.HeldHeader) == "" {
			t.Fatalf("the guest got %+v", got)
		}
	}
	ids := w.held("child", 3)
	if err := w.g.Remove(g.id); err != nil {
		t.Fatal(err)
	}
	_, err := w.p.Release(t.Context(), "child", ids[0], false, nil)
	if !errors.Is(err, held.ErrNotSent) || w.state(ids[0]).State != held.Waiting || !strings.Contains(w.state(ids[0]).Note, "no network") {
		t.Errorf("without a registration: %v, %+v", err, w.state(ids[0]))
	}
	for what, edit := range map[string]func(*gateway.Registration){
		"no rule":    func(r *gateway.Registration) { r.Policy.Document = api.NetworkPolicy{} },
		"no address": func(r *gateway.Registration) { r.Policy.Document.Deny = []api.NetworkRule{{Address: addr}} },
		"another method": func(r *gateway.Registration) {
			r.Policy.Document.Rules[name] = api.NetworkTreatment{Methods: []string{"GET"}}
		},
		"no secret": func(r *gateway.Registration) { r.Secrets = nil },
	} {
		r := w.registration("parent", holding)
		edit(&r)
		_, err := w.p.Release(t.Context(), "child", ids[0], false, &r)
		if !errors.Is(err, held.ErrNotSent) || w.state(ids[0]).State != held.Waiting || len(s.take()) > 0 {
			t.Errorf("%s: %v, %+v", what, err, w.state(ids[0]))
		}
	}
	r := w.registration("parent", holding)
	r.Policy.Document.Default = "sometimes"
	if err := w.p.ReleaseAll(t.Context(), "child", &r); api.CodeOf(err) != api.CodeInvalid {
		t.Errorf("a document that is none: %v", err)
	}
	// As when the child is promoted: the policy is the one that the daemon gives. If that holds them, they
	// wait on, as those of the parent.
	r = w.registration("parent", holding)
	if err := w.p.ReleaseAll(t.Context(), "child", &r); err != nil {
		t.Error(err)
	}
	if got := s.take(); got != nil || len(w.held("parent", 3)) != 3 {
		t.Errorf("a parent that holds has sent %q", got)
	}
	r = w.registration("grandparent", holding)
	r.Policy.Document.Rules[name] = api.NetworkTreatment{Secret: r.Policy.Document.Rules[name].Secret}
	if err := w.p.ReleaseAll(t.Context(), "parent", &r); err != nil {
		t.Error(err)
	}
	want := []string{"POST /1 Bearer " + value + " body", "POST /2 Bearer " + value + " body", "POST /3 Bearer " + value + " body"}
	if all := s.take(); !slices.Equal(all, want) {
		t.Errorf("the server saw %q", all)
	}
}

// TestHeldRequestsOutliveTheGateway keeps requests, and what was decided about them, for another one.
func TestHeldRequestsOutliveTheGateway(t *testing.T) {
	w, s := newWorld(t, nil), &seen{}
	block := make(chan bool)
	w.serve("443", func(rw http.ResponseWriter, r *http.Request) {
		s.add(r.Method + " " + r.URL.Path)
		if r.URL.Path == "/block" {
			<-block
		}
	})
	defer close(block)
	g := w.newGuest("one", holding)
	c := g.client(false)
	paths := []string{"/block", "/released", "/waits"}
	for i, path := range paths {
		goes(c, "POST", "https://"+name+path, "body")
		w.held("one", i+1)
	}
	ids := w.held("one", 3)
	// The first is being sent when the gateway ends, the second was released, behind it.
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { _, err := w.p.Release(ctx, "one", ids[0], false, nil); done <- err }()
	polltest.Eventually(t, 10*time.Second, "it is sent", func() bool { return w.state(ids[0]).State == held.Sending })
	polltest.Eventually(t, 10*time.Second, "the server has it", func() bool { return slices.Equal(s.take(), []string{"POST /block"}) })
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) || !w.p.Sending() {
		t.Errorf("a daemon that does not wait: %v", err)
	}
	w.end()
	record := filepath.Join(w.dir, ids[1]+".json")
	b, err := os.ReadFile(record)
	if err != nil {
		t.Fatal(err)
	}
	b = bytes.Replace(b, []byte(`"state":"waiting"`), []byte(`"state":"released"`), 1) // as a killed process leaves it
	if err := os.WriteFile(record, b, 0o600); err != nil {
		t.Fatal(err)
	}
	g.gone()
	w.start()
	if st := w.state(ids[0]); st.State != held.Unknown {
		t.Errorf("what was being sent is %+v", st)
	}
	w.p.Resume()
	if st := w.state(ids[1]); st.State != held.Released || len(s.take()) > 0 {
		t.Errorf("before its sandbox is known it is %+v", st)
	}
	w.newGuest("one", holding)
	w.p.Resume()
	polltest.Eventually(t, 10*time.Second, "it is sent", func() bool { return w.state(ids[1]).State == held.Sent })
	if st := w.state(ids[2]); st.State != held.Waiting {
		t.Errorf("what nobody decided about is %+v", st)
	}
	if _, err := w.p.Release(t.Context(), "one", ids[0], false, nil); api.CodeOf(err) != api.CodeWrongState {
		t.Errorf("what may have been sent is sent again: %v", err)
	}
	if _, err := w.p.Release(t.Context(), "one", ids[2], false, nil); err != nil {
		t.Error(err)
	}
	if all := s.take(); !slices.Equal(all, []string{"POST /released", "POST /waits"}) {
		t.Errorf("the server saw %q", all)
	}
}

// TestRequestsExpire that nobody decides about.
func TestRequestsExpire(t *testing.T) {
	w, s := newWorld(t, func(w *world) { w.edit = func(l *held.Limits) { l.Age = 10 * time.Millisecond } }), &seen{}
	w.counting(s)
	g := w.newGuest("one", holding)
	if got := do(g.client(true), "POST", "https://"+name+"/", "", nil); got.status != http.StatusForbidden || !strings.Contains(got.body, "in time") || len(s.take()) > 0 {
		t.Errorf("the guest got %+v", got)
	}
}

// TestNothingCanBeHeld refuses names whose writes are held.
func TestNothingCanBeHeld(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"", file} {
		w, s := newWorld(t, func(w *world) { w.dir = dir }), &seen{}
		w.counting(s)
		g := w.newGuest("one", holding)
		for _, method := range []string{"GET", "POST"} {
			if got := do(g.client(true), method, "https://"+name+"/", "", nil); got.status != http.StatusForbidden || !strings.Contains(got.body, "cannot hold") || len(s.take()) > 0 {
				t.Errorf("the guest got %+v", got)
			}
		}
		_, lerr := w.p.Held("one")
		_, rerr := w.p.Release(t.Context(), "one", "req_x", false, nil)
		for what, err := range map[string]error{
			"why": w.p.NoHold(), "list": lerr, "release": rerr, "release all": w.p.ReleaseAll(t.Context(), "one", nil), "drop": w.p.Drop("one", "req_x"), "drop all": w.p.DropAll("one", true),
		} {
			if api.CodeOf(err) != api.CodeUnavailable {
				t.Errorf("%s: %v", what, err)
			}
		}
		if w.p.Sending() {
			t.Error("something is sent")
		}
		w.p.Resume()
	}
}

// TestReleasedThroughTheProxyOfTheHost has the proxy resolve the name, and the policy judge it.
func TestReleasedThroughTheProxyOfTheHost(t *testing.T) {
	s := &seen{}
	var at string
	address, asked := tunnels(t, func() string { return at })
	w := newWorld(t, func(w *world) { w.via = w.tunnel(address, false) })
	w.counting(s)
	w.mu.Lock()
	at = w.servers[addr+":443"]
	delete(w.servers, addr+":443")
	w.mu.Unlock()
	g := w.newGuest("one", holding)
	done := goes(g.client(true), "POST", "https://"+name+"/x", "body")
	id := w.held("one", 1)[0]
	narrow := w.registration("one", holding)
	narrow.Policy.Document.Rules = nil
	if _, err := w.p.Release(t.Context(), "one", id, false, &narrow); !errors.Is(err, held.ErrNotSent) || len(asked.take()) > 0 {
		t.Errorf("a name that is not allowed: %v", err)
	}
	if _, err := w.p.Release(t.Context(), "one", id, false, nil); err != nil {
		t.Error(err)
	}
	if got := <-done; got.status != http.StatusCreated || len(s.take()) != 1 || !slices.Equal(asked.take(), []string{"CONNECT " + name + ":443"}) {
		t.Errorf("the guest got %+v", got)
	}
}
