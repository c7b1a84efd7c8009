package node

import (
	"context"
	"fmt"
	"sync"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/node/freezes"
	"ramet.dev/ramet/internal/node/spawn"
	"ramet.dev/ramet/internal/storage/store"
)

// Children that nobody waits for are sandboxes in the state creating from the end of
// the freeze on: they have ids, names and records, and nothing else yet. Each is made
// in the background and then runs or has failed. Whoever wants to do something with
// one waits for that, as for one that is being woken: its op is held for writing.
//
// The record says creating before the caller is told of it. Of a daemon that dies in
// the middle remain such records, which the next one finds failed, and no sentries:
// those of children end with the daemon until they are about to be recorded as
// running, and the next one ends what is not recorded.

// start is what there is of a child besides its record while it is being made.
type start struct {
	over    chan struct{} // closed when it runs or has failed
	ctx     context.Context
	abandon context.CancelCauseFunc
}

// made waits until b is no longer being made.
func (b *instance) made(ctx context.Context) error {
	if b.start == nil {
		return nil
	}
	select {
	case <-b.start.over:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// abandon has b fail if it is still being made.
func (b *instance) abandon(reason error) {
	if b.start != nil {
		b.start.abandon(reason)
	}
}

var (
	errUnwanted   = api.Errorf(api.CodeCanceled, "it was removed before it ran")
	errNotStarted = api.Errorf(api.CodeUnavailable, "the daemon ended before it ran")
)

// outline describes the children as they are until they are made. It comes before
// anything is readied for them, which changes the drafts.
func (b *batch) outline() error {
	for i := range b.drafts {
		rec := b.drafts[i].rec
		if err := rec.become(api.StateCreating, ""); err != nil {
			return err
		}
		x := &instance{id: rec.Sandbox.ID, rec: rec, start: &start{over: make(chan struct{})}}
		x.start.ctx, x.start.abandon = context.WithCancelCause(b.m.background)
		x.op.Lock() // until it is over
		b.listed = append(b.listed, x)
	}
	return nil
}

// begin lists the children, and has them made of f in the background, for which f
// and the batch are kept. On error there are none. made is called when they count
// as sandboxes that there are.
func (b *batch) begin(ctx context.Context, f *freezes.Freeze, image string, made func()) ([]api.Child, error) {
	from, err := b.m.openOrigin(f, image)
	if err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		from.Close()
		return nil, context.Cause(ctx)
	}
	var changes []store.Change
	for _, x := range b.listed {
		x.activity.at = b.m.clock.Now()
		changes = append(changes, store.Change{Table: store.Sandboxes, ID: x.id, Doc: x.rec})
	}
	if err := b.m.store.Apply(ctx, changes...); err != nil {
		from.Close()
		return nil, err
	}
	children := make([]api.Child, len(b.listed))
	b.m.mu.Lock()
	for i, x := range b.listed {
		b.m.instances[x.id] = x
		v := x.rec.Sandbox
		children[i] = api.Child{Sandbox: &v, Identity: &v.Identity}
	}
	b.m.mu.Unlock()
	b.m.arm(b.listed...)
	b.begun = true
	kept := b.m.Promise(len(b.listed))
	made()
	b.m.freezes.Hold(f, 1)
	b.m.backgroundWork.Go(func() {
		defer b.m.freezes.Drop(f)
		defer kept()
		defer from.Close()
		var workers sync.WaitGroup
		for i, x := range b.listed {
			workers.Go(func() {
				defer b.conclude(i)
				b.makeOne(x.start.ctx, i, from, true)
				b.run(i, f)
			})
		}
		workers.Wait()
		b.allReady()
	})
	return children, nil
}

// run lets child i be the sandbox that is listed, if it was made.
func (b *batch) run(i int, f *freezes.Freeze) {
	made := b.made[i]
	if made == nil {
		return
	}
	ctx := made.b.start.ctx
	b.m.freezes.Hold(f, 1)
	err := spawn.Detach(ctx, made.sentry)
	if err == nil {
		err = b.m.install(ctx, []placement{*made}, b.m.freezes.Stored(f))
	}
	if err != nil {
		b.m.freezes.Drop(f)
		b.fail(i, fmt.Errorf("fork: %w", err))
		return
	}
	b.sentries[i] = nil // the sandbox's
}

// conclude tells what became of child i to those who wait for it.
func (b *batch) conclude(i int) {
	x := b.listed[i]
	defer x.op.Unlock()
	defer close(x.start.over)
	defer x.start.abandon(nil)
	failure := b.children[i].Error
	if failure == nil {
		return
	}
	var reason error = failure
	if b.m.background.Err() != nil {
		reason = errNotStarted
	}
	x.mu.Lock()
	b.m.become(x, api.StateFailed, reason.Error())
	rec := x.rec
	x.mu.Unlock()
	b.m.log.Warn("a child could not be made", "id", x.id, "parent", rec.Sandbox.Parent, "reason", reason)
	if err := b.m.store.Apply(context.Background(), store.Change{Table: store.Sandboxes, ID: x.id, Doc: rec}); err != nil {
		b.m.log.Error("record a child that could not be made", "id", x.id, "error", err) // the next daemon finds it failed, too
	}
	b.m.cfg.Audit.AppendAudit(api.AuditEntry{Time: time.Now().UTC(), Tenant: x.Tenant(), Action: "start-child", Object: x.id, Result: string(api.CodeOf(reason))})
	b.m.publish(api.EventFailed, x, api.Event{Reason: reason.Error()})
}
