package process

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/server/rest"
	who "ramet.dev/ramet/internal/service/access"
	"ramet.dev/ramet/test/harness"
)

// logged is what the logs of a sandbox said of each process.
type logged struct {
	mu   sync.Mutex
	text map[int]string
	read map[int]*api.Position
}

func newLogged() *logged {
	return &logged{text: map[int]string{}, read: map[int]*api.Position{}}
}

func (l *logged) take(p api.LogPiece) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text[p.PID] += string(p.Chunk.Data)
	if p.Read != nil {
		l.read[p.PID] = p.Read
	}
	return nil
}

func (l *logged) of(pid int) (string, *api.Position) {
	l.mu.Lock()
	defer l.mu.Unlock()
	// Lines of standard output and standard error come in either order.
	lines := slices.Sorted(strings.Lines(l.text[pid]))
	return strings.Join(lines, ""), l.read[pid]
}

// TestLogs reads what several processes wrote, in a child too, and follows them with
// one that is started later until the sandbox is destroyed.
func TestLogs(t *testing.T) {
	n := harness.NewNode(t)
	n.Create("base")
	ended := n.Start("base", api.StartRequest{}, "say", "first", "err:second")
	if _, err := n.Machine.WaitProcess(harness.AsOwnerIn(t), "base", ended); err != nil {
		t.Fatal(err)
	}
	runs := n.Start("base", api.StartRequest{Stdin: true}, "cat")
	child := n.Fork("base", 1)[0].ID
	for _, ref := range []string{"base", child} {
		l := newLogged()
		if err := n.Machine.Logs(harness.AsOwnerIn(t), ref, false, func() {}, l.take); err != nil {
			t.Fatal(err)
		}
		text, read := l.of(ended)
		if text != "first\nsecond\n" || read == nil || read.NextSeq != 13 || read.Exit == nil {
			t.Errorf("the process that ended wrote %q, %+v", text, read)
		}
		if text, read := l.of(runs); text != "" || read == nil || read.Exit != nil || len(l.read) != 2 {
			t.Errorf("the process that runs wrote %q, %+v, and there are %v", text, read, l.read)
		}
	}

	if _, err := n.Machine.Hibernate(harness.AsOwner, child); err != nil {
		t.Fatal(err)
	}
	l := newLogged()
	if err := n.Machine.Logs(harness.AsOwnerIn(t), child, false, func() {}, l.take); err != nil {
		t.Errorf("of a sandbox that hibernates: %v", err)
	}
	if text, _ := l.of(ended); text != "first\nsecond\n" {
		t.Errorf("of a sandbox that was woken for it: %q", text)
	}

	l = newLogged()
	began, over := make(chan struct{}), make(chan error, 1)
	go func() { over <- n.Machine.Logs(harness.AsOwnerIn(t), "base", true, func() { close(began) }, l.take) }()
	<-began
	later := n.Start("base", api.StartRequest{}, "say", "later")
	if err := n.Machine.WriteProcess(harness.AsOwnerIn(t), "base", runs, strings.NewReader("typed\n"), false); err != nil {
		t.Fatal(err)
	}
	for pid, want := range map[int]string{ended: "first\nsecond\n", runs: "typed\n", later: "later\n"} {
		harness.Eventually(t, "what was followed", func() error {
			if got, _ := l.of(pid); got != want {
				return api.Errorf(api.CodeInternal, "process %d wrote %q, not %q", pid, got, want)
			}
			return nil
		})
	}
	n.Destroy("base")
	if err := <-over; err != nil {
		t.Errorf("the logs of a sandbox that is destroyed end with %v", err)
	}
	harness.WantCode(t, n.Machine.Logs(harness.AsOwnerIn(t), "base", true, func() { t.Error("they begin") }, l.take), api.CodeNotFound)
}

// TestLogsOverHTTP reads them as a client does, with a token and with a stranger's.
func TestLogsOverHTTP(t *testing.T) {
	n := harness.NewNode(t)
	server := rest.New(rest.Config{Service: n.Machine, Version: "test"})
	n.Create("base")
	pid := n.Start("base", api.StartRequest{}, "say", "hello")
	if _, err := n.Machine.WaitProcess(harness.AsOwnerIn(t), "base", pid); err != nil {
		t.Fatal(err)
	}
	for by, c := range map[string]struct {
		req    api.TokenRequest
		status int
	}{
		"a reader":  {api.TokenRequest{Scope: api.ScopeRead}, http.StatusOK},
		"strangers": {api.TokenRequest{Scope: api.ScopeAdmin, Tenant: "other"}, http.StatusNotFound},
	} {
		tok, err := n.Machine.CreateToken(who.With(harness.AsOwner, who.Owner(0)), c.req)
		if err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequestWithContext(t.Context(), "GET", "/v1/sandboxes/base/logs", nil)
		r.Header.Set("Authorization", "Bearer "+tok.Secret)
		w := httptest.NewRecorder()
		server.ServeHTTP(w, r)
		if w.Code != c.status {
			t.Errorf("%s: status %d: %s", by, w.Code, w.Body)
		}
		said := bytes.Contains(w.Body.Bytes(), []byte("hello"))
		if said != (c.status == http.StatusOK) || said && !bytes.HasSuffix(w.Body.Bytes(), []byte("event: end\ndata: {}\n\n")) {
			t.Errorf("%s: %s", by, w.Body)
		}
	}
	server.Wait()
}
