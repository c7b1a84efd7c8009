package node

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/control"
	"ramet.dev/ramet/internal/engine/launch"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/node/freezes"
	"ramet.dev/ramet/internal/node/selfcontrol"
	"ramet.dev/ramet/internal/node/spawn"
	"ramet.dev/ramet/internal/service/access"
	"ramet.dev/ramet/internal/storage/store"
)

const (
	// childTimeout is how long a child may take if the request does not say.
	childTimeout = 30 * time.Second
	// maxChildTimeout bounds that: as long as hooks of children run, nothing else can
	// be done to what was forked.
	maxChildTimeout = 10 * time.Minute
)

// Fork makes children of a running sandbox. It is whole or not at all as far as
// crashes and cancellation go; a child that fails by itself is reported in its
// entry and does not harm the others. Children that the request does not wait for
// are made when it returns (starting.go).
func (m *Node) Fork(ctx context.Context, ref string, req api.ForkRequest) (*api.ForkResult, error) {
	b, err := m.resolve(ctx, ref)
	if err != nil {
		return nil, err
	}
	if err := access.From(ctx).MayMake("sandboxes"); err != nil {
		return nil, err
	}
	return m.fork(ctx, b, req, nil)
}

// fork is Fork. by is nil unless the sandbox asked for it by itself.
func (m *Node) fork(ctx context.Context, b *instance, req api.ForkRequest, by *selfcontrol.Request) (_ *api.ForkResult, err error) {
	ctx, ended := m.observe(ctx, "fork")
	defer ended(&err)
	began := time.Now()
	if b.view().State != api.StateHibernated { // which is forked as it is
		_, done, err := m.use(ctx, b, api.StateRunning)
		if err != nil {
			return nil, fmt.Errorf("fork: %w", err)
		}
		defer done()
	}
	b.op.RLock()
	defer b.op.RUnlock()
	parent := b.view()
	if err := req.Lifecycle.Valid(); err != nil {
		return nil, err
	}
	if err := api.ValidMetadata("metadata", merged(parent.Metadata, req.Metadata)); err != nil {
		return nil, err
	}
	fresh, err := api.RequiresFresh(req.Require)
	if err != nil {
		return nil, err
	}
	batch, err := m.newBatch(b.Tenant(), began, req.Count, req.Names, req.Env, req.TimeoutMS)
	if err != nil {
		return nil, err
	}
	defer batch.close()
	batch.fresh = fresh
	made, err := m.Admit(ctx, b.Tenant(), b.lineage(), len(batch.drafts))
	if err != nil {
		return nil, fmt.Errorf("fork: %w", err)
	}
	defer made()
	b.mu.Lock()
	ancestors, own := append(append([]string{}, b.rec.Ancestors...), b.id), b.rec.Control
	b.mu.Unlock()
	for i := range batch.drafts {
		batch.describe(i, &parent, ancestors, req.Metadata, req.Lifecycle)
		batch.drafts[i].rec.Control = own.Inherited(by != nil).Retagged(selfcontrol.Additions(req.Metadata), by != nil)
		batch.drafts[i].rec.Sandbox.Parent = b.id
	}
	if by != nil {
		batch.madeByItself(by)
	}
	batch.loading = b.freezeGroup.Slots()
	making := ctx
	if !req.Waits() {
		if err := batch.outline(); err != nil {
			return nil, fmt.Errorf("fork: %w", err)
		}
		making = m.background
	}
	// Sentries are readied while the source is being frozen.
	batch.prepareAhead(making)
	f, pause, err := m.freezeToFork(ctx, b)
	if err != nil {
		return nil, fmt.Errorf("fork: %w", err)
	}
	defer m.freezes.Drop(f)
	out := &api.ForkResult{PauseMS: pause, SnapshotMS: millis(began)}
	if req.Waits() {
		err = batch.make(ctx, f, parent.Image, true)
		out.Children = batch.children
	} else {
		out.Children, err = batch.begin(ctx, f, parent.Image, made)
	}
	if err != nil {
		return nil, fmt.Errorf("fork: %w", err)
	}
	noteChildren(ctx, f, parent.Image, out.Children, func(d *api.AuditDetails) { d.Parent = b.id })
	m.publishView(api.EventForked, &parent, api.Event{Children: idsOf(out.Children)})
	out.ReturnMS = millis(began)
	return out, nil
}

// freezeToFork returns the freeze that children of b are made of, on which the
// caller owns a reference, and for how long b stood still. One that is hibernated is
// not woken for it. The caller holds b.op.
func (m *Node) freezeToFork(ctx context.Context, b *instance) (*freezes.Freeze, float64, error) {
	if b.view().State == api.StateHibernated {
		f, err := m.hibernation(ctx, b)
		return f, 0, err
	}
	f, frozen, err := m.freezeShared(ctx, b)
	if err != nil {
		return nil, 0, err
	}
	return f, frozen.PauseMS, nil
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

// batch makes children from one freeze.
type batch struct {
	m        *Node
	tenant   string
	began    time.Time
	timeout  time.Duration
	names    []string
	env      map[string]string
	drafts   []draft
	children []api.Child
	sentries []*launch.Sentry // readied ahead; nil where not
	made     []*placement     // nil where a child is not made or failed
	listed   []*instance      // what children are until they are made that nobody waits for
	loading  chan struct{}    // see freezes.NewSlots
	// asked is the request of the frozen sandbox itself that is answered in the
	// children, 0 for none, and reply the answer.
	asked  uint64
	budget *selfcontrol.Budget // pays for the children; nil if none does
	reply  func(*api.Sandbox) control.Reply
	ahead  []chan struct{} // closed when that sentry is readied or is not to be; nil where none was taken ahead
	done   bool
	begun  bool // the children are made in the background
	fresh  bool // see wire.Load.FreshRandomness
}

// newBatch checks the request and reserves the names.
func (m *Node) newBatch(tenant string, began time.Time, count int, names []string, env map[string]string, timeoutMS int64) (*batch, error) {
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
		m: m, tenant: tenant, began: began, timeout: childTimeout, names: names, env: env,
		drafts: make([]draft, count), children: make([]api.Child, count),
		sentries: make([]*launch.Sentry, count), ahead: make([]chan struct{}, count), made: make([]*placement, count), loading: freezes.NewSlots(),
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
		b.drafts[i] = newDraft(tenant, ids[i], name, i)
	}
	if err := m.reserve(tenant, names, ids); err != nil {
		return nil, err
	}
	return b, nil
}

// describe fills in what child i has from the sandbox that was frozen.
func (b *batch) describe(i int, from *api.Sandbox, ancestors []string, metadata map[string]string, life *api.LifecycleRequest) {
	d := &b.drafts[i]
	s := &d.rec.Sandbox
	s.Image, s.ImageName, s.Limits = from.Image, from.ImageName, from.Limits
	s.Depth = len(ancestors)
	d.rec.Ancestors = ancestors
	s.Metadata, s.SelfControl = merged(from.Metadata, metadata), from.SelfControl
	s.Env, s.Cwd, s.User = merged(from.Env, b.env), from.Cwd, from.User
	s.Lifecycle, s.AutoCheckpoint = from.Lifecycle.Inherited(life, b.m.clock.Now()), from.AutoCheckpoint
}

// madeByItself makes the children those that the sandbox asked for by itself.
func (b *batch) madeByItself(by *selfcontrol.Request) {
	for i := range b.drafts {
		rec := &b.drafts[i].rec
		left := *rec.Sandbox.SelfControl
		left.Depth--
		rec.Sandbox.SelfControl = &left
	}
	b.asked, b.budget = by.ID, by.Budget
	b.reply = func(s *api.Sandbox) control.Reply {
		return control.Reply{Child: &control.Born{ID: s.ID, Index: s.Identity.ForkIndex, Parent: s.Parent}}
	}
}

func merged(a, b map[string]string) map[string]string {
	if len(a)+len(b) == 0 {
		return nil
	}
	out := maps.Clone(a)
	if out == nil {
		out = map[string]string{}
	}
	maps.Copy(out, b)
	return out
}

// prepareAhead takes sentries for the first children, as many as can work at
// once besides those of other batches. Failures show when the child is made.
func (b *batch) prepareAhead(ctx context.Context) {
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
			if s, err := b.m.prepare(ctx, &b.drafts[i], nil); err == nil {
				b.sentries[i] = s
			}
		}()
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
	from, err := b.m.openOrigin(f, image)
	if err != nil {
		return err
	}
	defer from.Close()
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
	if slices.ContainsFunc(b.made, func(p *placement) bool { return p != nil }) {
		b.m.metric(MetricAllReady, millis(b.began))
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
			b.fail(i, b.m.panicked("making a child", v))
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

// errDefect is what those are told who met one.
var errDefect = api.Errorf(api.CodeInternal, "a defect in Ramet; the daemon's log tells more")

// panicked writes down what was recovered from, and returns what to say of it.
func (m *Node) panicked(doing string, v any) error {
	m.log.Error(doing+" panicked", "panic", v, "stack", string(debug.Stack()))
	return errDefect
}

// fail reports err as the outcome of child i and ends what there is of it.
func (b *batch) fail(i int, err error) {
	b.made[i] = nil
	b.children[i] = api.Child{Error: api.AsError(err), Name: b.drafts[i].rec.Sandbox.Name}
	if s := b.sentries[i]; s != nil {
		b.sentries[i] = nil
		s.Kill()
	}
}

func (b *batch) load(ctx context.Context, i int, from *spawn.Origin, hooks bool) error {
	d := &b.drafts[i]
	if b.sentries[i] == nil {
		s, err := b.m.prepare(ctx, d, nil)
		if err != nil {
			return err
		}
		b.sentries[i] = s
	}
	load := wire.Load{RunHooks: hooks, FreshRandomness: b.fresh}
	if b.asked != 0 {
		load.Answer = selfcontrol.AnswerTo(b.asked, b.reply(&d.rec.Sandbox))
	}
	loaded, err := from.Load(ctx, b.sentries[i], &d.rec.Sandbox, load)
	if err != nil {
		return err
	}
	d.rec.Freeze = from.Freeze().ID
	id := &d.rec.Sandbox.Identity
	id.Hooks, id.Reseeded, id.Unwritten = loaded.Hooks, loaded.Reseeded, loaded.Unwritten
	x := &instance{id: d.rec.Sandbox.ID}
	if b.listed != nil {
		x = b.listed[i]
	}
	x.fresh.Store(true)
	x.mu.Lock()
	x.born = b.m.clock.Now()
	x.mu.Unlock()
	b.made[i] = &placement{b: x, rec: d.rec, sentry: b.sentries[i], freeze: from.Freeze()}
	b.children[i].ReadyMS = millis(b.began)
	b.m.metric(MetricChildReady, b.children[i].ReadyMS)
	return nil
}

// commit makes the children that succeeded sandboxes.
func (b *batch) commit(ctx context.Context, f *freezes.Freeze) error {
	var fresh []placement
	for i, p := range b.made {
		if p == nil {
			continue
		}
		// Only now that all are ready: until here they end with the daemon.
		if err := spawn.Detach(ctx, p.sentry); err != nil {
			b.fail(i, err)
			continue
		}
		fresh = append(fresh, *p)
		b.m.freezes.Hold(f, 1)
	}
	err := context.Cause(ctx) // a cancelled fork has no children
	if err == nil {
		err = b.pay(len(fresh), func(more ...store.Change) error {
			return b.m.install(ctx, fresh, append(more, b.m.freezes.Stored(f))...)
		})
	}
	if err != nil {
		for range fresh {
			b.m.freezes.Drop(f)
		}
		return err
	}
	for i, p := range b.made {
		if p == nil {
			b.m.unreserve(b.tenant, b.drafts[i].rec.Sandbox.Name)
			continue
		}
		v := p.b.view()
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
	for _, x := range b.listed {
		x.start.abandon(nil)
	}
	for i := range b.sentries {
		b.readied(i)
		if s := b.sentries[i]; s != nil {
			s.Kill()
		}
	}
	if !b.done {
		b.m.unreserve(b.tenant, b.names...)
	}
}
