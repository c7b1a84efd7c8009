package branching

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/launch"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/node/freezes"
	"ramet.dev/ramet/internal/node/nodetest"
	"ramet.dev/ramet/internal/node/sandboxes"
	"ramet.dev/ramet/internal/node/spawn"
)

// forkerOf returns a forker of the sandboxes of p, which has no pool of sentries.
func forkerOf(p *nodetest.Parts) *Forker {
	return NewForker(Config{
		Sandboxes: p.Sandboxes, Snapshots: p.Snapshots, Freezes: p.Freezes, Admission: p.Admission, Images: nodetest.Images{},
		Spawner:    spawn.New(spawn.Config{Freezes: p.Freezes, Images: nodetest.Images{}}),
		Background: p.Background, Audit: nodetest.Audit{}, Clock: p.Clock, Log: p.Log,
	})
}

// TestPanicFailsOneChild has the making of a child meet a defect.
func TestPanicFailsOneChild(t *testing.T) {
	var log bytes.Buffer
	p := nodetest.New(t, nodetest.Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
	b := p.Add(t, nil)
	made := &batch{
		forker: forkerOf(p), timeout: time.Minute, drafts: make([]sandboxes.Record, 1), children: make([]api.Child, 1), sentries: make([]*launch.Sentry, 1),
		ahead: make([]chan struct{}, 1), made: []*sandboxes.Placement{{Instance: b}}, loading: freezes.NewSlots(),
	}
	made.makeOne(t.Context(), 0, spawn.NewOrigin(&freezes.Freeze{}, nil, nil), false)
	if e := made.children[0].Error; api.CodeOf(e) != api.CodeInternal || made.made[0] != nil || !strings.Contains(log.String(), "panicked") {
		t.Errorf("the child is %+v, the log %q", made.children[0], log.String())
	}
}

// TestSlowSentryDelaysOneChild has one of two children get no sentry while the other
// one has its own.
func TestSlowSentryDelaysOneChild(t *testing.T) {
	loaded := make(chan struct{})
	p := nodetest.New(t, nodetest.Options{})
	b := p.Add(t, func(call *wire.Call) (any, error) {
		if call.Op == wire.OpLoad {
			close(loaded)
		}
		return wire.Loaded{}, nil
	})
	state, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer state.Close()
	two, err := forkerOf(p).newBatch("", time.Now(), 2, nil, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer two.close()
	slow := make(chan struct{})
	two.ahead[0], two.sentries[1] = slow, b.Sentry()
	ctx, cancel := context.WithCancelCause(nodetest.AsOwner)
	over := make(chan error, 1)
	go func() { over <- two.make(ctx, &freezes.Freeze{State: state}, "img", false) }()
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
