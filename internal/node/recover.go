package node

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/launch"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/node/freezes"
	"ramet.dev/ramet/internal/node/spawn"
	"ramet.dev/ramet/internal/storage/store"
)

// recovery is the start of a node: it brings together what the records say
// and what really runs. Reality wins.
type recovery struct {
	m       *Node
	ctx     context.Context
	freezes *freezes.Recovery
	adopted map[*instance]*launch.Sentry
	changes []store.Change
}

// recover finds the sandboxes and snapshots of an earlier daemon, and collects
// what it left half made. It returns the sandboxes that run, to be watched.
func (m *Node) recover(ctx context.Context) (adopted map[*instance]*launch.Sentry, err error) {
	r := &recovery{
		m: m, ctx: ctx, adopted: map[*instance]*launch.Sentry{},
	}
	for _, step := range []func() error{r.readFreezes, r.adoptSandboxes, r.releasePins, r.readSnapshots, r.findHibernated, r.readActivity, r.readTimelines, r.readGone, r.readBudgets, r.sweep} {
		if err := step(); err != nil {
			return nil, fmt.Errorf("recover: %w", err)
		}
	}
	if err := m.store.Apply(ctx, r.changes...); err != nil {
		return nil, err
	}
	return r.adopted, nil
}

func (r *recovery) readFreezes() (err error) {
	r.freezes, err = r.m.freezes.Recover(r.ctx)
	return err
}

func corrupt(what, id string, err error) error {
	return api.Errorf(api.CodeCorrupt, "record of %s %s: %w", what, id, err)
}

// adoptSandboxes adopts the sentry of every sandbox that should have one.
func (r *recovery) adoptSandboxes() error {
	gens := map[string][]string{} // of each sandbox, by id
	err := r.m.store.Each(r.ctx, store.Sandboxes, func(id string, doc []byte) error {
		b := &instance{id: id}
		if err := json.Unmarshal(doc, &b.rec); err != nil {
			return corrupt("sandbox", id, err)
		}
		if s := b.rec.Sandbox.State; s != api.StateFailed && s != api.StateHibernated {
			names, err := r.adopt(b)
			if r.ctx.Err() != nil {
				return context.Cause(r.ctx) // the next daemon adopts it
			}
			if launch.IsShort(err) { // likewise
				return api.Errorf(api.CodeLimit, "sandbox %s runs, but this daemon cannot take it over: %w: raise its limits (see ramet doctor) and start it again", id, err)
			}
			if err != nil {
				r.m.log.Warn("sandbox did not survive", "id", id, "reason", err)
				r.m.become(b, api.StateFailed, err.Error())
				b.rec.Freeze = ""
				r.changes = append(r.changes, store.Change{Table: store.Sandboxes, ID: id, Doc: b.rec})
			}
			gens[id] = names
		}
		r.m.instances[id] = b
		if n := b.rec.Sandbox.Name; n != "" {
			r.m.names[owned{b.rec.tenant(), n}] = id
		}
		return nil
	})
	if err != nil {
		return err
	}
	// Only now all sources are known.
	for id, b := range r.m.instances {
		if b.sentry == nil {
			continue
		}
		if b.rec.Freeze != "" {
			origin, changes := r.freezes.Origin(b.rec.Freeze, gens[id])
			b.freeze = origin
			r.changes = append(r.changes, changes...)
		}
	}
	return nil
}

// adopt connects b to its sentry and returns the generations that it holds, on
// each of which the caller then holds a reference.
func (r *recovery) adopt(b *instance) ([]string, error) {
	if b.rec.Sandbox.State == api.StateCreating {
		return nil, errNotStarted // its sentry is swept, if it has one
	}
	if boot := b.rec.Boot; boot != "" && boot != r.m.cfg.BootID {
		return nil, errHostRestarted
	}
	s, info, files, err := r.m.launcher.Adopt(r.ctx, b.rec.Key, b.rec.PID, b.rec.Start)
	if err != nil {
		return nil, err
	}
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	if err := r.addMemory(b, s, info.Generations, files); err != nil {
		if !launch.IsShort(err) {
			s.Kill()
		}
		return nil, err
	}
	b.sentry = s
	r.freezes.Adopted(s)
	r.adopted[b] = s
	if b.rec.Resting {
		b.rec.Resting = false
		r.changes = append(r.changes, store.Change{Table: store.Sandboxes, ID: b.id, Doc: b.rec})
	}
	paused := info.State == string(api.StatePaused)
	if paused && b.rec.Sandbox.State == api.StateRunning {
		paused = !r.letRun(b, s)
	}
	state := api.StateRunning
	if paused {
		state = api.StatePaused
	}
	if state != b.rec.Sandbox.State {
		r.m.become(b, state, "")
	}
	if info.ID != b.id {
		// The old daemon ended in the middle of a promotion, which did not
		// happen then.
		if err := spawn.Identify(r.ctx, s, &b.rec.Sandbox); err != nil {
			r.m.log.Warn("give a sandbox its identity back", "id", b.id, "error", err)
		}
	}
	return info.Generations, nil
}

// errHostRestarted is why a sandbox failed that ran when the host ended.
var errHostRestarted = api.Errorf(api.CodeSandboxDied, "host restarted")

// letRun resumes a sandbox that the old daemon was pausing or hibernating, and had
// told nobody of. It reports whether that worked.
func (r *recovery) letRun(b *instance, s *launch.Sentry) bool {
	_, err := s.Call(r.ctx, &wire.Call{Op: wire.OpResume}, nil)
	if api.CodeOf(err) == api.CodeWrongState {
		err = nil // it was not paused any more: its sentry had nobody to tell of the freeze
	}
	if err != nil {
		r.m.log.Warn("resume a sandbox that was being paused or hibernated", "id", b.id, "error", err)
	}
	return err == nil
}

// addMemory takes a reference on each generation of b, or on none. It refuses
// memory files that are not those of the records: a sentry that was taken over
// could give its own in place of a relative's, whose children would then read
// it. What a version of Ramet that kept no such records left is believed once,
// and recorded.
func (r *recovery) addMemory(b *instance, s *launch.Sentry, names []string, files []*os.File) error {
	own, err := launch.IDOf(s.Memory())
	if err != nil {
		return err
	}
	if b.rec.Memory == (launch.FileID{}) {
		b.rec.Memory = own
		r.changes = append(r.changes, store.Change{Table: store.Sandboxes, ID: b.id, Doc: b.rec})
	}
	if b.rec.Memory != own {
		return api.Errorf(api.CodeCorrupt, "the sentry's own memory file is not the one it was started with")
	}
	if pages, err := launch.IDOf(s.Files()); err != nil {
		return err
	} else if b.rec.Files != pages {
		return api.Errorf(api.CodeCorrupt, "the sentry's own file of pages is not the one it was started with")
	}
	if err := r.freezes.Check(b.rec.Freeze, names, files); err != nil {
		return err
	}
	for i, name := range names {
		if err := r.m.memFiles.Add(name, files[i]); err != nil {
			r.m.memFiles.Release(names[:i]...)
			return err
		}
	}
	return nil
}

// releasePins drops what the old daemon pinned and nobody needs, and forgets
// freezes that nobody holds.
func (r *recovery) releasePins() error {
	r.changes = append(r.changes, r.freezes.ReleasePins(r.ctx)...)
	return nil
}

func (r *recovery) readSnapshots() error {
	changes, err := r.m.snapshots.Recover(r.ctx)
	r.changes = append(r.changes, changes...)
	return err
}

// findHibernated lets those fail whose snapshot is not there.
func (r *recovery) findHibernated() error {
	for id, b := range r.m.instances {
		if b.rec.Sandbox.State == api.StateHibernated && !r.m.snapshots.Usable(b.rec.Hibernation) {
			r.m.become(b, api.StateFailed, "it was hibernated, and the snapshot of that is gone")
			r.changes = append(r.changes, store.Change{Table: store.Sandboxes, ID: id, Doc: b.rec})
		}
	}
	return nil
}

// readActivity finds out when sandboxes were used last. What was used later than
// was written down has not become idle earlier for it.
func (r *recovery) readActivity() error {
	at := map[string]time.Time{}
	err := r.m.store.Each(r.ctx, store.Activity, func(id string, doc []byte) error {
		var a activityRecord
		if err := json.Unmarshal(doc, &a); err != nil {
			return corrupt("activity of sandbox", id, err)
		}
		if r.m.instances[id] == nil {
			r.changes = append(r.changes, store.Change{Table: store.Activity, ID: id})
		}
		at[id] = a.At
		return nil
	})
	now := r.m.clock.Now()
	for id, b := range r.m.instances {
		b.activity.at, b.activity.saved = now, at[id]
		if saved, ok := at[id]; ok {
			if used := saved.Add(max(b.rec.Sandbox.Lifecycle.IdleTimeout()/lookAgain, minLook)); used.Before(now) {
				b.activity.at = used
			}
		}
	}
	return err
}

// readTimelines gives sandboxes their steps.
func (r *recovery) readTimelines() error {
	return r.m.store.Each(r.ctx, store.Timelines, func(id string, doc []byte) error {
		b := r.m.instances[id]
		if b == nil {
			r.changes = append(r.changes, store.Change{Table: store.Timelines, ID: id})
			return nil
		}
		if err := b.timeline.Load(doc); err != nil {
			return corrupt("timeline of sandbox", id, err)
		}
		return nil
	})
}

// sweep ends sentries and removes files that belong to nothing.
func (r *recovery) sweep() error {
	keep := r.freezes.IsAdopted
	if err := r.m.launcher.Sweep(r.ctx, keep); err != nil {
		r.m.log.Warn("end sentries that nobody needs", "error", err)
	}
	if r.m.cgroups != nil {
		if _, err := r.m.cgroups.Sweep(r.ctx, keep); err != nil {
			r.m.log.Warn("collect control groups", "error", err)
		}
	}
	return r.m.snapshots.Sweep()
}

// readBudgets reads the budgets that a sandbox or snapshot still has, and removes the
// records of others. It runs after all else was read.
func (r *recovery) readBudgets() error {
	var had []string
	for _, b := range r.m.instances {
		if b.rec.Control != nil {
			had = append(had, b.rec.Control.Budget)
		}
	}
	for _, s := range r.m.snapshots.All() {
		if control := s.Control(); control != nil {
			had = append(had, control.Budget)
		}
	}
	return r.m.store.Each(r.ctx, store.Grants, func(id string, doc []byte) error {
		if !slices.Contains(had, id) {
			r.changes = append(r.changes, store.Change{Table: store.Grants, ID: id})
			return nil
		}
		if err := r.m.budgets.Load(id, doc); err != nil {
			return corrupt("grant", id, err)
		}
		return nil
	})
}
