package treatment

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/network/gateway"
	"ramet.dev/ramet/internal/network/held"
	"ramet.dev/ramet/internal/network/policy"
	"ramet.dev/ramet/internal/network/proxy"
)

// sandbox is a registered sandbox. It implements gateway.Treatments.
type sandbox struct {
	p       *Proxy
	current atomic.Pointer[state]
}

// New implements gateway.Proxy.
func (p *Proxy) New(r *gateway.Registration, compiled *policy.Policy) (gateway.Treatments, error) {
	st, err := p.newState(r, compiled)
	if err != nil {
		return nil, err
	}
	s := &sandbox{p: p}
	s.current.Store(st)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sandboxes = append(p.sandboxes, s)
	return s, nil
}

// Replace implements gateway.Treatments.
func (s *sandbox) Replace(r *gateway.Registration, compiled *policy.Policy) error {
	st, err := s.p.newState(r, compiled)
	if err != nil {
		return err
	}
	s.p.drop(s.current.Swap(st))
	return nil
}

// Close implements gateway.Treatments.
func (s *sandbox) Close() {
	s.p.drop(s.current.Load())
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	s.p.sandboxes = slices.DeleteFunc(s.p.sandboxes, func(o *sandbox) bool { return o == s })
}

// Serve implements gateway.Treatments.
func (s *sandbox) Serve(ctx context.Context, guest net.Conn, t gateway.Treated) error {
	server, err := s.p.server()
	if err != nil {
		guest.Close()
		return err
	}
	f := proxy.Flow{Name: t.Name, Port: t.Port, TLS: t.TLS, Dial: t.Dial, Log: func(r proxy.Record) { t.Log(entry(r)) }}
	if t.Treatment == nil {
		// Nothing is done to requests; that they all name the host is what is looked at.
		rule := proxy.Open(t.Rule)
		f.Rule = func() *proxy.Rule { return rule }
		f.Log = func(r proxy.Record) {
			if r.Verdict != proxy.Allowed {
				t.Log(entry(r))
			}
		}
		return server.Serve(ctx, guest, f)
	}
	st := s.current.Load()
	pattern := t.Treatment.Pattern
	f.Rule = func() *proxy.Rule { return s.current.Load().rule(pattern) }
	f.Effects = func(next http.RoundTripper) http.RoundTripper { return s.p.effects(st, &t, next) }
	if t.TLS {
		if st.authority == nil {
			guest.Close()
			err := errors.New("the sandbox has no authority for TLS")
			t.Log(api.NetworkLogEntry{Verdict: api.NetworkDenied, Rule: "rules." + pattern + ": " + err.Error()})
			return err
		}
		f.Authority = st.authority.Authority
	}
	err = server.Serve(ctx, guest, f)
	if errors.Is(err, proxy.ErrHandshake) && ctx.Err() == nil {
		t.Log(api.NetworkLogEntry{Verdict: api.NetworkDenied, Rule: "rules." + pattern + ": the guest broke off the handshake: it does not trust the authority of the sandbox, or pins the certificate of the server"})
	}
	return err
}

// effects puts together what stands between the checked requests of a flow and its server. Writes that
// are held are not recorded: each branch has its own.
func (p *Proxy) effects(st *state, t *gateway.Treated, next http.RoundTripper) http.RoundTripper {
	if t.Treatment.Record && st.group != nil {
		next = st.group.recorder.Transport(st.sandbox, realm(t.Treatment), next, inserted(t.Treatment)...)
	}
	if t.Treatment.Hold == "" || p.queue == nil {
		return next
	}
	origin := held.Origin{Sandbox: st.sandbox, Run: st.id, Name: t.Name, Port: t.Port, TLS: t.TLS}
	told := held.Told{
		Held: func(r *http.Request, id string) {
			proxy.Tell(r, proxy.Held, id)
			t.Log(api.NetworkLogEntry{Verdict: api.NetworkHeld, Rule: "rules." + t.Treatment.Pattern, Method: r.Method, Path: shortened(r.URL.Path), Held: id})
		},
		Refused: func(r *http.Request, why string) { proxy.Tell(r, proxy.Denied, why) },
	}
	return p.queue.Transport(origin, time.Duration(t.Treatment.HoldTimeoutMS)*time.Millisecond, told, next)
}

// realm tells apart branches in whose requests other secrets or headers are put: what a server has answered to one is
// not for all.
func realm(t *policy.Treatment) string {
	var all strings.Builder
	for _, h := range t.Inserted() {
		fmt.Fprintf(&all, "%q: %q\n", h.Header, h.Value)
	}
	return all.String()
}

// inserted returns the headers that secrets are put into. What a branch itself says there, such as a placeholder, is
// part of its question.
func inserted(t *policy.Treatment) (names []string) {
	for _, h := range t.Inserted() {
		names = append(names, h.Header)
	}
	return names
}

// maxPath is how much of a path is in the log.
const maxPath = 1 << 10

func shortened(path string) string { return path[:min(len(path), maxPath)] }

// entry returns the line of the log about a request.
func entry(r proxy.Record) api.NetworkLogEntry {
	e := api.NetworkLogEntry{
		Verdict: api.NetworkAllowed, Rule: r.Rule, Method: r.Method, Path: shortened(r.Path), Status: r.Status, Secrets: r.Secrets,
		BytesIn: r.BytesIn, BytesOut: r.BytesOut, DurationMS: max(float64(r.Duration)/float64(time.Millisecond), 0.001),
	}
	switch r.Verdict {
	case proxy.Denied:
		e.Verdict = api.NetworkDenied
	case proxy.Held:
		e.Verdict, e.Held = api.NetworkHeld, r.Reason
		return e
	}
	if r.Reason != "" {
		e.Rule += ": " + r.Reason
	}
	return e
}
