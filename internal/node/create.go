package node

import (
	"cmp"
	"context"
	"fmt"
	"os"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/launch"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/node/selfcontrol"
	"ramet.dev/ramet/internal/node/spawn"
	"ramet.dev/ramet/internal/server/audit"
	"ramet.dev/ramet/internal/service/access"
	"ramet.dev/ramet/internal/storage/store"
)

// Create makes a sandbox from an image or a snapshot.
func (m *Node) Create(ctx context.Context, req api.CreateRequest) (*api.Sandbox, error) {
	if err := api.ValidEnv("env", req.Env); err != nil {
		return nil, err
	}
	if err := m.validLimits(req.Limits); err != nil {
		return nil, err
	}
	if err := api.ValidMetadata("metadata", req.Metadata); err != nil {
		return nil, err
	}
	if err := cmp.Or(req.SelfControl.Valid(), req.Lifecycle.Valid(), req.AutoCheckpoint.Valid()); err != nil {
		return nil, err
	}
	if req.SelfControl != nil && m.cfg.Command == nil {
		return nil, api.Errorf(api.CodeUnsupported, "this program was built without the command by which sandboxes control themselves: build it with make build")
	}
	if api.IsID(api.KindSnapshot, req.Image) {
		return m.createFromSnapshot(ctx, req)
	}
	img, err := m.FindImage(ctx, req.Image)
	if api.CodeOf(err) == api.CodeNotFound {
		if _, serr := m.snapshots.Find(ctx, req.Image); serr == nil {
			return m.createFromSnapshot(ctx, req)
		}
	}
	if err != nil {
		return nil, err
	}
	defer m.UseImage(img.ID)()
	if err := access.From(ctx).MayMakeTree("sandboxes of images"); err != nil {
		return nil, err
	}
	id, tenant := api.NewID(api.KindSandbox), access.From(ctx).Tenant
	if err := m.reserve(tenant, []string{req.Name}, []string{id}); err != nil {
		return nil, err
	}
	d := newDraft(tenant, id, req.Name, 0)
	s := &d.rec.Sandbox
	s.Image, s.Limits, s.Metadata, s.Lifecycle = img.ID, req.Limits, req.Metadata, (*api.Lifecycle)(nil).Inherited(req.Lifecycle, m.clock.Now())
	s.AutoCheckpoint = req.AutoCheckpoint
	if len(img.Names) > 0 {
		s.ImageName = img.Names[0]
	}
	s.Env, s.Cwd, s.User = mergeEnv(img.Env, req.Env), img.Cwd, img.User
	if req.SelfControl != nil {
		s.SelfControl = req.SelfControl
		d.rec.Control = &selfcontrol.Grant{Budget: id}
	}
	made, err := m.Admit(ctx, tenant, nil, 1)
	if err != nil {
		m.unreserve(tenant, req.Name)
		return nil, fmt.Errorf("create sandbox: %w", err)
	}
	defer made()
	b, err := m.boot(ctx, d, req.Require)
	if err != nil {
		m.unreserve(tenant, req.Name)
		return nil, fmt.Errorf("create sandbox: %w", err)
	}
	audit.Of(ctx).Object(b.id)
	audit.Of(ctx).Set(func(d *api.AuditDetails) { d.Image = img.ID })
	return m.inspect(ctx, b), nil
}

// boot starts the draft's sandbox from its image.
func (m *Node) boot(ctx context.Context, d draft, require []string) (_ *instance, err error) {
	ctx, ended := m.observe(ctx, "create")
	defer ended(&err)
	image, err := m.OpenImage(d.rec.Sandbox.Image)
	if err != nil {
		return nil, err
	}
	defer image.Close()
	sentry, err := m.prepare(ctx, &d, require)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			sentry.Kill()
		}
	}()
	var command *os.File
	if d.rec.Control != nil {
		command = m.cfg.Command
	}
	if err := spawn.Boot(ctx, sentry, &d.rec.Sandbox, image, command); err != nil {
		return nil, err
	}
	if err := spawn.Detach(ctx, sentry); err != nil {
		return nil, err
	}
	b := &instance{id: d.rec.Sandbox.ID}
	if err := m.install(ctx, []placement{{b: b, rec: d.rec, sentry: sentry}}, m.newBudgetOf(&d.rec)...); err != nil {
		m.dropBudget(d.rec.Control)
		return nil, err
	}
	return b, nil
}

// createFromSnapshot is a restore of one with the fields of a create.
func (m *Node) createFromSnapshot(ctx context.Context, req api.CreateRequest) (*api.Sandbox, error) {
	if req.SelfControl != nil {
		return nil, api.Invalid("self_control", "a sandbox from a snapshot may do what the one that was frozen might")
	}
	if req.Limits != (api.Limits{}) || len(req.Require) > 0 {
		return nil, api.Invalid("limits", "a sandbox from a snapshot has the limits and layers of the one that was frozen")
	}
	if req.AutoCheckpoint != nil {
		return nil, api.Invalid("auto_checkpoint", "a sandbox from a snapshot is checkpointed as the one that was frozen")
	}
	var names []string
	if req.Name != "" {
		names = []string{req.Name}
	}
	out, err := m.Restore(ctx, req.Image, api.RestoreRequest{Count: 1, Names: names, Metadata: req.Metadata, Env: req.Env, Lifecycle: req.Lifecycle})
	if err != nil {
		return nil, err
	}
	if e := out.Children[0].Error; e != nil {
		return nil, e
	}
	made := out.Children[0].Sandbox
	if sb, err := m.Get(ctx, made.ID); err == nil {
		return sb, nil
	}
	return made, nil // somebody was quick to end it
}

// mergeEnv returns an image's environment with more on top.
func mergeEnv(image []string, more map[string]string) map[string]string {
	env := map[string]string{}
	for _, kv := range image {
		for i := range len(kv) {
			if kv[i] == '=' {
				env[kv[:i]] = kv[i+1:]
				break
			}
		}
	}
	for k, v := range more {
		env[k] = v
	}
	return env
}

// Destroy ends a sandbox. Its memory stays as far as its children need it.
func (m *Node) Destroy(ctx context.Context, ref string) (err error) {
	ctx, ended := m.observe(ctx, "destroy")
	defer ended(&err)
	b, err := m.resolve(ctx, ref)
	if err != nil {
		return err
	}
	return m.destroy(b, "")
}

// destroy is Destroy. reason is empty if somebody asked for it.
func (m *Node) destroy(b *instance, reason string) error {
	b.abandon(errUnwanted)
	b.op.Lock()
	defer b.op.Unlock()
	return m.destroyLocked(b, reason)
}

// destroyLocked is destroy. The caller holds b.op.
func (m *Node) destroyLocked(b *instance, reason string) error {
	m.mu.Lock()
	if m.instances[b.id] != b {
		m.mu.Unlock()
		return api.NotFound("sandbox", b.id) // somebody was faster
	}
	delete(m.instances, b.id)
	m.unreserveLocked(b.Tenant(), []string{b.view().Name})
	m.mu.Unlock()
	m.timers.Clear(b.id)
	changes := m.noteGone(b.lineage(), goneRecord{Name: b.view().Name})
	changes = append(changes, store.Change{Table: store.Sandboxes, ID: b.id}, store.Change{Table: store.Activity, ID: b.id}, store.Change{Table: store.Timelines, ID: b.id})
	if err := m.store.Apply(context.Background(), changes...); err != nil {
		// A record without a sentry is collected at the next start.
		m.log.Error("forget a destroyed sandbox", "id", b.id, "error", err)
	}
	m.end(b)
	b.mu.Lock()
	own := b.rec.Control
	b.mu.Unlock()
	m.dropBudget(own)
	m.snapshots.Collect()
	m.publish(api.EventDestroyed, b, api.Event{Reason: reason})
	return nil
}

// end takes the sentry and the freeze from b and ends them.
func (m *Node) end(b *instance) {
	b.mu.Lock()
	sentry, f := b.sentry, b.freeze
	b.sentry, b.freeze = nil, nil
	m.become(b, api.StateDestroyed, b.rec.Sandbox.Reason)
	b.mu.Unlock()
	m.book(b, sentry)
	m.endSentry(sentry)
	m.freezes.Drop(f)
}

// endSentry ends a sentry, which may be nil. If others depend on its memory it
// gives back all else first.
func (m *Node) endSentry(s *launch.Sentry) {
	if s == nil {
		return
	}
	if m.freezes.DependsOn(s) {
		ctx, cancel := context.WithTimeout(context.Background(), m.timeout)
		defer cancel()
		// If it fails, its memory is only given back later.
		_, _ = s.Call(ctx, &wire.Call{Op: wire.OpQuit}, nil)
	}
	s.Kill()
}
