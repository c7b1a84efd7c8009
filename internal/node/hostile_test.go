package node

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/launch"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/node/freezes"
	"ramet.dev/ramet/internal/node/memfiles"
	"ramet.dev/ramet/internal/node/quota"
	"ramet.dev/ramet/internal/node/selfcontrol"
	"ramet.dev/ramet/internal/node/snapshots"
	"ramet.dev/ramet/internal/node/spawn"
	"ramet.dev/ramet/internal/node/timer"
	"ramet.dev/ramet/internal/observe/events"
	"ramet.dev/ramet/internal/service/access"
	"ramet.dev/ramet/internal/storage/store"
)

// asOwner is the context of what the owner of the daemon does.
var asOwner = access.With(context.Background(), access.Owner(0))

// nodeOf returns a node with one running sandbox, whose sentry answers as
// the test says.
func nodeOf(t *testing.T, answers func(*wire.Call) (any, error)) (*Node, *instance) {
	t.Helper()
	records, err := store.Open(asOwner, filepath.Join(t.TempDir(), "registry.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := records.Close(); err != nil {
			t.Error(err)
		}
	})
	ledger, err := quota.Open(asOwner, records)
	if err != nil {
		t.Fatal(err)
	}
	m := &Node{
		cfg: Config{Audit: noAudit{}}, choreContext: t.Context(), ledger: ledger, hostMemory: readHostMemory, log: slog.New(slog.NewTextHandler(io.Discard, nil)), store: records, events: events.New(keptEvents),
		instances: map[string]*instance{}, names: map[owned]string{},
		goneNames: map[string]goneRecord{}, memFiles: memfiles.New(), budgets: selfcontrol.NewBudgets(), timeout: callTimeout, clock: timer.System{}, timers: timer.New(timer.System{}),
	}
	m.freezes = freezes.New(m.memFiles, records, m.log, callTimeout, m.inUse)
	m.snapshots = m.newSnapshots()
	m.Requests = snapshots.NewRequests(m.snapshots)
	m.Catalog, m.Admission, m.room = m.newCatalog(nil), m.newAdmission(), m.newRoom()
	m.Timelines = m.newTimelines()
	m.Plane, m.selfControl = m.newDataPlane(), m.newSelfControl()
	return m, boxIn(t, m, answers)
}

// noAudit keeps no entry.
type noAudit struct{}

func (noAudit) AppendAudit(api.AuditEntry) {}

// boxIn adds a running sandbox.
func boxIn(t *testing.T, m *Node, answers func(*wire.Call) (any, error)) *instance {
	t.Helper()
	id := api.NewID(api.KindSandbox)
	b := &instance{id: id, rec: record{Sandbox: api.Sandbox{ID: id, State: api.StateRunning}}}
	if answers != nil {
		b.sentry = fakeSentry(t, func(_ *os.Process, _ *launch.Sentry, call *wire.Call) (any, error) { return answers(call) })
	}
	m.instances[id] = b
	return b
}

// TestProcessesOfAHostileSentry has a sentry that answers for ever, or not in order.
func TestProcessesOfAHostileSentry(t *testing.T) {
	process := func(pids ...int) (list []api.Process) {
		for _, pid := range pids {
			list = append(list, api.Process{PID: pid})
		}
		return list
	}
	many := make([]int, 1000)
	for name, answers := range map[string]func(after int) wire.Processes{
		"the same page for ever": func(int) wire.Processes { return wire.Processes{List: process(2, 3), More: true} },
		"one that is not there":  func(int) wire.Processes { return wire.Processes{More: true} },
		"falling":                func(int) wire.Processes { return wire.Processes{List: process(3, 2)} },
		"negative":               func(int) wire.Processes { return wire.Processes{List: process(-7)} },
		"very many": func(after int) wire.Processes {
			for i := range many {
				many[i] = after + 1 + i
			}
			return wire.Processes{List: process(many...), More: true}
		},
	} {
		t.Run(name, func(t *testing.T) {
			m, b := nodeOf(t, func(call *wire.Call) (any, error) { return answers(call.Page.After), nil })
			list, err := m.Processes(asOwner, b.id, true)
			if api.CodeOf(err) != api.CodeCorrupt || !strings.Contains(err.Error(), "the sandbox's sentry answered wrongly") {
				t.Errorf("%d processes, %v", len(list), err)
			}
		})
	}
	// One that ended and one with the same id that runs, on two pages.
	m, b := nodeOf(t, func(call *wire.Call) (any, error) {
		if call.Page.After == 0 {
			return wire.Processes{List: process(2, 5, 5), More: true}, nil
		}
		return wire.Processes{List: process(6)}, nil
	})
	if list, err := m.Processes(asOwner, b.id, true); err != nil || len(list) != 4 {
		t.Errorf("%v, %v", list, err)
	}
}

// TestStartedProcessIsTold starts a process that nothing can be learned about.
func TestStartedProcessIsTold(t *testing.T) {
	m, b := nodeOf(t, func(call *wire.Call) (any, error) {
		if call.Op == wire.OpStart {
			return wire.Started{PID: 7}, nil
		}
		return nil, api.Errorf(api.CodeTimeout, "too busy")
	})
	p, err := m.StartProcess(asOwner, b.id, api.StartRequest{Argv: []string{"sleep", "9"}, Stdin: true})
	if err != nil || p.PID != 7 || p.Command != "sleep 9" || p.Kept == nil || !p.Kept.Stdin {
		t.Errorf("%+v, %v", p, err)
	}
}

// TestInputKeepsToItsSandbox writes to a process while the sandbox's name becomes that
// of another one.
func TestInputKeepsToItsSandbox(t *testing.T) {
	got := func(into *atomic.Int64) func(*wire.Call) (any, error) {
		return func(call *wire.Call) (any, error) {
			into.Add(int64(len(call.Input.Data)))
			return struct{}{}, nil
		}
	}
	var first, second atomic.Int64
	m, b := nodeOf(t, got(&first))
	other := boxIn(t, m, got(&second))
	name := owned{b.Tenant(), "agent"}
	m.names[name] = b.id
	in, out := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- m.WriteProcess(asOwner, "agent", 7, in, true) }()
	if _, err := out.Write(make([]byte, 2*wire.MaxChunk)); err != nil {
		t.Fatal(err)
	}
	m.mu.Lock()
	m.names[name] = other.id
	m.mu.Unlock()
	if _, err := out.Write(make([]byte, 2*wire.MaxChunk)); err != nil {
		t.Fatal(err)
	}
	out.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if a, b := first.Load(), second.Load(); a != 4*wire.MaxChunk || b != 0 {
		t.Errorf("the sandbox got %d bytes and the other %d", a, b)
	}
}

// unrecordable makes a record that cannot be written.
func unrecordable(b *instance) { b.rec.Sandbox.Limits.CPUs = math.NaN() }

// TestPauseIsRecordedFirst pauses and resumes a sandbox whose record cannot be
// written.
func TestPauseIsRecordedFirst(t *testing.T) {
	var mu sync.Mutex
	var ops []wire.Op
	m, b := nodeOf(t, func(call *wire.Call) (any, error) {
		mu.Lock()
		defer mu.Unlock()
		ops = append(ops, call.Op)
		return struct{}{}, nil
	})
	unrecordable(b)
	if _, err := m.Pause(asOwner, b.id); err == nil {
		t.Error("it was paused without a record")
	}
	if v := b.view(); v.State != api.StateRunning {
		t.Errorf("it is %s and recorded as running", v.State)
	}
	mu.Lock()
	defer mu.Unlock()
	if !slices.Equal(ops, []wire.Op{wire.OpPause, wire.OpResume}) {
		t.Errorf("the sentry was told %v", ops)
	}
}

// TestPauseIsFinished has the caller go away while the sandbox is being paused.
func TestPauseIsFinished(t *testing.T) {
	ctx, cancel := context.WithCancel(asOwner)
	defer cancel()
	var paused atomic.Bool
	m, b := nodeOf(t, func(call *wire.Call) (any, error) {
		paused.Store(call.Op == wire.OpPause)
		cancel()
		<-time.After(50 * time.Millisecond) // enough for a call that breaks off then
		return struct{}{}, nil
	})
	_, err := m.Pause(ctx, b.id)
	if v := b.view(); paused.Load() != (v.State == api.StatePaused) {
		t.Errorf("it is paused: %t, and is said to be %s: %v", paused.Load(), v.State, err)
	}
	_, err = m.Resume(ctx, b.id)
	if api.CodeOf(err) != api.CodeCanceled || !paused.Load() {
		t.Errorf("it was begun for one who had gone: %v", err)
	}
}

// TestOwnSnapshotIsKeptWhole has one of the records fail that a snapshot needs
// which a sandbox asked for.
func TestOwnSnapshotIsKeptWhole(t *testing.T) {
	ctx := asOwner
	count := func(m *Node) (n int) {
		for _, table := range []store.Table{store.Snapshots, store.Grants, store.Sandboxes} {
			if err := m.store.Each(ctx, table, func(string, []byte) error { n++; return nil }); err != nil {
				t.Fatal(err)
			}
		}
		return n
	}
	for _, fails := range []bool{true, false} {
		m, b := nodeOf(t, nil)
		g := selfcontrol.NewBudget("g", selfcontrol.Spending{Forks: 1, Snapshots: 3})
		b.rec.Control = &selfcontrol.Grant{Budget: "g"}
		if fails {
			unrecordable(b)
		}
		s := m.snapshots.Load(snapshots.Record{Snapshot: api.Snapshot{ID: api.NewID(api.KindSnapshot), State: api.SnapshotCreating}})
		err := m.keep(ctx, b, s, nil, &selfcontrol.Request{ID: 1, Budget: g})
		records, used, listed := count(m), g.Used().UsedSnapshots, slices.Contains(b.rec.Control.Snapshots, s.ID)
		switch ready := s.State() == api.SnapshotReady; {
		case fails && (err == nil || ready || listed || used != 0 || records != 0):
			t.Errorf("a failure: %v, ready %t, listed %t, %d paid, %d records", err, ready, listed, used, records)
		case !fails && (err != nil || !ready || !listed || used != 1 || records != 3):
			t.Errorf("a success: %v, ready %t, listed %t, %d paid, %d records", err, ready, listed, used, records)
		}
	}
}

// TestPanicFailsOneChild has the making of a child meet a defect.
func TestPanicFailsOneChild(t *testing.T) {
	var log bytes.Buffer
	m, b := nodeOf(t, nil) // which has no pool
	m.log = slog.New(slog.NewTextHandler(&log, nil))
	made := &batch{m: m, timeout: time.Minute, drafts: make([]draft, 1), children: make([]api.Child, 1), sentries: make([]*launch.Sentry, 1), ahead: make([]chan struct{}, 1), made: []*placement{{b: b}}, loading: freezes.NewSlots()}
	made.makeOne(asOwner, 0, spawn.NewOrigin(&freezes.Freeze{}, nil, nil), false)
	if e := made.children[0].Error; api.CodeOf(e) != api.CodeInternal || made.made[0] != nil || !strings.Contains(log.String(), "panicked") {
		t.Errorf("the child is %+v, the log %q", made.children[0], log.String())
	}
}
