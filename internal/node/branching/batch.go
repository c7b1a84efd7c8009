package branching

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/control"
	"ramet.dev/ramet/internal/engine/launch"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/node/background"
	"ramet.dev/ramet/internal/node/freezes"
	"ramet.dev/ramet/internal/node/meter"
	"ramet.dev/ramet/internal/node/networks"
	"ramet.dev/ramet/internal/node/reach"
	"ramet.dev/ramet/internal/node/sandboxes"
	"ramet.dev/ramet/internal/node/selfcontrol"
	"ramet.dev/ramet/internal/node/spawn"
	"ramet.dev/ramet/internal/node/trust"
	"ramet.dev/ramet/internal/storage/store"
)

// batch makes children from one freeze.
type batch struct {
	forker   *Forker
	tenant   string
	began    time.Time
	timeout  time.Duration
	names    []string
	env      map[string]string
	engine   string // that loads the frozen state
	drafts   []sandboxes.Record
	children []api.Child
	sentries []*launch.Sentry       // readied ahead; nil where not
	made     []*sandboxes.Placement // nil where a child is not made or failed
	listed   []*sandboxes.Instance  // what children are until they are made that nobody waits for
	loading  chan struct{}          // see freezes.NewSlots
	// asked is the request of the frozen sandbox itself that is answered in the
	// children, 0 for none, and reply the answer.
	asked    uint64
	budget   *selfcontrol.Budget // pays for the children; nil if none does
	reply    func(*api.Sandbox) control.Reply
	template *launch.Template // of the sentries; nil if they load for themselves
	ahead    []chan struct{}  // closed when that sentry is readied or is not to be; nil where none was taken ahead
	done     bool
	begun    bool // the children are made in the background
	fresh    bool // see wire.Load.FreshRandomness
	// hostname is that of the children, "" for the frozen sandbox's. With ownHostname they have their own.
	hostname    string
	ownHostname bool
	// volumes are those that the children have besides those of the frozen sandbox.
	volumes []api.VolumeMount
	// secrets are set with the children; nil if there are none.
	secrets *networks.GivenSecrets
	// trusted is what the children's programs are to trust and the frozen ones do not; nil if there is nothing.
	trusted *trust.Plan
}

// newBatch checks the request and reserves the names.
func (k *Forker) newBatch(tenant string, began time.Time, count int, names []string, env map[string]string, timeoutMS int64) (*batch, error) {
	count = api.Children(count, names)
	if err := cmp.Or(api.ValidCount(count), api.ValidChildNames(count, names)); err != nil {
		return nil, err
	}
	if timeoutMS < 0 || timeoutMS > maxChildTimeout.Milliseconds() {
		return nil, api.Invalid("timeout_ms", "%d is not from 0 to %d", timeoutMS, maxChildTimeout.Milliseconds())
	}
	if err := api.ValidEnv("env", env); err != nil {
		return nil, err
	}
	b := &batch{
		forker: k, tenant: tenant, began: began, timeout: childTimeout, names: names, env: env,
		drafts: make([]sandboxes.Record, count), children: make([]api.Child, count),
		sentries: make([]*launch.Sentry, count), ahead: make([]chan struct{}, count), made: make([]*sandboxes.Placement, count), loading: freezes.NewSlots(),
	}
	if timeoutMS > 0 {
		b.timeout = time.Duration(timeoutMS) * time.Millisecond
	}
	ids := make([]string, count)
	for i := range ids {
		ids[i] = api.NewID(api.KindSandbox)
		name := ""
		if len(names) > 0 {
			name = names[i]
		}
		b.drafts[i] = sandboxes.NewRecord(tenant, ids[i], name, i)
	}
	if err := k.cfg.Sandboxes.Names.Reserve(tenant, names, ids); err != nil {
		return nil, err
	}
	return b, nil
}

// connect decides what the children may reach.
func (b *batch) connect(ctx context.Context, tree string, req *api.NetworkRequest, branch networks.Branch, from reach.Network) error {
	granted, err := b.forker.cfg.Networks.Grant(ctx, networks.Owner{Tenant: b.tenant, Tree: tree, Secrets: b.secrets}, req, branch, from)
	granted.Pending = reach.Pending{} // that of the parent
	for i := range b.drafts {
		b.drafts[i].SetNetwork(granted)
	}
	return err
}

// describe fills in what child i has from the sandbox that was frozen. claimed says that the sandbox itself asks for the
// metadata.
func (b *batch) describe(i int, from *api.Sandbox, ancestors []string, metadata map[string]string, claimed bool, life *api.LifecycleRequest) {
	d := &b.drafts[i]
	s := &d.Sandbox
	if !b.ownHostname {
		s.Identity.Hostname = cmp.Or(b.hostname, from.Identity.Hostname, s.Identity.Hostname)
	}
	s.Image, s.ImageName, s.Limits = from.Image, from.ImageName, from.Limits
	s.Depth = len(ancestors)
	d.Ancestors = ancestors
	s.Metadata, s.SelfControl = sandboxes.Merged(from.Metadata, metadata), from.SelfControl
	s.Claimed = api.ChangeClaimed(from.Claimed, selfcontrol.Additions(metadata), claimed)
	s.TrustHostCA, s.TrustedCAs = from.TrustHostCA, from.TrustedCAs
	s.Volumes = append(slices.Clone(from.Volumes), b.volumes...)
	s.Env, s.Cwd, s.User = networks.Environment(sandboxes.Merged(from.Env, b.env), &d.Reach), from.Cwd, from.User
	s.Lifecycle, s.AutoCheckpoint = from.Lifecycle.Inherited(life, b.forker.cfg.Clock.Now()), from.AutoCheckpoint
}

// equip has the programs of the children trust what their network needs. It comes after describe, and
// before a child is loaded.
func (b *batch) equip(ctx context.Context, from trust.Frozen) (err error) {
	if b.trusted, err = b.forker.cfg.Trust.OfFrozen(ctx, &b.drafts[0], from); err != nil {
		return err
	}
	for i := range b.drafts {
		b.trusted.Complete(&b.drafts[i])
	}
	return nil
}

// madeByItself makes the children those that the sandbox asked for by itself.
func (b *batch) madeByItself(by *selfcontrol.Request) {
	for i := range b.drafts {
		rec := &b.drafts[i]
		left := *rec.Sandbox.SelfControl
		left.Depth--
		rec.Sandbox.SelfControl = &left
	}
	b.asked, b.budget = by.ID, by.Budget
	b.reply = func(s *api.Sandbox) control.Reply {
		return control.Reply{Child: &control.Born{ID: s.ID, Index: s.Identity.ForkIndex, Parent: s.Parent}}
	}
}

// prepareAhead takes sentries for the first children, as many as can work at
// once besides those of other batches. Failures show when the child is made.
func (b *batch) prepareAhead(ctx context.Context) {
	if len(b.drafts) >= someChildren {
		return // a template may make them; without one, the pool has sentries for so few
	}
	for i := range b.drafts {
		select {
		case b.loading <- struct{}{}:
		default:
			return
		}
		readied := make(chan struct{})
		b.ahead[i] = readied
		go func() {
			defer close(readied)
			defer func() { <-b.loading }()
			ctx, cancel := context.WithTimeout(ctx, b.timeout)
			defer cancel()
			if s, err := b.forker.prepare(ctx, b.engine, &b.drafts[i], nil); err == nil {
				b.sentries[i] = s
			}
		}()
	}
}

// A fork into manyChildren or more, and into someChildren or more with a state that is large, in bytes, has a template
// load the state for all of them. With fewer, the first children would wait longer for it than all of them do when
// each loads the state by itself.
const (
	manyChildren = 16
	someChildren = 4
	largeState   = 4 << 20
)

// useTemplate starts a template where it is worth that.
func (b *batch) useTemplate(ctx context.Context, from *spawn.Origin) {
	n := len(b.drafts)
	if n < manyChildren && (n < someChildren || from.Bytes() < largeState) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	select {
	case b.loading <- struct{}{}:
		defer func() { <-b.loading }()
	case <-ctx.Done():
		return
	}
	var err error
	b.template, err = b.forker.cfg.Spawner.Template(ctx, from, n, &b.drafts[0].Sandbox)
	if err != nil && ctx.Err() == nil && api.CodeOf(err) != api.CodeUnsupported {
		b.forker.cfg.Log.Warn("each child loads the frozen state by itself", "error", err)
	}
}

// endTemplate ends the template, if there is one.
func (b *batch) endTemplate() {
	if b.template != nil {
		b.template.Close()
		b.template = nil
	}
}

// readied waits until nobody readies a sentry for child i ahead any more: within
// b.timeout.
func (b *batch) readied(i int) {
	if b.ahead[i] != nil {
		<-b.ahead[i]
	}
}

// make makes all children of f and commits those that succeeded. It fails only
// if none may exist: when ctx is cancelled or records cannot be written.
func (b *batch) make(ctx context.Context, f *freezes.Freeze, image string, hooks bool) error {
	from, err := b.forker.cfg.Spawner.OpenOrigin(f, image)
	if err != nil {
		return err
	}
	defer from.Close()
	b.useTemplate(ctx, from)
	defer b.endTemplate()
	var workers sync.WaitGroup
	for i := range b.drafts {
		workers.Go(func() { b.makeOne(ctx, i, from, hooks) })
	}
	workers.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err := b.commit(ctx, f); err != nil {
		return err
	}
	b.allReady()
	return nil
}

// allReady tells how long the children took, if any was made.
func (b *batch) allReady() {
	if slices.ContainsFunc(b.made, func(p *sandboxes.Placement) bool { return p != nil }) {
		b.forker.cfg.Meter.Millis(meter.AllReady, meter.Since(b.began))
	}
}

// makeOne makes child i when it is its turn, and leaves its outcome in the batch.
func (b *batch) makeOne(ctx context.Context, i int, from *spawn.Origin, hooks bool) {
	b.readied(i)
	select {
	case b.loading <- struct{}{}:
	case <-ctx.Done():
		b.fail(i, context.Cause(ctx))
		return
	}
	defer func() { <-b.loading }()
	late := api.Errorf(api.CodeTimeout, "the child was not ready within %v", b.timeout)
	deadline := time.Now().Add(b.timeout)
	ctx, cancel := context.WithDeadlineCause(ctx, deadline, late)
	defer cancel()
	// Children are made beside the request, where nobody else would catch what a
	// sentry's answer may bring about.
	defer func() {
		if v := recover(); v != nil {
			b.fail(i, background.Recovered(b.forker.cfg.Log, "making a child", v))
		}
	}()
	err := b.load(ctx, i, from, hooks)
	if err == nil && time.Now().After(deadline) {
		err = late // a busy machine may notice only now
	}
	if err != nil {
		b.fail(i, err)
	}
}

// firstError returns the error of the first child that failed.
func (b *batch) firstError() error {
	for i := range b.children {
		if e := b.children[i].Error; e != nil {
			return e
		}
	}
	return nil
}

// fail reports err as the outcome of child i and ends what there is of it.
func (b *batch) fail(i int, err error) {
	if p := b.made[i]; p != nil {
		p.CloseChannel()
		b.made[i] = nil
	}
	b.children[i] = api.Child{Error: api.AsError(err), Name: b.drafts[i].Sandbox.Name}
	if s := b.sentries[i]; s != nil {
		b.sentries[i] = nil
		s.Kill()
	}
}

// prepare readies the sentry of a child.
func (b *batch) prepare(ctx context.Context, d *sandboxes.Record) (s *launch.Sentry, err error) {
	if b.template == nil {
		return b.forker.prepare(ctx, b.engine, d, nil)
	}
	s, d.Process, err = b.forker.cfg.Spawner.PrepareFrom(ctx, b.template, b.engine, &d.Sandbox)
	return s, err
}

func (b *batch) load(ctx context.Context, i int, from *spawn.Origin, hooks bool) error {
	d := &b.drafts[i]
	if b.sentries[i] == nil {
		s, err := b.prepare(ctx, d)
		if err != nil {
			return err
		}
		b.sentries[i] = s
	}
	load := wire.Load{RunHooks: hooks, FreshRandomness: b.fresh, Volumes: spawn.Mounts(b.volumes)}
	if b.asked != 0 {
		load.Answer = selfcontrol.AnswerTo(b.asked, b.reply(&d.Sandbox))
	}
	loaded, channel, err := from.Load(ctx, b.sentries[i], d.ForSentry(), load)
	if err != nil {
		return err
	}
	if err := b.trusted.Write(ctx, b.sentries[i]); err != nil {
		if channel != nil {
			channel.Close()
		}
		return err
	}
	d.Freeze = from.Freeze().ID
	id := &d.Sandbox.Identity
	id.Hooks, id.Reseeded, id.Unwritten = loaded.Hooks, loaded.Reseeded, loaded.Unwritten
	var x *sandboxes.Instance
	if b.listed != nil {
		x = b.listed[i]
	} else {
		x = sandboxes.New(*d)
	}
	x.Birth.Mark(b.forker.cfg.Clock.Now())
	b.made[i] = &sandboxes.Placement{Instance: x, Record: *d, Sentry: b.sentries[i], Freeze: from.Freeze(), Channel: channel}
	b.children[i].ReadyMS = meter.Since(b.began)
	b.forker.cfg.Meter.Millis(meter.ChildReady, b.children[i].ReadyMS)
	return nil
}

// commit makes the children that succeeded sandboxes.
func (b *batch) commit(ctx context.Context, f *freezes.Freeze) error {
	var fresh []sandboxes.Placement
	for i, p := range b.made {
		if p == nil {
			continue
		}
		// Only now that all are ready: until here they end with the daemon.
		if err := spawn.Detach(ctx, p.Sentry); err != nil {
			b.fail(i, err)
			continue
		}
		fresh = append(fresh, *p)
		b.forker.cfg.Freezes.Hold(f, 1)
	}
	err := context.Cause(ctx) // a cancelled fork has no children
	if err == nil {
		err = b.pay(len(fresh), func(more ...store.Change) error {
			return b.forker.cfg.Sandboxes.Install(ctx, fresh, append(more, b.forker.cfg.Freezes.Stored(f))...)
		})
	}
	if err != nil {
		for range fresh {
			b.forker.cfg.Freezes.Drop(f)
		}
		return err
	}
	for i, p := range b.made {
		if p == nil {
			b.forker.cfg.Sandboxes.Names.Release(b.tenant, b.drafts[i].Sandbox.Name)
			continue
		}
		v := p.Instance.View()
		b.children[i].Sandbox, b.children[i].Identity = &v, &v.Identity
		b.sentries[i] = nil // the sandbox's
	}
	b.done = true
	return nil
}

// pay calls commit with what it costs to make n children.
func (b *batch) pay(n int, commit func(...store.Change) error) error {
	if b.budget == nil {
		return commit()
	}
	return b.budget.Spend(n, 0, func(c store.Change) error { return commit(c) })
}

// close gives up what was not committed. What is made in the background looks after
// itself.
func (b *batch) close() {
	if b.begun {
		return
	}
	for _, p := range b.made {
		if p != nil {
			p.CloseChannel()
		}
	}
	for _, x := range b.listed {
		x.Start.Abandon(nil)
	}
	for i := range b.sentries {
		b.readied(i)
		if s := b.sentries[i]; s != nil {
			s.Kill()
		}
	}
	if !b.done {
		b.forker.cfg.Sandboxes.Names.Release(b.tenant, b.names...)
	}
}
