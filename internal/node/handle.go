package node

import (
	"context"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/launch"
	"ramet.dev/ramet/internal/node/dataplane"
)

// newDataPlane returns the data plane of the node's sandboxes.
func (m *Node) newDataPlane() *dataplane.Plane {
	return dataplane.New(dataplane.Config{
		Sandboxes: handles{m}, Events: handles{m}, Archives: m.archives, Observe: m.observe, Log: m.log,
	})
}

// handles gives the packages below the node access to its sandboxes.
type handles struct{ m *Node }

// Find implements dataplane.Sandboxes.
func (h handles) Find(ctx context.Context, ref string) (dataplane.Sandbox, error) {
	b, err := h.m.resolve(ctx, ref)
	if err != nil {
		return nil, err
	}
	return handle{h.m, b}, nil
}

// Now implements dataplane.EventLog.
func (h handles) Now() int64 { return h.m.events.Now() }

// Events implements dataplane.EventLog.
func (h handles) Events(ctx context.Context, req api.EventRequest, began func(), each func(api.Event) error) error {
	return h.m.Events(ctx, req, began, each)
}

// handle is a sandbox of the node, as the packages below the node see it.
type handle struct {
	m *Node
	b *instance
}

// The methods implement dataplane.Sandbox.

func (h handle) ID() string { return h.b.id }

func (h handle) View() api.Sandbox { return h.b.view() }

func (h handle) Acquire(ctx context.Context, states ...api.State) (*launch.Sentry, func(), error) {
	return h.m.use(ctx, h.b, states...)
}

func (h handle) Look(ctx context.Context, states ...api.State) (*launch.Sentry, error) {
	if err := h.b.made(ctx); err != nil {
		return nil, err
	}
	return h.b.running(states...)
}

func (h handle) Touch() { h.m.touch(h.b) }

func (h handle) Gone() bool { return h.m.gone(h.b) }

func (h handle) MayRun() error { return h.m.mayRun(h.b) }

func (h handle) Explain(s *launch.Sentry, err error) error { return h.m.explain(h.b, s, err) }

func (h handle) Step(ctx context.Context) func(api.Step) { return h.m.BeginStep(ctx, h) }

func (h handle) FirstUse(began time.Time) { h.m.firstUse(h.b, began) }

func (h handle) Publish(kind api.EventKind, e api.Event) { h.m.publish(kind, h.b, e) }
