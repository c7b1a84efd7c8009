package node

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/image"
	"ramet.dev/ramet/internal/node/freezes"
	"ramet.dev/ramet/internal/storage/store"
)

// unready makes b one that is still being made, and returns what ends that.
func unready(b *instance) (ready func(api.State)) {
	b.start = &start{over: make(chan struct{})}
	b.start.ctx, b.start.abandon = context.WithCancelCause(context.Background())
	b.rec.Sandbox.State = api.StateCreating
	sentry := b.sentry
	b.sentry = nil
	b.op.Lock()
	return func(state api.State) {
		b.mu.Lock()
		if b.rec.Sandbox.State = state; state == api.StateRunning {
			b.sentry = sentry
		}
		b.mu.Unlock()
		close(b.start.over)
		b.op.Unlock()
	}
}

// TestUnreadyIsWaitedFor asks for the processes of a sandbox, and uses it, while it
// is being made.
func TestUnreadyIsWaitedFor(t *testing.T) {
	for name, c := range map[string]struct {
		becomes api.State
		want    api.Code
	}{"runs": {api.StateRunning, ""}, "fails": {api.StateFailed, api.CodeSandboxDied}} {
		t.Run(name, func(t *testing.T) {
			m, b := nodeOf(t, func(call *wire.Call) (any, error) {
				if call.Op == wire.OpPS {
					return wire.Processes{}, nil
				}
				return wire.Started{PID: 7}, nil
			})
			ready := unready(b)
			gone, cancel := context.WithCancel(asOwner)
			cancel()
			if _, err := m.Processes(gone, b.id, false); api.CodeOf(err) != api.CodeCanceled {
				t.Errorf("who is gone is told %v", err)
			}
			if _, err := m.Stats(asOwner, b.id); api.CodeOf(err) == api.CodeInternal {
				t.Errorf("stats: %v", err)
			}
			answers := make(chan error)
			go func() { _, err := m.Processes(asOwner, b.id, false); answers <- err }()
			go func() {
				_, err := m.StartProcess(asOwner, b.id, api.StartRequest{Argv: []string{"true"}})
				answers <- err
			}()
			go func() { _, err := m.Wake(asOwner, b.id); answers <- err }()
			ready(c.becomes)
			codes := map[api.Code]int{}
			for range 3 {
				codes[api.CodeOf(<-answers)]++
			}
			if codes[c.want] != 2 || codes[api.CodeWrongState] != 1 {
				t.Errorf("they are told %v", codes)
			}
		})
	}
}

// TestUnreadyDoesNotSurvive has a daemon find a record of a sandbox that was being
// made.
func TestUnreadyDoesNotSurvive(t *testing.T) {
	m, b := nodeOf(t, nil)
	b.rec.Sandbox.State, b.rec.Sandbox.Name = api.StateCreating, "kid"
	if err := m.store.Apply(asOwner, store.Change{Table: store.Sandboxes, ID: b.id, Doc: b.rec}); err != nil {
		t.Fatal(err)
	}
	delete(m.instances, b.id)
	r := &recovery{m: m, ctx: asOwner}
	if err := r.adoptSandboxes(); err != nil {
		t.Fatal(err)
	}
	got, err := m.Get(asOwner, "kid")
	if err != nil || got.State != api.StateFailed || got.Reason != errNotStarted.Error() {
		t.Fatalf("it is %+v, %v", got, err)
	}
	if len(r.changes) != 1 || r.changes[0].ID != b.id {
		t.Errorf("%+v is recorded", r.changes)
	}
}

// TestSlowSentryDelaysOneChild has one of two children get no sentry while the other
// one has its own.
func TestSlowSentryDelaysOneChild(t *testing.T) {
	loaded := make(chan struct{})
	m, b := nodeOf(t, func(call *wire.Call) (any, error) {
		if call.Op == wire.OpLoad {
			close(loaded)
		}
		return wire.Loaded{}, nil
	})
	store, err := image.Open(filepath.Join(t.TempDir(), "images"))
	if err != nil {
		t.Fatal(err)
	}
	m.Catalog = m.newCatalog(store)
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "tmp"), 0o700); err != nil {
		t.Fatal(err)
	}
	img, err := store.ImportDir(asOwner, root, image.Options{Name: "box"})
	if err != nil {
		t.Fatal(err)
	}
	state, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer state.Close()
	two, err := m.newBatch("", time.Now(), 2, nil, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer two.close()
	slow := make(chan struct{})
	two.ahead[0], two.sentries[1] = slow, b.sentry
	ctx, cancel := context.WithCancelCause(asOwner)
	over := make(chan error, 1)
	go func() { over <- two.make(ctx, &freezes.Freeze{State: state}, img.ID, false) }()
	select {
	case <-loaded:
	case <-time.After(time.Minute):
		t.Error("the second child waits for the first one's sentry")
	}
	enough := errors.New("enough")
	cancel(enough)
	close(slow)
	if err := <-over; !errors.Is(err, enough) {
		t.Errorf("the fork was cancelled, and says %v", err)
	}
}
