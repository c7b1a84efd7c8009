// Package nodetest has the lower parts of a node for tests: records, sandboxes, snapshots and
// quotas, with sentries that the test answers for.
//
// The package must never be linked with the product, nor know what is above these parts.
package nodetest

import (
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/launch"
	"ramet.dev/ramet/internal/engine/launch/launchtest"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/node/background"
	"ramet.dev/ramet/internal/node/freezes"
	"ramet.dev/ramet/internal/node/lineage"
	"ramet.dev/ramet/internal/node/memfiles"
	"ramet.dev/ramet/internal/node/quota"
	"ramet.dev/ramet/internal/node/sandboxes"
	"ramet.dev/ramet/internal/node/selfcontrol"
	"ramet.dev/ramet/internal/node/snapshots"
	"ramet.dev/ramet/internal/node/timer"
	"ramet.dev/ramet/internal/service/access"
	"ramet.dev/ramet/internal/storage/store"
)

// AsOwner is the context of what the owner of the daemon does.
var AsOwner = access.With(context.Background(), access.Owner(0))

// Options say what is not usual about the parts.
type Options struct {
	Clock      timer.Clock      // the machine's if nil
	Log        *slog.Logger     // nowhere if nil
	Timeout    time.Duration    // of calls to sentries; a minute if 0
	HostMemory quota.HostMemory // much if nil
	Engine     string
}

// Parts is the lower parts of a node.
type Parts struct {
	Options
	Store      *store.Store
	MemFiles   *memfiles.Table
	Freezes    *freezes.Table
	Sandboxes  *sandboxes.Registry
	Snapshots  *snapshots.Set
	Remains    *lineage.Remains
	Trees      *lineage.Trees
	Ledger     *quota.Ledger
	Admission  *quota.Admission
	Alarms     *timer.Queue
	Chores     *background.Group
	Background *background.Group
}

// New returns parts without sandboxes.
func New(t *testing.T, o Options) *Parts {
	t.Helper()
	if o.Clock == nil {
		o.Clock = timer.System{}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	if o.Timeout == 0 {
		o.Timeout = time.Minute
	}
	if o.HostMemory == nil {
		o.HostMemory = func() (int64, int64, error) { return 8 << 30, 8 << 30, nil }
	}
	p := &Parts{Options: o, Store: OpenStore(t), MemFiles: memfiles.New(), Chores: background.New(t.Context()), Background: background.New(t.Context())}
	p.Alarms = timer.New(o.Clock)
	p.Freezes = freezes.New(p.MemFiles, p.Store, o.Log, o.Timeout, func(s *launch.Sentry) bool { return p.Sandboxes.InUse(s) })
	p.Sandboxes = sandboxes.NewRegistry(sandboxes.Config{
		Store: p.Store, Freezes: p.Freezes, Clock: o.Clock, Log: o.Log, Timeout: o.Timeout, Listener: listener{p},
	})
	p.Snapshots = snapshots.New(snapshots.Config{
		Store: p.Store, MemFiles: p.MemFiles, Freezes: p.Freezes, Alarms: p.Alarms, Log: o.Log, Engines: Engines(o.Engine), Keeps: p.Sandboxes.Keeps,
		Gone:     func(rec *snapshots.Record) []store.Change { return p.Remains.SnapshotGone(rec) },
		Dropped:  func(rec *snapshots.Record) { p.Remains.DropBudget(rec.Control) },
		Panicked: func(doing string, v any) error { return background.Recovered(o.Log, doing, v) },
	})
	p.Remains = lineage.NewRemains(p.Sandboxes, p.Snapshots, selfcontrol.NewBudgets(), p.Store, o.Log)
	p.Trees = lineage.NewTrees(p.Remains)
	var err error
	if p.Ledger, err = quota.Open(AsOwner, p.Store); err != nil {
		t.Fatal(err)
	}
	p.Admission = quota.NewAdmission(quota.Config{
		Ledger: p.Ledger, HostMemory: o.HostMemory, Holdings: func(string, string) api.Consumption { return api.Consumption{} },
		MakeRoom: func(context.Context) bool { return false },
	})
	return p
}

// OpenStore returns a store without records.
func OpenStore(t *testing.T) *store.Store {
	t.Helper()
	records, err := store.Open(AsOwner, filepath.Join(t.TempDir(), "registry.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := records.Close(); err != nil {
			t.Error(err)
		}
	})
	return records
}

// Add adds a running sandbox, whose sentry answers as the test says. It has none if answers
// is nil.
func (p *Parts) Add(t *testing.T, answers func(*wire.Call) (any, error)) *sandboxes.Instance {
	t.Helper()
	return Add(t, p.Sandboxes, answers)
}

// Add is Parts.Add for any registry.
func Add(t *testing.T, registry *sandboxes.Registry, answers func(*wire.Call) (any, error)) *sandboxes.Instance {
	t.Helper()
	id := api.NewID(api.KindSandbox)
	b := sandboxes.New(sandboxes.Record{Sandbox: api.Sandbox{ID: id, State: api.StateRunning}})
	if answers != nil {
		b.Give(launchtest.New(t, func(_ *os.Process, _ *launch.Sentry, call *wire.Call) (any, error) { return answers(call) }), nil)
	}
	if err := registry.Enlist(AsOwner, []*sandboxes.Instance{b}); err != nil {
		t.Fatal(err)
	}
	b.Touch(time.Time{})
	return b
}

// Answer answers each call with nothing.
func Answer(*wire.Call) (any, error) { return struct{}{}, nil }

// SpendAll uses up the processor time of the tenant of b.
func SpendAll(t *testing.T, ledger *quota.Ledger, b *sandboxes.Instance) {
	t.Helper()
	if err := ledger.Set(AsOwner, b.Tenant(), api.TenantUpdate{Quota: &api.Quota{CPUSeconds: 1}}, nil); err != nil {
		t.Fatal(err)
	}
	ledger.Spend(b.Tenant(), b.ID, "key", 2)
}

// Images is images that nobody removes.
type Images struct{}

// UseImage returns what does nothing.
func (Images) UseImage(string) (release func()) { return func() {} }

// FindImage finds no image.
func (Images) FindImage(_ context.Context, ref string) (api.Image, error) {
	return api.Image{}, api.NotFound("image", ref)
}

// CreateImage makes no image.
func (Images) CreateImage(context.Context, api.ImageRequest, func(api.Progress)) (*api.Image, error) {
	return nil, api.Errorf(api.CodeUnsupported, "there are no images")
}

// OpenImage opens an empty file.
func (Images) OpenImage(string) (*os.File, error) { return os.Open(os.DevNull) }

// Audit keeps no entry.
type Audit struct{}

// AppendAudit drops an entry.
func (Audit) AppendAudit(api.AuditEntry) {}

// listener does what the node's does with these parts.
type listener struct{ p *Parts }

func (listener) Began(*sandboxes.Instance, *launch.Sentry, *os.File) {}

func (listener) Failed(*sandboxes.Instance, *launch.Sentry) {}

func (listener) Ending(*sandboxes.Instance, *launch.Sentry) {}

func (l listener) Replaced() { l.p.Snapshots.Collect() }

func (l listener) Removing(b *sandboxes.Instance) []store.Change { return l.p.Remains.SandboxGone(b) }

func (l listener) Removed(b *sandboxes.Instance) {
	l.p.Remains.DropBudget(b.Record().Control)
	l.p.Snapshots.Collect()
}

func (listener) Forgotten(*sandboxes.Instance) {}

// Engines has one engine, of this name.
type Engines string

// Own returns the name.
func (e Engines) Own() string { return string(e) }

// Knows knows that engine alone.
func (e Engines) Knows(name string) bool { return name == "" || name == string(e) }

// Keep does nothing.
func (Engines) Keep() error { return nil }
