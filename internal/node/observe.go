package node

import (
	"context"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/launch"
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
	// MetricPause is how long a sandbox stood still to be frozen, and
	// MetricMergePause until names in it were changed.
	MetricPause      = "pause_seconds"
	MetricMergePause = "merge_pause_seconds"
	// MetricChildReady is the time from the call to when one child is ready, and
	// MetricAllReady to when all of a fork or restore are.
	MetricChildReady = "child_ready_seconds"
	MetricAllReady   = "all_ready_seconds"
	// MetricFirstExec is how long the first command in a child took, which copies
	// what the later ones need not.
	MetricFirstExec = "child_first_exec_seconds"
	// MetricChildCPU is the processor time of a child some seconds after it was made,
	// from the start of its processes, and MetricChildPrivate the memory that it alone
	// has then.
	MetricChildCPU     = "child_cpu_seconds"
	MetricChildPrivate = "child_private_bytes"
	// MetricIdleCPU is the share of one processor that a sandbox took which nobody
	// used.
	MetricIdleCPU = "idle_cpu_ratio"
)

// observe tells the observer, if there is one, of an operation. The end is told by
//
//	defer ended(&err)
func (m *Node) observe(ctx context.Context, operation string) (_ context.Context, ended func(*error)) {
	if m.cfg.Observer == nil {
		return ctx, func(*error) {}
	}
	ctx, end := m.cfg.Observer.Begin(ctx, operation)
	return ctx, func(err *error) { end(*err) }
}

// metric reports a value in seconds, which took so many milliseconds.
func (m *Node) metric(name string, ms float64) {
	if m.cfg.Observer != nil {
		m.cfg.Observer.Metric(name, ms/1000)
	}
}

// firstUse notes that a command or cell ran in b, which took so long.
func (m *Node) firstUse(b *instance, began time.Time) {
	if b.fresh.Swap(false) {
		m.metric(MetricFirstExec, millis(began))
	}
}

// Usage counts what there is. It asks no sandbox.
func (m *Node) Usage() api.Usage {
	u := api.Usage{Sandboxes: map[api.State]int{}, Snapshots: m.snapshots.Count(), PoolReady: m.pool.Ready()}
	own := map[string]int64{} // memory files, by name
	for _, b := range m.all() {
		b.mu.Lock()
		u.Sandboxes[b.rec.Sandbox.State]++
		if s := b.sentry; s != nil {
			own[s.Key()] = launch.Allocated(s.Memory()) // 0 if it is closed by now
		}
		b.mu.Unlock()
	}
	u.Pins = m.freezes.Pinned()
	shared := m.memFiles.MemorySizes()
	for name, bytes := range shared {
		u.SharedBytes += bytes
		delete(own, name)
	}
	for _, bytes := range own {
		u.PrivateBytes += bytes
	}
	return u
}

// snapshotOf returns the operation that a request for a snapshot is.
func snapshotOf(req *api.SnapshotRequest) string {
	if req.Memory {
		return "snapshot_memory"
	}
	return "snapshot_disk"
}
