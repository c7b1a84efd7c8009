package branching

import (
	"context"
	"fmt"
	"sync"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/node/freezes"
	"ramet.dev/ramet/internal/node/sandboxes"
	"ramet.dev/ramet/internal/node/spawn"
)

// outline describes the children as they are until they are made. It comes before
// anything is readied for them, which changes the drafts.
func (b *batch) outline() error {
	for i := range b.drafts {
		rec := b.drafts[i]
		if err := rec.Become(api.StateCreating, ""); err != nil {
			return err
		}
		b.listed = append(b.listed, sandboxes.NewChild(b.forker.cfg.Background.Context(), rec))
	}
	return nil
}

// begin lists the children, and has them made of f in the background, for which f
// and the batch are kept. On error there are none. made is called when they count
// as sandboxes that there are.
func (b *batch) begin(ctx context.Context, f *freezes.Freeze, image string, made func()) ([]api.Child, error) {
	from, err := b.forker.cfg.Spawner.OpenOrigin(f, image)
	if err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		from.Close()
		return nil, context.Cause(ctx)
	}
	if err := b.forker.cfg.Sandboxes.Enlist(ctx, b.listed); err != nil {
		from.Close()
		return nil, err
	}
	children := make([]api.Child, len(b.listed))
	for i, x := range b.listed {
		v := x.View()
		children[i] = api.Child{Sandbox: &v, Identity: &v.Identity}
		b.forker.cfg.Timers.Arm(x)
	}
	b.begun = true
	kept := b.forker.cfg.Admission.Promise(len(b.listed))
	made()
	b.forker.cfg.Freezes.Hold(f, 1)
	b.forker.cfg.Background.Go(func(context.Context) {
		defer b.forker.cfg.Freezes.Drop(f)
		defer kept()
		defer from.Close()
		b.useTemplate(b.forker.cfg.Background.Context(), from)
		defer b.endTemplate()
		var workers sync.WaitGroup
		for i, x := range b.listed {
			workers.Go(func() {
				defer b.conclude(i)
				b.makeOne(x.Start.Context(), i, from, true)
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
	defer made.CloseChannel()
	ctx := made.Instance.Start.Context()
	b.forker.cfg.Freezes.Hold(f, 1)
	err := spawn.Detach(ctx, made.Sentry)
	if err == nil {
		err = b.forker.cfg.Sandboxes.Install(ctx, []sandboxes.Placement{*made}, b.forker.cfg.Freezes.Stored(f))
	}
	if err != nil {
		b.forker.cfg.Freezes.Drop(f)
		b.fail(i, fmt.Errorf("fork: %w", err))
		return
	}
	b.sentries[i] = nil // the sandbox's
}

// conclude tells what became of child i to those who wait for it.
func (b *batch) conclude(i int) {
	x := b.listed[i]
	defer x.Settle()
	failure := b.children[i].Error
	if failure == nil {
		return
	}
	var reason error = failure
	if b.forker.cfg.Background.Ended() {
		reason = sandboxes.ErrNotStarted
	}
	b.forker.cfg.Log.Warn("a child could not be made", "id", x.ID, "parent", x.View().Parent, "reason", reason)
	b.forker.cfg.Sandboxes.Fail(x, reason)
	b.forker.cfg.Audit.AppendAudit(api.AuditEntry{Time: time.Now().UTC(), Tenant: x.Tenant(), Action: "start-child", Object: x.ID, Result: string(api.CodeOf(reason))})
	b.forker.cfg.Sandboxes.Events.Publish(api.EventFailed, x, api.Event{Reason: reason.Error()})
}
