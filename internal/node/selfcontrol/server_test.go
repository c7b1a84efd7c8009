package selfcontrol

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/control"
	"ramet.dev/ramet/internal/engine/launch"
)

// oneSandbox is a node with one sandbox, which can be looked at only.
type oneSandbox struct {
	Sandbox // nil: an operation is a defect
	view    api.Sandbox
	grant   *Grant
}

func (o *oneSandbox) In(*launch.Sentry) Sandbox { return o }

func (o *oneSandbox) View() (api.Sandbox, string, *Grant) { return o.view, "default", o.grant }

// serverOf returns a server of o's requests that logs to log.
func serverOf(o *oneSandbox, budgets *Budgets, log io.Writer) *Server {
	return NewServer(Config{Sandboxes: o, Budgets: budgets, Audit: func(api.AuditEntry) {}, Log: slog.New(slog.NewTextHandler(log, nil))})
}

// codeOf returns the code of an answer to a sandbox's own request.
func codeOf(t *testing.T, answer json.RawMessage) string {
	t.Helper()
	var r control.Reply
	if err := json.Unmarshal(answer, &r); err != nil {
		t.Fatal(err)
	}
	if r.Error == nil {
		return ""
	}
	return r.Error.Code
}

// TestOwnRequestsMayNotEndTheDaemon has a request of a sandbox meet a defect.
func TestOwnRequestsMayNotEndTheDaemon(t *testing.T) {
	var log bytes.Buffer
	o := &oneSandbox{view: api.Sandbox{ID: api.NewID(api.KindSandbox), SelfControl: &api.SelfControl{Forks: 1, Depth: 1}}, grant: &Grant{Budget: "g"}}
	budgets := NewBudgets()
	budgets.add(&Budget{id: "g"}) // without what NewBudget makes
	answer := serverOf(o, budgets, &log).answer(t.Context(), &launch.Sentry{}, rate.NewLimiter(1, 1), []byte(`{"op":"info"}`), 1)
	if code := codeOf(t, answer); code != string(api.CodeInternal) || !strings.Contains(log.String(), "panicked") {
		t.Errorf("the answer is %s, the log %q", answer, log.String())
	}
}

// TestOwnRequestsArePacedFirst has a sandbox ask that may not.
func TestOwnRequestsArePacedFirst(t *testing.T) {
	v := serverOf(&oneSandbox{}, NewBudgets(), io.Discard)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	pace := rate.NewLimiter(rate.Every(time.Hour), 1)
	ask := func() string {
		return codeOf(t, v.answer(ctx, &launch.Sentry{}, pace, []byte(`{"op":"info"}`), 1))
	}
	if code := ask(); code != string(api.CodeWrongState) {
		t.Errorf("the first request: %s", code)
	}
	if code := ask(); code == string(api.CodeWrongState) {
		t.Error("the second request did not wait for its turn")
	}
}
