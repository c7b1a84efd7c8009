package dataplane

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/launch"
	"ramet.dev/ramet/internal/engine/wire"
)

// Config is what the data plane works with.
type Config struct {
	Sandboxes Sandboxes
	Events    EventLog
	// Archives bounds how many archives are read and written at the same time.
	Archives Turns
	// Observe is told that an operation begins, and returns the function of its end.
	Observe func(ctx context.Context, operation string) (context.Context, func(*error))
	Log     *slog.Logger
}

// Sandboxes finds sandboxes.
type Sandboxes interface {
	// Find returns the sandbox that ref, an id or a name, refers to for the caller in
	// ctx.
	Find(ctx context.Context, ref string) (Sandbox, error)
}

// Sandbox is one sandbox. It stays the same one when its name is given to another.
type Sandbox interface {
	ID() string
	// View returns the sandbox's description without its memory and disk.
	View() api.Sandbox
	// Acquire returns the sentry of the sandbox once its state is one of states, and the
	// function that ends this use. A sandbox that is being made is waited for, and one
	// that rests is woken if it wakes by itself. Until release is called the sandbox is
	// not idle.
	Acquire(ctx context.Context, states ...api.State) (s *launch.Sentry, release func(), err error)
	// Look is Acquire for a call that does not use the sandbox: it wakes nothing.
	Look(ctx context.Context, states ...api.State) (*launch.Sentry, error)
	// Touch records that the sandbox is used at this moment.
	Touch()
	// Gone reports whether the sandbox was destroyed.
	Gone() bool
	// MayRun refuses new processes when the sandbox's processor time is used up.
	MayRun() error
	// Explain turns the error of a call to s into one that says what became of the
	// sandbox meanwhile, if that is the cause.
	Explain(s *launch.Sentry, err error) error
	// Step begins a step of the sandbox's timeline. The function that it returns, which
	// is never nil, ends the step with what was done.
	Step(ctx context.Context) func(api.Step)
	// Write begins a write from outside. The function that it returns, which is never nil, notes the path in
	// the sandbox's timeline, also if the write has failed.
	Write(ctx context.Context) func(path string)
	// FirstUse records how long the first command of a child took.
	FirstUse(began time.Time)
	// Publish publishes an event of the sandbox.
	Publish(kind api.EventKind, e api.Event)
}

// EventLog is the log of what happens on the node.
type EventLog interface {
	// Now returns the number of the last event.
	Now() int64
	// Events calls each with the events that the request asks for; see the service
	// interface.
	Events(ctx context.Context, req api.EventRequest, began func(), each func(api.Event) error) error
}

// Turns bounds how many operations are under way, per tenant and in all.
type Turns interface {
	Take(ctx context.Context, tenant string) (done func(), err error)
}

// Plane implements the parts of the service interface that are about the inside of
// sandboxes. It is safe for concurrent use.
type Plane struct {
	commands
	processes
	contexts
	files
	ports
	logs
}

// New returns a data plane.
func New(cfg Config) *Plane {
	b := base{cfg.Sandboxes, cfg.Observe}
	p := processes{b, cfg.Log}
	return &Plane{
		commands: commands{b}, processes: p, contexts: contexts{b}, files: files{b, cfg.Archives},
		ports: ports{b}, logs: logs{cfg.Sandboxes, p, cfg.Events},
	}
}

// base is what all parts of a plane share.
type base struct {
	sandboxes Sandboxes
	observe   func(ctx context.Context, operation string) (context.Context, func(*error))
}

// callRef is call for a reference.
func (p base) callRef(ctx context.Context, ref string, call *wire.Call, out any, states ...api.State) error {
	b, err := p.sandboxes.Find(ctx, ref)
	if err != nil {
		return err
	}
	return p.call(ctx, b, call, out, states...)
}

// call makes one call to the sentry of a sandbox in one of states. It is a use of the
// sandbox, unless it only looks at it.
func (p base) call(ctx context.Context, b Sandbox, call *wire.Call, out any, states ...api.State) error {
	sentry, release, err := acquireFor(ctx, b, call.Op, states)
	if err != nil {
		return inOp(call.Op, err)
	}
	defer release()
	if _, err := sentry.Call(ctx, call, out); err != nil {
		return inOp(call.Op, b.Explain(sentry, err))
	}
	return nil
}

// acquireFor returns the sentry of b for a call, and the function that ends its use.
func acquireFor(ctx context.Context, b Sandbox, op wire.Op, states []api.State) (*launch.Sentry, func(), error) {
	if looks(op) {
		sentry, err := b.Look(ctx, states...)
		return sentry, func() {}, err
	}
	return b.Acquire(ctx, states...)
}

// looks reports whether a call only looks at a sandbox.
func looks(op wire.Op) bool {
	return op == wire.OpPS || op == wire.OpProcess || op == wire.OpContexts
}

// inOp adds the name of the operation to err. A call that only looks needs none: the
// user knows what it asked for.
func inOp(op wire.Op, err error) error {
	if looks(op) {
		return err
	}
	return fmt.Errorf("%s: %w", op, err)
}
