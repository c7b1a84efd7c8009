package branching

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/launch"
	"ramet.dev/ramet/internal/node/background"
	"ramet.dev/ramet/internal/node/capture"
	"ramet.dev/ramet/internal/node/freezes"
	"ramet.dev/ramet/internal/node/meter"
	"ramet.dev/ramet/internal/node/networks"
	"ramet.dev/ramet/internal/node/quota"
	"ramet.dev/ramet/internal/node/reach"
	"ramet.dev/ramet/internal/node/resting"
	"ramet.dev/ramet/internal/node/sandboxes"
	"ramet.dev/ramet/internal/node/selfcontrol"
	"ramet.dev/ramet/internal/node/snapshots"
	"ramet.dev/ramet/internal/node/spawn"
	"ramet.dev/ramet/internal/node/timer"
	"ramet.dev/ramet/internal/node/trust"
	"ramet.dev/ramet/internal/service/access"
	"ramet.dev/ramet/internal/service/audit"
)

const (
	// childTimeout is how long a child may take if the request does not say.
	childTimeout = 30 * time.Second
	// maxChildTimeout bounds that: as long as hooks of children run, nothing else can
	// be done to what was forked.
	maxChildTimeout = 10 * time.Minute
)

// Config is what a Forker works with.
type Config struct {
	Sandboxes *sandboxes.Registry
	Snapshots *snapshots.Set
	Freezes   *freezes.Table
	Freezer   *capture.Freezer
	Rester    *resting.Rester
	Timers    *resting.Timers
	Spawner   *spawn.Spawner
	Admission *quota.Admission
	Images    Images
	Networks  Networks
	Trust     Trust
	Volumes   Volumes
	// Background makes the children that nobody waits for.
	Background *background.Group
	Audit      Audit
	Clock      timer.Clock
	Meter      meter.Meter
	Log        *slog.Logger
}

// Volumes finds and keeps volumes.
type Volumes interface {
	// Use returns the volumes that a new sandbox asks for besides those that it had, with their ids,
	// and keeps both until release is called.
	Use(ctx context.Context, had, more []api.VolumeMount) (mounts []api.VolumeMount, release func(), err error)
}

// Images finds, opens and keeps images.
type Images interface {
	// FindImage returns the image that the caller calls ref.
	FindImage(ctx context.Context, ref string) (api.Image, error)
	// CreateImage makes an image, or finds it if req says so.
	CreateImage(ctx context.Context, req api.ImageRequest, progress func(api.Progress)) (*api.Image, error)
	OpenImage(id string) (*os.File, error)
	// UseImage keeps an image while something is made of it that is not listed yet.
	UseImage(id string) (release func())
}

// Networks decides what new sandboxes may reach.
type Networks interface {
	// Prepare readies a sandbox that is to be forked into branches.
	Prepare(ctx context.Context, b *sandboxes.Instance, branch networks.Branch) error
	// Grant returns what is asked for, or from if req is nil, with the requests of branches.
	Grant(ctx context.Context, of networks.Owner, req *api.NetworkRequest, branch networks.Branch, from reach.Network) (reach.Network, error)
}

// Trust has new sandboxes trust the authorities that they are to trust.
type Trust interface {
	// OfImage completes a record. The result writes the files when the sandbox has booted; nil if
	// there are none.
	OfImage(ctx context.Context, rec *sandboxes.Record, image *os.File) (func(context.Context, *launch.Sentry) error, error)
	// OfFrozen plans for sandboxes with records like rec that are loaded.
	OfFrozen(ctx context.Context, rec *sandboxes.Record, from trust.Frozen) (*trust.Plan, error)
}

// Audit takes entries of the audit.
type Audit interface {
	AppendAudit(e api.AuditEntry)
}

// Forker makes sandboxes of what was frozen. It is safe for concurrent use.
type Forker struct{ cfg Config }

// NewForker returns a forker.
func NewForker(cfg Config) *Forker { return &Forker{cfg} }

// Fork makes children of a running sandbox. It is whole or not at all as far as
// crashes and cancellation go; a child that fails by itself is reported in its
// entry and does not harm the others. Children that the request does not wait for
// are made when it returns (start.go).
func (k *Forker) Fork(ctx context.Context, ref string, req api.ForkRequest) (*api.ForkResult, error) {
	b, err := k.cfg.Sandboxes.Find(ctx, ref)
	if err != nil {
		return nil, err
	}
	if err := access.From(ctx).MayMake("sandboxes"); err != nil {
		return nil, err
	}
	return k.ForkOf(ctx, b, req, nil)
}

// ForkOf is Fork. by is nil unless the sandbox asked for it by itself.
func (k *Forker) ForkOf(ctx context.Context, b *sandboxes.Instance, req api.ForkRequest, by *selfcontrol.Request) (_ *api.ForkResult, err error) {
	ctx, ended := k.cfg.Meter.Observe(ctx, "fork")
	defer ended(&err)
	began := time.Now()
	if b.View().State != api.StateHibernated { // which is forked as it is
		_, done, err := k.cfg.Rester.Use(ctx, b, api.StateRunning)
		if err != nil {
			return nil, fmt.Errorf("fork: %w", err)
		}
		defer done()
	}
	branch := networks.Branch{Hold: req.Hold, Record: req.Record}
	if err := k.cfg.Networks.Prepare(ctx, b, branch); err != nil {
		return nil, fmt.Errorf("fork: %w", err)
	}
	b.Op.RLock()
	defer b.Op.RUnlock()
	parent := b.View()
	if err := req.Lifecycle.Valid(); err != nil {
		return nil, err
	}
	if err := api.ValidMetadata("metadata", sandboxes.Merged(parent.Metadata, req.Metadata)); err != nil {
		return nil, err
	}
	if err := api.ValidChildHostname(req.Hostname, req.NewHostname); err != nil {
		return nil, err
	}
	fresh, err := api.RequiresFresh(req.Require)
	if err != nil {
		return nil, err
	}
	batch, err := k.newBatch(b.Tenant(), began, req.Count, req.Names, req.Env, req.TimeoutMS)
	if err != nil {
		return nil, err
	}
	defer batch.close()
	batch.fresh, batch.hostname, batch.ownHostname = fresh, req.Hostname, req.NewHostname
	rec := b.Record()
	batch.engine = k.engineOf(b, &rec)
	if err := batch.connect(ctx, rec.Lineage()[0], req.Network, branch, rec.Network()); err != nil {
		return nil, fmt.Errorf("fork: %w", err)
	}
	_, release, err := k.cfg.Volumes.Use(ctx, parent.Volumes, nil)
	if err != nil {
		return nil, fmt.Errorf("fork: %w", err)
	}
	defer release() // children that nobody waits for are listed by then
	made, err := k.cfg.Admission.Admit(ctx, b.Tenant(), b.Lineage(), len(batch.drafts))
	if err != nil {
		return nil, fmt.Errorf("fork: %w", err)
	}
	defer made()
	ancestors, own := rec.Lineage(), rec.Control
	for i := range batch.drafts {
		batch.describe(i, &parent, ancestors, req.Metadata, by != nil, req.Lifecycle)
		batch.drafts[i].Control = own.Inherited(by != nil)
		batch.drafts[i].Sandbox.Parent = b.ID
		if req.SecretEnv {
			batch.drafts[i].SetSecretEnv(rec.SecretEnv)
		}
	}
	if by != nil {
		batch.madeByItself(by)
	}
	batch.loading = b.FreezeGroup.Slots()
	making := ctx
	if !req.Waits() {
		if err := batch.outline(); err != nil {
			return nil, fmt.Errorf("fork: %w", err)
		}
		making = k.cfg.Background.Context()
	}
	// Sentries are readied while the source is being frozen.
	batch.prepareAhead(making)
	from, pause, err := k.freezeToFork(ctx, b)
	if err != nil {
		return nil, fmt.Errorf("fork: %w", err)
	}
	f := from.Freeze
	defer k.cfg.Freezes.Drop(f)
	if err := batch.equip(ctx, from); err != nil {
		return nil, fmt.Errorf("fork: %w", err)
	}
	out := &api.ForkResult{PauseMS: pause, SnapshotMS: meter.Since(began)}
	if req.Waits() {
		err = batch.make(ctx, f, parent.Image, true)
		out.Children = batch.children
	} else {
		out.Children, err = batch.begin(ctx, f, parent.Image, made)
	}
	if err != nil {
		return nil, fmt.Errorf("fork: %w", err)
	}
	noteChildren(ctx, f, parent.Image, out.Children, func(d *api.AuditDetails) { d.Parent = b.ID })
	k.cfg.Sandboxes.Events.PublishAs(api.EventForked, b, &parent, api.Event{Children: idsOf(out.Children)})
	out.ReturnMS = meter.Since(began)
	return out, nil
}

// engineOf returns the engine that children of a sandbox need.
func (k *Forker) engineOf(b *sandboxes.Instance, rec *sandboxes.Record) string {
	if s := k.cfg.Snapshots.Get(rec.Hibernation); s != nil && b.View().State == api.StateHibernated {
		return s.View().Engine
	}
	return rec.Engine
}

// freezeToFork returns the state that children of b are made of, on whose freeze the
// caller owns a reference, and for how long b stood still. One that is hibernated is
// not woken for it. The caller holds b.Op.
func (k *Forker) freezeToFork(ctx context.Context, b *sandboxes.Instance) (from trust.Frozen, pause float64, err error) {
	if b.View().State == api.StateHibernated {
		from, err = k.cfg.Rester.Hibernation(ctx, b)
		return from, 0, err
	}
	f, frozen, err := k.cfg.Freezer.FreezeShared(ctx, b)
	if err != nil {
		return from, 0, err
	}
	rec := b.Record()
	return trust.Frozen{Freeze: f, Source: &rec.Sandbox, Certificate: rec.Reach.Certificate}, frozen.PauseMS, nil
}

// idsOf returns the ids of the children that were made.
func idsOf(children []api.Child) (ids []string) {
	for _, c := range children {
		if c.Sandbox != nil {
			ids = append(ids, c.Sandbox.ID)
		}
	}
	return ids
}

// Restore makes new sandboxes from a snapshot.
func (k *Forker) Restore(ctx context.Context, ref string, req api.RestoreRequest) (*api.ForkResult, error) {
	return k.restoreWith(ctx, ref, req, nil)
}

// restoreWith is Restore that also sets secrets.
func (k *Forker) restoreWith(ctx context.Context, ref string, req api.RestoreRequest, secrets *networks.GivenSecrets) (_ *api.ForkResult, err error) {
	ctx, ended := k.cfg.Meter.Observe(ctx, "restore")
	defer ended(&err)
	began := time.Now()
	s, err := k.cfg.Snapshots.Find(ctx, ref)
	if err != nil {
		return nil, err
	}
	if err := access.From(ctx).MayMake("sandboxes"); err != nil {
		return nil, err
	}
	return k.restoreOf(ctx, s, req, began, false, secrets)
}

// RestoreOf is Restore, and the sandboxes are not checkpointed by themselves.
func (k *Forker) RestoreOf(ctx context.Context, s *snapshots.Snapshot, req api.RestoreRequest, began time.Time) (*api.ForkResult, error) {
	return k.restoreOf(ctx, s, req, began, true, nil)
}

func (k *Forker) restoreOf(ctx context.Context, s *snapshots.Snapshot, req api.RestoreRequest, began time.Time, plain bool, secrets *networks.GivenSecrets) (*api.ForkResult, error) {
	rec := s.Record()
	if err := api.ValidMetadata("metadata", sandboxes.Merged(rec.Source.Metadata, req.Metadata)); err != nil {
		return nil, err
	}
	if err := req.Lifecycle.Valid(); err != nil {
		return nil, err
	}
	if err := api.ValidChildHostname(req.Hostname, req.NewHostname); err != nil {
		return nil, err
	}
	fresh, err := api.RequiresFresh(req.Require)
	if err != nil {
		return nil, err
	}
	batch, err := k.newBatch(rec.Tenant(), began, req.Count, req.Names, req.Env, 0)
	if err != nil {
		return nil, err
	}
	defer batch.close()
	batch.fresh, batch.hostname, batch.ownHostname = fresh, req.Hostname, req.NewHostname
	branch := networks.Branch{Hold: req.Hold, Record: req.Record}
	batch.secrets, batch.engine = secrets, rec.Snapshot.Engine
	if err := batch.connect(ctx, rec.Lineage()[0], req.Network, branch, reach.Network{Policy: rec.Source.Network, Kept: rec.Reach}); err != nil {
		return nil, fmt.Errorf("restore: %w", err)
	}
	var release func()
	if batch.volumes, release, err = k.cfg.Volumes.Use(ctx, rec.Source.Volumes, req.Volumes); err != nil {
		return nil, fmt.Errorf("restore: %w", err)
	}
	defer release()
	made, err := k.cfg.Admission.Admit(ctx, rec.Tenant(), rec.Lineage(), len(batch.drafts))
	if err != nil {
		return nil, fmt.Errorf("restore: %w", err)
	}
	defer made()
	defer k.cfg.Images.UseImage(rec.Source.Image)() // s may be deleted before the sandboxes are listed
	f, err := s.Open(ctx)
	if err != nil {
		return nil, fmt.Errorf("restore: %w", err)
	}
	defer k.cfg.Freezes.Drop(f)
	source := &rec.Source
	ancestors := rec.Lineage()
	for i := range batch.drafts {
		batch.describe(i, source, ancestors, req.Metadata, false, req.Lifecycle)
		batch.drafts[i].Control = rec.Control
		d := &batch.drafts[i].Sandbox
		d.Parent, d.Snapshot = source.ID, s.ID
		if plain {
			d.AutoCheckpoint = nil
		}
	}
	batch.asked, batch.reply = rec.Asked, selfcontrol.RestoredFrom(s.ID, s.Label())
	if err := batch.equip(ctx, trust.Frozen{Freeze: f, Source: source, Certificate: rec.Trusts()}); err != nil {
		return nil, fmt.Errorf("restore: %w", err)
	}
	out := &api.ForkResult{SnapshotMS: meter.Since(began)}
	err = secrets.StoreWith(ctx, func() error {
		if err := batch.make(ctx, f, source.Image, true); err != nil || secrets == nil {
			return err
		}
		return batch.firstError()
	})
	if err != nil {
		return nil, fmt.Errorf("restore: %w", err)
	}
	out.Children = batch.children
	noteChildren(ctx, f, source.Image, batch.children, func(d *api.AuditDetails) { d.Parent, d.Snapshot, d.Digest = source.ID, s.ID, rec.Digest })
	out.ReturnMS = meter.Since(began)
	return out, nil
}

// noteChildren writes down what was made of a frozen state.
func noteChildren(ctx context.Context, f *freezes.Freeze, image string, children []api.Child, more func(*api.AuditDetails)) {
	audit.Of(ctx).Set(func(d *api.AuditDetails) {
		d.Freeze, d.Image, d.Children = f.ID, image, idsOf(children)
		d.Failed = len(children) - len(d.Children)
		more(d)
	})
}

// prepare readies a blank sentry of an engine for the sandbox of a record: limits and required layers.
func (k *Forker) prepare(ctx context.Context, engine string, rec *sandboxes.Record, require []string) (s *launch.Sentry, err error) {
	s, rec.Process, err = k.cfg.Spawner.Prepare(ctx, engine, &rec.Sandbox, require)
	return s, err
}
