package sandboxes

import (
	"context"
	"encoding/json"
	"os"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/launch"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/node/freezes"
	"ramet.dev/ramet/internal/node/memfiles"
	"ramet.dev/ramet/internal/node/spawn"
	"ramet.dev/ramet/internal/storage/store"
)

// RecoveryConfig is what a recovery works with.
type RecoveryConfig struct {
	Launcher *launch.Launcher
	Freezes  *freezes.Recovery
	MemFiles *memfiles.Table
	BootID   string // of the host
}

// Recovery brings together what the records say and what really runs. Reality wins. It does
// not lock what watchers change: Watch comes last, when everything of the node is there.
type Recovery struct {
	// Changes are to be stored.
	Changes []store.Change

	cfg      RecoveryConfig
	ctx      context.Context
	registry *Registry
	adopted  map[*Instance]*launch.Sentry
}

// Recover adopts the sentry of every sandbox in the records that should have one.
func (r *Registry) Recover(ctx context.Context, cfg RecoveryConfig) (*Recovery, error) {
	v := &Recovery{cfg: cfg, ctx: ctx, registry: r, adopted: map[*Instance]*launch.Sentry{}}
	return v, v.adoptAll()
}

// adoptAll adopts all sentries, and then gives sandboxes the freezes that they were made
// from.
func (v *Recovery) adoptAll() error {
	gens := map[string][]string{} // of each sandbox, by id
	err := v.registry.store.Each(v.ctx, store.Sandboxes, func(id string, doc []byte) error {
		var rec Record
		if err := json.Unmarshal(doc, &rec); err != nil {
			return corrupt("sandbox", id, err)
		}
		rec.Control = rec.Control.Migrate(&rec.Sandbox.Claimed)
		b := New(rec)
		b.ID = id
		if s := rec.Sandbox.State; s != api.StateFailed && s != api.StateHibernated {
			names, err := v.adopt(b)
			if v.ctx.Err() != nil {
				return context.Cause(v.ctx) // the next daemon adopts it
			}
			if launch.IsShort(err) { // likewise
				return api.Errorf(api.CodeLimit, "sandbox %s runs, but this daemon cannot take it over: %w: raise its limits (see ramet doctor) and start it again", id, err)
			}
			if err != nil {
				v.registry.log.Warn("sandbox did not survive", "id", id, "reason", err)
				b.rec.Freeze = ""
				v.failed(b, err.Error())
			}
			gens[id] = names
		}
		v.registry.byID[id] = b
		if n := b.rec.Sandbox.Name; n != "" {
			v.registry.Names.ids[owned{b.rec.Tenant(), n}] = id
		}
		return nil
	})
	if err != nil {
		return err
	}
	// Only now all sources are known.
	for id, b := range v.registry.byID {
		if b.sentry == nil || b.rec.Freeze == "" {
			continue
		}
		origin, changes := v.cfg.Freezes.Origin(b.rec.Freeze, gens[id])
		b.freeze = origin
		v.Changes = append(v.Changes, changes...)
	}
	return nil
}

// failed notes that b has failed.
func (v *Recovery) failed(b *Instance, reason string) {
	v.registry.become(b, api.StateFailed, reason)
	v.changed(b)
}

// changed has the record of b stored.
func (v *Recovery) changed(b *Instance) { v.Changes = append(v.Changes, b.rec.Stored()) }

func corrupt(what, id string, err error) error {
	return api.Errorf(api.CodeCorrupt, "record of %s %s: %w", what, id, err)
}

// adopt connects b to its sentry and returns the generations that it holds, on
// each of which the caller then holds a reference.
func (v *Recovery) adopt(b *Instance) ([]string, error) {
	if b.rec.Sandbox.State == api.StateCreating {
		return nil, ErrNotStarted // its sentry is swept, if it has one
	}
	if boot := b.rec.Boot; boot != "" && boot != v.cfg.BootID {
		return nil, errHostRestarted
	}
	s, info, files, err := v.cfg.Launcher.Adopt(v.ctx, b.rec.Key, b.rec.PID, b.rec.Start)
	if err != nil {
		return nil, err
	}
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	if err := v.addMemory(b, s, info.Generations, files); err != nil {
		if !launch.IsShort(err) {
			s.Kill()
		}
		return nil, err
	}
	if err := spawn.Watch(s, &b.rec.Sandbox); err != nil {
		return nil, err
	}
	b.sentry = s
	v.cfg.Freezes.Adopted(s)
	v.adopted[b] = s
	if b.rec.Resting {
		b.rec.Resting = false
		v.changed(b)
	}
	paused := info.State == string(api.StatePaused)
	if paused && b.rec.Sandbox.State == api.StateRunning {
		paused = !v.letRun(b, s)
	}
	state := api.StateRunning
	if paused {
		state = api.StatePaused
	}
	if state != b.rec.Sandbox.State {
		v.registry.become(b, state, "")
	}
	if info.ID != b.ID {
		// The old daemon ended in the middle of a promotion, which did not
		// happen then.
		if err := spawn.Identify(v.ctx, s, b.rec.ForSentry()); err != nil {
			v.registry.log.Warn("give a sandbox its identity back", "id", b.ID, "error", err)
		}
	}
	return info.Generations, nil
}

// errHostRestarted is why a sandbox failed that ran when the host ended.
var errHostRestarted = api.Errorf(api.CodeSandboxDied, "host restarted")

// letRun resumes a sandbox that the old daemon was pausing or hibernating, and had
// told nobody of. It reports whether that worked.
func (v *Recovery) letRun(b *Instance, s *launch.Sentry) bool {
	_, err := s.Call(v.ctx, &wire.Call{Op: wire.OpResume}, nil)
	if api.CodeOf(err) == api.CodeWrongState {
		err = nil // it was not paused any more: its sentry had nobody to tell of the freeze
	}
	if err != nil {
		v.registry.log.Warn("resume a sandbox that was being paused or hibernated", "id", b.ID, "error", err)
	}
	return err == nil
}

// addMemory takes a reference on each generation of b, or on none. It refuses
// memory files that are not those of the records: a sentry that was taken over
// could give its own in place of a relative's, whose children would then read
// it. What a version of Ramet that kept no such records left is believed once,
// and recorded.
func (v *Recovery) addMemory(b *Instance, s *launch.Sentry, names []string, files []*os.File) error {
	own, err := launch.IDOf(s.Memory())
	if err != nil {
		return err
	}
	if b.rec.Memory == (launch.FileID{}) {
		b.rec.Memory = own
		v.changed(b)
	}
	if b.rec.Memory != own {
		return api.Errorf(api.CodeCorrupt, "the sentry's own memory file is not the one it was started with")
	}
	if pages, err := launch.IDOf(s.Files()); err != nil {
		return err
	} else if b.rec.Files != pages {
		return api.Errorf(api.CodeCorrupt, "the sentry's own file of pages is not the one it was started with")
	}
	if err := v.cfg.Freezes.Check(b.rec.Freeze, names, files); err != nil {
		return err
	}
	for i, name := range names {
		if err := v.cfg.MemFiles.Add(name, files[i]); err != nil {
			v.cfg.MemFiles.Release(names[:i]...)
			return err
		}
	}
	return nil
}

// FailUnusable lets those hibernated sandboxes fail whose snapshot is not usable.
func (v *Recovery) FailUnusable(usable func(snapshot string) bool) {
	for _, b := range v.registry.byID {
		if b.rec.Sandbox.State == api.StateHibernated && !usable(b.rec.Hibernation) {
			v.failed(b, "it was hibernated, and the snapshot of that is gone")
		}
	}
}

// ReadTimelines gives sandboxes their steps.
func (v *Recovery) ReadTimelines() error {
	return v.registry.store.Each(v.ctx, store.Timelines, func(id string, doc []byte) error {
		b := v.registry.byID[id]
		if b == nil {
			v.Changes = append(v.Changes, store.Change{Table: store.Timelines, ID: id})
			return nil
		}
		if err := b.Timeline.Load(doc); err != nil {
			return corrupt("timeline of sandbox", id, err)
		}
		return nil
	})
}

// Watch watches the sentries of the sandboxes that run.
func (v *Recovery) Watch() {
	for b, s := range v.adopted {
		v.registry.Watch(b, s, nil)
	}
}
