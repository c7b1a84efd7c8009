package treatment

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/network/gateway"
	"ramet.dev/ramet/internal/network/held"
	"ramet.dev/ramet/internal/network/policy"
	"ramet.dev/ramet/internal/network/proxy"
)

// Held returns the requests of a sandbox that are or were held, or those of all if it is "", in the
// order in which they came.
func (p *Proxy) Held(sandbox string) ([]held.Request, error) {
	if p.queue == nil {
		return nil, p.noQueue
	}
	return p.queue.List(sandbox), nil
}

// Waiting returns numbers about the requests of all sandboxes that are held.
func (p *Proxy) Waiting() held.Stats {
	if p.queue == nil {
		return held.Stats{}
	}
	return held.StatsOf(p.queue.List(""))
}

// Release sends a request of a sandbox, and waits for the answer or for ctx, without which the sending
// goes on. It is sent under r; without r under the registration of the sandbox. again sends also what
// may have been sent.
func (p *Proxy) Release(ctx context.Context, sandbox, id string, again bool, r *gateway.Registration) (out held.Request, err error) {
	if err := p.check(sandbox, id); err != nil {
		return out, err
	}
	err = p.under(ctx, sandbox, r, func(ctx context.Context) (err error) {
		out, err = p.queue.Release(ctx, id, again)
		return err
	})
	if err != nil {
		return held.Request{}, err
	}
	return out, nil
}

// ReleaseAll sends all requests of a sandbox that wait, in the order in which they came, as Release
// does. It returns after all of them, with the error of the first that failed. If r is that of another
// sandbox, which goes on with the state of this one, it has those that its own policy would hold, and
// those that may have been sent.
func (p *Proxy) ReleaseAll(ctx context.Context, sandbox string, r *gateway.Registration) error {
	if p.queue == nil {
		return p.noQueue
	}
	if r != nil && sandboxOf(r) != sandbox {
		compiled, err := policy.Compile(r.Policy, p.cfg.Own)
		if err != nil {
			return err
		}
		err = p.queue.Give(sandbox, sandboxOf(r), func(h *held.Request) bool {
			t := compiled.TreatmentOf(h.Name)
			return t != nil && t.Hold != ""
		})
		if err != nil {
			return err
		}
	}
	return p.under(ctx, sandbox, r, func(ctx context.Context) error { return p.queue.ReleaseSandbox(ctx, sandbox) })
}

// Drop makes sure that a request of a sandbox is never sent.
func (p *Proxy) Drop(sandbox, id string) error {
	if err := p.check(sandbox, id); err != nil {
		return err
	}
	return p.queue.Drop(id)
}

// DropAll drops all requests of a sandbox. With forget nothing is kept of those that are finished.
func (p *Proxy) DropAll(sandbox string, forget bool) error {
	if p.queue == nil {
		return p.noQueue
	}
	return p.queue.DropSandbox(sandbox, forget)
}

// DropUndone drops the requests that a rollback has undone.
func (p *Proxy) DropUndone(u *held.Undone) error {
	if p.queue == nil {
		return p.noQueue
	}
	return p.queue.DropUndone(u)
}

// Resume sends what was released before this process began, of the sandboxes that are registered. It
// does not wait for the answers. What cannot be sent waits again, and its record says why.
func (p *Proxy) Resume() {
	if p.queue == nil {
		return
	}
	ctx, cancel := context.WithCancel(p.ctx)
	cancel() // the sending goes on
	_ = p.queue.Resume(ctx, func(sandbox string) bool { return p.find(sandbox) != nil })
}

// Sending reports whether requests that were released are being sent.
func (p *Proxy) Sending() bool { return p.queue != nil && p.queue.Sending() > 0 }

// check returns an error unless the request is one of the sandbox.
func (p *Proxy) check(sandbox, id string) error {
	if p.queue == nil {
		return p.noQueue
	}
	r, err := p.queue.Get(id)
	if err == nil && r.Sandbox != sandbox {
		err = api.NotFound("held request", id)
	}
	return err
}

// under runs f, for requests of a sandbox that are sent under a registration. It returns when ctx has
// ended, and f goes on.
func (p *Proxy) under(ctx context.Context, sandbox string, r *gateway.Registration, f func(context.Context) error) error {
	var st *state
	if r != nil {
		compiled, err := policy.Compile(r.Policy, p.cfg.Own)
		if err != nil {
			return err
		}
		if st, err = p.newState(r, compiled); err != nil {
			return err
		}
	}
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		p.giveBack(sandbox, st)
		return errClosed
	}
	if st != nil {
		p.lent[sandbox] = append(p.lent[sandbox], st)
	}
	p.work.Add(1)
	p.mu.Unlock()
	done := make(chan error, 1)
	go func() {
		defer p.work.Done()
		defer p.giveBack(sandbox, st)
		done <- f(p.ctx)
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("wait for held requests: %w", context.Cause(ctx))
	}
}

// giveBack ends the use of a registration that under has lent, if there is one.
func (p *Proxy) giveBack(sandbox string, st *state) {
	if st == nil {
		return
	}
	p.mu.Lock()
	if p.lent[sandbox] = slices.DeleteFunc(p.lent[sandbox], func(o *state) bool { return o == st }); len(p.lent[sandbox]) == 0 {
		delete(p.lent, sandbox)
	}
	p.mu.Unlock()
	p.drop(st)
}

// find returns the registration under which requests of a sandbox are sent, or nil: the one that came
// last, and one that was given with the order before that of the sandbox.
func (p *Proxy) find(sandbox string) *state {
	p.mu.Lock()
	defer p.mu.Unlock()
	if lent := p.lent[sandbox]; len(lent) > 0 {
		return lent[len(lent)-1]
	}
	for _, s := range slices.Backward(p.sandboxes) {
		if st := s.current.Load(); st.sandbox == sandbox {
			return st
		}
	}
	return nil
}

// Send implements held.Sender.
func (p *Proxy) Send(ctx context.Context, r *held.Request, body io.Reader) (*http.Response, error) {
	up, req, err := p.prepare(ctx, r, body)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", held.ErrNotSent, err)
	}
	res, err := up.Once(req)
	if errors.Is(err, proxy.ErrNotSent) {
		err = fmt.Errorf("%w: %w", held.ErrNotSent, err)
	}
	return res, err
}

// prepare judges a request once more, by the registration in force.
func (p *Proxy) prepare(ctx context.Context, r *held.Request, body io.Reader) (*proxy.Upstream, *http.Request, error) {
	st := p.find(r.Sandbox)
	if st == nil {
		return nil, nil, errors.New("its sandbox has no network, and nothing says under which policy it is sent")
	}
	server, err := p.server()
	if err != nil {
		return nil, nil, err
	}
	req, err := r.HTTP(ctx, body)
	if err != nil {
		return nil, nil, err
	}
	rule := proxy.Open("held request")
	if t := st.policy.TreatmentOf(r.Name); t != nil {
		rule = st.rule(t.Pattern)
	}
	if err := rule.Check(req); err != nil {
		return nil, nil, err
	}
	return server.Upstream(proxy.Flow{
		Name: r.Name, Port: r.Port, TLS: r.TLS, Rule: func() *proxy.Rule { return rule },
		Dial: func(ctx context.Context) (net.Conn, error) {
			return p.cfg.Reach(ctx, st.tenant, st.policy, r.Name, r.Port)
		},
	}), req, nil
}
