package sandboxes

import (
	"context"
	"os"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/launch"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/node/freezes"
	"ramet.dev/ramet/internal/storage/store"
)

// Placement is a sandbox that is to run from now on.
type Placement struct {
	Instance *Instance
	Record   Record // the record to be, but for its state
	Sentry   *launch.Sentry
	Freeze   *freezes.Freeze // what the sandbox was made from, with a reference; nil if it was created
	// Channel is the gateway's end of the channel that Sentry was begun with; nil without a network.
	Channel *os.File
}

// CloseChannel closes the channel, if there is one.
func (p *Placement) CloseChannel() {
	if p.Channel != nil {
		p.Channel.Close()
	}
}

// Install lets sandboxes run, all or none: new ones, those that are listed while they
// are made, and those that get another state by a rollback, a promotion or when they are
// woken. What a sandbox had before ends. The records are written before anybody sees the
// change. The sentries are detached, and the caller holds Op of the sandboxes that are
// listed. On error nothing changed, and sentries and freezes are left to the caller, as the
// channels are in any case.
func (r *Registry) Install(ctx context.Context, list []Placement, more ...store.Change) error {
	changes := more
	before := make([]api.State, len(list))
	now := r.clock.Now()
	for i := range list {
		rec := &list[i].Record
		before[i] = list[i].Instance.View().State
		if err := rec.runAfter(before[i]); err != nil {
			return err
		}
		rec.Hibernation, rec.DiskMiB, rec.Resting, rec.Dozing = "", 0, false, false
		changes = append(changes, rec.Stored())
	}
	if err := r.store.Apply(ctx, changes...); err != nil {
		return err
	}
	r.mu.Lock()
	for _, p := range list {
		r.byID[p.Instance.ID] = p.Instance
	}
	r.mu.Unlock()
	replaced := false
	for i, p := range list {
		b := p.Instance
		sentry, origin := b.Replace(p.Record, p.Sentry, p.Freeze)
		b.Touch(now)
		if before[i] == "" || before[i] == api.StateCreating {
			r.Events.publishCreated(b)
		} else {
			replaced = true
		}
		r.Watch(b, p.Sentry, p.Channel)
		r.End(b, sentry, origin)
	}
	if replaced {
		r.listener.Replaced()
	}
	return nil
}

// Enlist stores sandboxes that are being made, and lists them, all or none.
func (r *Registry) Enlist(ctx context.Context, children []*Instance) error {
	now := r.clock.Now()
	var changes []store.Change
	for _, b := range children {
		b.Touch(now)
		rec := b.Record()
		changes = append(changes, rec.Stored())
	}
	if err := r.store.Apply(ctx, changes...); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, b := range children {
		r.byID[b.ID] = b
	}
	return nil
}

// Fail has a child that is listed fail, which could not be made.
func (r *Registry) Fail(b *Instance, reason error) {
	b.mu.Lock()
	r.become(b, api.StateFailed, reason.Error())
	rec := b.rec
	b.mu.Unlock()
	if err := r.store.Apply(context.Background(), rec.Stored()); err != nil {
		r.log.Error("record a child that could not be made", "id", b.ID, "error", err) // the next daemon finds it failed, too
	}
}

// become changes the state of an instance whose mu the caller holds. A transition that
// is not allowed is a defect: it is logged, and the state stays.
func (r *Registry) become(b *Instance, to api.State, reason string) {
	if err := b.rec.Become(to, reason); err != nil {
		r.log.Error("change the state of a sandbox", "error", err)
	}
}

// Watch notices when the sentry of b ends by itself. channel is that of Placement.
func (r *Registry) Watch(b *Instance, s *launch.Sentry, channel *os.File) {
	r.listener.Began(b, s, channel)
	r.watchers.Go(func() {
		select {
		case <-r.closing:
		case <-s.Done():
			r.died(b, s)
		}
	})
}

// died marks b failed if s still is its sentry, and collects what s left.
func (r *Registry) died(b *Instance, s *launch.Sentry) {
	b.mu.Lock()
	if b.sentry != s {
		b.mu.Unlock()
		return // destroyed, promoted or rolled back meanwhile
	}
	b.sentry = nil
	r.become(b, api.StateFailed, s.End().Error())
	reason, f := b.rec.Sandbox.Reason, b.freeze
	b.freeze = nil
	b.mu.Unlock()
	r.log.Warn("sandbox failed", "id", b.ID, "reason", reason)
	r.Events.Publish(api.EventFailed, b, api.Event{Reason: reason})
	r.listener.Failed(b, s)
	s.Kill()
	r.freezes.Drop(f)
	r.recordFailed(b)
}

// recordFailed stores that b failed, unless it was destroyed or got another
// sentry meanwhile: holding Op keeps whoever does that from writing first.
func (r *Registry) recordFailed(b *Instance) {
	b.Op.RLock()
	defer b.Op.RUnlock()
	gone, rec := r.Gone(b), b.Record()
	if gone || rec.Sandbox.State != api.StateFailed {
		return
	}
	if err := r.store.Apply(context.Background(), rec.Stored()); err != nil {
		r.log.Error("record a failed sandbox", "id", b.ID, "error", err)
	}
}

// End ends what b had until now: a sentry, and the reference on a freeze, each of which may
// be nil.
func (r *Registry) End(b *Instance, s *launch.Sentry, f *freezes.Freeze) {
	if s != nil {
		r.listener.Ending(b, s)
		endSentry(s, r.freezes, r.timeout)
	}
	r.freezes.Drop(f)
}

// endSentry ends a sentry. If others depend on its memory it gives back all else first, for
// which it has so much time.
func endSentry(s *launch.Sentry, t *freezes.Table, timeout time.Duration) {
	if t.DependsOn(s) {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		// If it fails, its memory is only given back later.
		_, _ = s.Call(ctx, &wire.Call{Op: wire.OpQuit}, nil)
	}
	s.Kill()
}
