package node

import (
	"context"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/launch"
	"ramet.dev/ramet/internal/node/dataplane"
	"ramet.dev/ramet/internal/node/meter"
	"ramet.dev/ramet/internal/node/quota"
	"ramet.dev/ramet/internal/node/sandboxes"
)

// newDataPlane returns the data plane of the node's sandboxes.
func (m *Node) newDataPlane() *dataplane.Plane {
	return dataplane.New(dataplane.Config{
		Sandboxes: handles{m}, Events: handles{m}, Archives: m.archives, Observe: m.meter.Observe, Log: m.cfg.Log,
	})
}

// handles gives the packages below the node access to its sandboxes.
type handles struct{ m *Node }

// Find implements dataplane.Sandboxes.
func (h handles) Find(ctx context.Context, ref string) (dataplane.Sandbox, error) {
	b, err := h.m.sandboxes.Find(ctx, ref)
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
	b *sandboxes.Instance
}

// The methods implement dataplane.Sandbox.

func (h handle) ID() string { return h.b.ID }

func (h handle) View() api.Sandbox { return h.b.View() }

func (h handle) Acquire(ctx context.Context, states ...api.State) (*launch.Sentry, func(), error) {
	return h.m.rester.Use(ctx, h.b, states...)
}

func (h handle) Look(ctx context.Context, states ...api.State) (*launch.Sentry, error) {
	if err := h.b.Start.Wait(ctx); err != nil {
		return nil, err
	}
	return h.b.Running(states...)
}

func (h handle) Touch() { h.b.Touch(h.m.cfg.Clock.Now()) }

func (h handle) Gone() bool { return h.m.sandboxes.Gone(h.b) }

func (h handle) MayRun() error { return h.m.admission.MayRun(h.b.Tenant(), quota.Tree(h.b.Lineage())) }

func (h handle) Explain(s *launch.Sentry, err error) error { return h.m.sandboxes.Explain(h.b, s, err) }

func (h handle) Step(ctx context.Context) func(api.Step) { return h.m.timelines.BeginStep(ctx, h) }

func (h handle) Write(ctx context.Context) func(path string) { return h.m.timelines.BeginWrite(ctx, h) }

func (h handle) FirstUse(began time.Time) {
	if h.b.Birth.FirstUse() {
		h.m.meter.Millis(meter.FirstExec, meter.Since(began))
	}
}

func (h handle) Publish(kind api.EventKind, e api.Event) { h.m.events.Publish(kind, h.b, e) }
