package gate

import (
	"context"

	"gvisor.dev/gvisor/pkg/sentry/vfs"
	"gvisor.dev/gvisor/pkg/state"
	"gvisor.dev/gvisor/pkg/waiter"
)

// Notifier is an event listener that can be saved with what it listens to, which
// waiter.ChannelNotifier cannot. One that was loaded notifies nobody until Revive.
type Notifier struct {
	C     chan struct{} // has an item after an event
	first func()        // called before C gets one, by the goroutine that caused the event; may be nil
}

// NewNotifier returns a notifier with a channel of its own.
func NewNotifier() *Notifier { return &Notifier{C: make(chan struct{}, 1)} }

// NewSharedNotifier returns a notifier to c, a channel with room for one item. It calls
// first before, in the goroutine that caused the event.
func NewSharedNotifier(c chan struct{}, first func()) *Notifier { return &Notifier{C: c, first: first} }

// Revive gives a notifier that was loaded a channel.
func (n *Notifier) Revive() { n.C = make(chan struct{}, 1) }

// NotifyEvent implements waiter.EventListener.
func (n *Notifier) NotifyEvent(waiter.EventMask) {
	if n.first != nil {
		n.first()
	}
	n.Notify()
}

// Notify puts an item into C unless it has one.
func (n *Notifier) Notify() {
	select {
	case n.C <- struct{}{}:
	default: // nil in a child, or full
	}
}

// The methods below are what gVisor's state package asks of saved types;
// upstream generates them with a tool that is not part of its Go module.

// StateTypeName implements state.Type.
func (*Notifier) StateTypeName() string { return "ramet.dev/ramet/internal/sentry/gate.Notifier" }

// StateFields implements state.Type.
func (*Notifier) StateFields() []string { return nil }

// StateSave implements state.SaverLoader.
func (*Notifier) StateSave(state.Sink) {}

// StateLoad implements state.SaverLoader.
func (*Notifier) StateLoad(context.Context, state.Source) {}

func init() { state.Register((*Notifier)(nil)) }

// Listener is a notifier's subscription to the events of a file. It must not be copied.
type Listener struct {
	gate  *Gate
	file  *vfs.FileDescription
	entry waiter.Entry
}

// Listen has n notified of events on file, and of its end, until Close.
func (l *Listener) Listen(g *Gate, file *vfs.FileDescription, events waiter.EventMask, n *Notifier) {
	l.gate, l.file = g, file
	l.entry.Init(n, events|waiter.EventHUp|waiter.EventErr)
	g.BeginIO()
	defer g.EndIO()
	// Pipes and terminals never refuse a listener.
	_ = file.EventRegister(&l.entry)
}

// Close ends the subscription.
func (l *Listener) Close() {
	l.gate.BeginIO()
	defer l.gate.EndIO()
	l.file.EventUnregister(&l.entry)
}
