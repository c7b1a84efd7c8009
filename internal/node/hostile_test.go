package node

import (
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/launch"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/image"
	"ramet.dev/ramet/internal/node/background"
	"ramet.dev/ramet/internal/node/nodetest"
	"ramet.dev/ramet/internal/node/quota"
	"ramet.dev/ramet/internal/node/sandboxes"
	"ramet.dev/ramet/internal/node/timer"
)

// nodeOf returns a node with one running sandbox, whose sentry answers as
// the test says.
func nodeOf(t *testing.T, answers func(*wire.Call) (any, error)) (*Node, *sandboxes.Instance) {
	t.Helper()
	return nodeWith(t, timer.System{}, answers)
}

// nodeWith is nodeOf with a clock.
func nodeWith(t *testing.T, clock timer.Clock, answers func(*wire.Call) (any, error)) (*Node, *sandboxes.Instance) {
	t.Helper()
	catalog, err := image.Open(filepath.Join(t.TempDir(), "images"))
	if err != nil {
		t.Fatal(err)
	}
	m := &Node{
		cfg: Config{
			Audit: nodetest.Audit{}, Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Store: nodetest.OpenStore(t), Clock: clock, HostMemory: readHostMemory,
		},
		chores: background.New(t.Context()), background: background.New(t.Context()),
	}
	if m.ledger, err = quota.Open(nodetest.AsOwner, m.cfg.Store); err != nil {
		t.Fatal(err)
	}
	if m.engines, err = m.openEngines(launch.Config{}); err != nil {
		t.Fatal(err)
	}
	m.composeThings(catalog)
	m.composeUses()
	return m, nodetest.Add(t, m.sandboxes, answers)
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
			list, err := m.Processes(nodetest.AsOwner, b.ID, true)
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
	if list, err := m.Processes(nodetest.AsOwner, b.ID, true); err != nil || len(list) != 4 {
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
	p, err := m.StartProcess(nodetest.AsOwner, b.ID, api.StartRequest{Argv: []string{"sleep", "9"}, Stdin: true})
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
	other := nodetest.Add(t, m.sandboxes, got(&second))
	named := func(b *sandboxes.Instance) {
		t.Helper()
		m.sandboxes.Names.Release(b.Tenant(), "agent")
		if err := m.sandboxes.Names.Reserve(b.Tenant(), []string{"agent"}, []string{b.ID}); err != nil {
			t.Error(err)
		}
	}
	named(b)
	in, out := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- m.WriteProcess(nodetest.AsOwner, "agent", 7, in, true) }()
	if _, err := out.Write(make([]byte, 2*wire.MaxChunk)); err != nil {
		t.Fatal(err)
	}
	named(other)
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
