package capture

import (
	"math"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/node/meter"
	"ramet.dev/ramet/internal/node/nodetest"
	"ramet.dev/ramet/internal/node/sandboxes"
	"ramet.dev/ramet/internal/node/selfcontrol"
	"ramet.dev/ramet/internal/node/snapshots"
	"ramet.dev/ramet/internal/node/spawn"
	"ramet.dev/ramet/internal/storage/store"
)

// freezerOf returns a freezer of an engine for the sandboxes of p.
func freezerOf(p *nodetest.Parts, engine string) *Freezer {
	return NewFreezer(p.Freezes, p.Clock, nodetest.Engines(engine), meter.Meter{})
}

// A sandbox goes on when the daemon is replaced by another version. That may not be
// able to load what the sandbox's sentry saves, and so asks it for nothing.
func TestOthersSandboxesAreNotFrozen(t *testing.T) {
	var asked atomic.Int32
	p := nodetest.New(t, nodetest.Options{})
	b := p.Add(t, func(call *wire.Call) (any, error) {
		if call.Op == wire.OpFreeze {
			asked.Add(1)
		}
		return nil, api.Errorf(api.CodeNoSpace, "no room")
	})
	process, err := spawn.ProcessOf(b.Sentry(), "", "one")
	if err != nil {
		t.Fatal(err)
	}
	b.Amend(func(rec *sandboxes.Record) { rec.Process = process })
	for engine, want := range map[string]api.Code{"one": api.CodeNoSpace, "two": api.CodeUnsupported} {
		for _, rest := range []bool{false, true} {
			if _, _, err := freezerOf(p, engine).Freeze(t.Context(), b, rest); api.CodeOf(err) != want {
				t.Errorf("engine %s: %v", engine, err)
			}
		}
	}
	if n := asked.Load(); n != 2 {
		t.Errorf("the sentry was asked %d times", n)
	}
	b.Amend(func(rec *sandboxes.Record) { rec.Engine = "" }) // of a version that did not keep it
	if _, _, err := freezerOf(p, "two").Freeze(t.Context(), b, false); api.CodeOf(err) != api.CodeNoSpace {
		t.Error(err)
	}
}

// TestOwnSnapshotIsKeptWhole has one of the records fail that a snapshot needs
// which a sandbox asked for.
func TestOwnSnapshotIsKeptWhole(t *testing.T) {
	for _, fails := range []bool{true, false} {
		p := nodetest.New(t, nodetest.Options{})
		b := p.Add(t, nil)
		count := func() (n int) {
			for _, table := range []store.Table{store.Snapshots, store.Grants} {
				if err := p.Store.Each(t.Context(), table, func(string, []byte) error { n++; return nil }); err != nil {
					t.Fatal(err)
				}
			}
			return n
		}
		g := selfcontrol.NewBudget("g", selfcontrol.Spending{Forks: 1, Snapshots: 3})
		b.Amend(func(rec *sandboxes.Record) {
			rec.Control = &selfcontrol.Grant{Budget: "g"}
			if fails {
				rec.Sandbox.Limits.CPUs = math.NaN() // a record that cannot be written
			}
		})
		s := p.Snapshots.Load(snapshots.Record{Snapshot: api.Snapshot{ID: api.NewID(api.KindSnapshot), State: api.SnapshotCreating}})
		taker := NewTaker(Config{Freezer: freezerOf(p, ""), Sandboxes: p.Sandboxes, Snapshots: p.Snapshots, Store: p.Store, Log: p.Log})
		err := taker.keep(t.Context(), b, s, nil, &selfcontrol.Request{ID: 1, Budget: g})
		records, used, listed := count(), g.Used().UsedSnapshots, slices.Contains(b.Record().Control.Snapshots, s.ID)
		switch ready := s.State() == api.SnapshotReady; {
		case fails && (err == nil || ready || listed || used != 0 || records != 0):
			t.Errorf("a failure: %v, ready %t, listed %t, %d paid, %d records", err, ready, listed, used, records)
		case !fails && (err != nil || !ready || !listed || used != 1 || records != 2):
			t.Errorf("a success: %v, ready %t, listed %t, %d paid, %d records", err, ready, listed, used, records)
		}
	}
}

// TestAFreezeHasADeadline freezes a sandbox that never answers, in each way.
func TestAFreezeHasADeadline(t *testing.T) {
	hang := make(chan struct{})
	p := nodetest.New(t, nodetest.Options{Timeout: time.Second})
	b := p.Add(t, func(call *wire.Call) (any, error) {
		if call.Op == wire.OpFreeze {
			<-hang
		}
		return struct{}{}, nil
	})
	t.Cleanup(func() { close(hang) })
	z := freezerOf(p, "")
	for what, do := range map[string]func() error{
		"for good": func() error { _, _, err := z.Capture(t.Context(), b, api.SnapshotRequest{}, true); return err },
		"snapshot": func() error { _, _, err := z.Capture(t.Context(), b, api.SnapshotRequest{}, false); return err },
		"fork":     func() error { _, _, err := z.FreezeShared(t.Context(), b); return err },
	} {
		if err := do(); api.CodeOf(err) != api.CodeTimeout {
			t.Errorf("%s: %v", what, err)
		}
	}
}
