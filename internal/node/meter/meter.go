// Package meter reports how long the operations of a node take, and other metrics of
// sandboxes, to an observer.
//
// The package must never know what is done with them.
package meter

import (
	"context"
	"time"
)

// Observer is told what the node does, where it does it: requests and what
// sandboxes ask for by themselves alike. Its methods are called by many goroutines
// and must return at once.
type Observer interface {
	// Begin is told of an operation that begins, and the function of its end. The
	// context is that of the operation.
	Begin(ctx context.Context, operation string) (context.Context, func(error))
	// Metric is told a value that was measured, in the unit that ends its name.
	Metric(name string, value float64)
}

// The metrics besides how long operations took as a whole.
const (
	// Pause is how long a sandbox stood still to be frozen, and
	// MergePause until names in it were changed.
	Pause      = "pause_seconds"
	MergePause = "merge_pause_seconds"
	// ChildReady is the time from the call to when one child is ready, and
	// AllReady to when all of a fork or restore are.
	ChildReady = "child_ready_seconds"
	AllReady   = "all_ready_seconds"
	// FirstExec is how long the first command in a child took, which copies
	// what the later ones need not.
	FirstExec = "child_first_exec_seconds"
	// ChildCPU is the processor time of a child some seconds after it was made,
	// from the start of its processes, and ChildPrivate the memory that it alone
	// has then.
	ChildCPU     = "child_cpu_seconds"
	ChildPrivate = "child_private_bytes"
	// IdleCPU is the share of one processor that a sandbox took which nobody
	// used.
	IdleCPU = "idle_cpu_ratio"
)

// Meter reports to an observer, if there is one.
type Meter struct{ Observer Observer }

// Observe reports an operation. The end is told by
//
//	defer ended(&err)
func (m Meter) Observe(ctx context.Context, operation string) (_ context.Context, ended func(*error)) {
	if m.Observer == nil {
		return ctx, func(*error) {}
	}
	ctx, end := m.Observer.Begin(ctx, operation)
	return ctx, func(err *error) { end(*err) }
}

// Report reports a value.
func (m Meter) Report(name string, value float64) {
	if m.Observer != nil {
		m.Observer.Metric(name, value)
	}
}

// Millis reports a value in seconds, which took so many milliseconds.
func (m Meter) Millis(name string, ms float64) { m.Report(name, ms/1000) }

// Since returns how many milliseconds ago t was.
func Since(t time.Time) float64 { return float64(time.Since(t).Microseconds()) / 1000 }
