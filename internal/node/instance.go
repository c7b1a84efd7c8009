package node

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/launch"
	"ramet.dev/ramet/internal/node/freezes"
	"ramet.dev/ramet/internal/node/selfcontrol"
	"ramet.dev/ramet/internal/node/spawn"
	"ramet.dev/ramet/internal/node/timeline"
	"ramet.dev/ramet/internal/service/access"
	"ramet.dev/ramet/internal/storage/store"
)

// record is what is stored of a sandbox.
type record struct {
	Sandbox api.Sandbox `json:"sandbox"`
	// Ancestors are the ids of the sandboxes and snapshots it descends from,
	// the first one created first.
	Ancestors []string `json:"ancestors,omitempty"`
	// Freeze is what it was made from; empty if it was created.
	Freeze string `json:"freeze,omitempty"`
	// Control is nil if it may not control itself.
	Control *selfcontrol.Grant `json:"control,omitempty"`
	// Hibernation is the snapshot that it is on disk as, while it is hibernated.
	Hibernation string `json:"hibernation,omitempty"`
	// DiskMiB is what its files took when it was hibernated.
	DiskMiB float64 `json:"disk_mib,omitempty"`
	// Resting says that it is being hibernated: if its sentry is paused, it is for
	// that.
	Resting bool `json:"resting,omitempty"`
	// Dozing says that it was paused because it was idle, not by somebody.
	Dozing bool `json:"dozing,omitempty"`
	// Base is the snapshot on disk that it came from, or that was taken of it last:
	// the next one is written as what differs from that.
	Base string `json:"base,omitempty"`
	spawn.Process
}

// instance is a sandbox.
type instance struct {
	id string
	op sync.RWMutex // see the package comment
	// start is nil unless it was listed before it was made.
	start *start

	freezeGroup freezes.Group // forks that come at the same time
	fresh       atomic.Bool   // a child in which nothing was run yet
	looked      looked
	writing     sync.Mutex // held while a snapshot of it is written to disk, inside of op

	mu     sync.Mutex
	rec    record
	sentry *launch.Sentry  // nil once it failed, and while it is hibernated
	freeze *freezes.Freeze // nil if it was created
	born   time.Time       // when a child was ready, until its cost was told

	activity activity
	timeline timeline.Log
}

// view returns the sandbox as users see it, without its memory.
func (b *instance) view() api.Sandbox {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.rec.Sandbox
}

// viewFor is view for the caller. Of another tenant's sandbox that does not have the
// environment, which may hold secrets.
func (b *instance) viewFor(ctx context.Context) api.Sandbox {
	v := b.view()
	if access.OfRecord(v.Tenant) != access.From(ctx).Tenant {
		v.Env = nil
	}
	return v
}

// controls reports whether the sandbox may control itself.
func (b *instance) controls() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.rec.Control != nil
}

// running returns the sandbox's sentry, or an error unless its state is one of ok.
func (b *instance) running(ok ...api.State) (*launch.Sentry, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := &b.rec.Sandbox
	if slices.Contains(ok, s.State) && b.sentry != nil {
		return b.sentry, nil
	}
	if s.State == api.StateFailed {
		return nil, api.Errorf(api.CodeSandboxDied, "sandbox %s failed: %s", b.id, s.Reason)
	}
	remedy := ""
	switch s.State {
	case api.StateHibernated:
		remedy = ": wake it first"
	case api.StatePaused:
		remedy = ": resume it first"
	}
	return nil, api.Errorf(api.CodeWrongState, "sandbox %s is %s, not %s%s", b.id, s.State, ok[0], remedy)
}

// explain turns err, of a call to s that kept nobody from ending the sandbox's
// sentry meanwhile, into one that says so if that is what happened.
func (m *Node) explain(b *instance, s *launch.Sentry, err error) error {
	if api.CodeOf(err) != api.CodeSandboxDied {
		return err
	}
	removed := m.gone(b)
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case removed:
		return api.Errorf(api.CodeSandboxDied, "sandbox %s was removed meanwhile", b.id)
	case b.rec.Sandbox.State == api.StateHibernated:
		return api.Errorf(api.CodeSandboxDied, "sandbox %s was hibernated meanwhile", b.id)
	case b.sentry != nil && b.sentry != s:
		return api.Errorf(api.CodeSandboxDied, "sandbox %s was given another state meanwhile, by a rollback or a promotion", b.id)
	}
	return err
}

// draft describes a sandbox before it has a sentry.
type draft struct {
	rec record
}

// newDraft fills in what is the same for all ways to make a sandbox.
func newDraft(tenant, id, name string, forkIndex int) draft {
	host := name
	if host == "" {
		host = strings.ReplaceAll(id, "_", "-")
	}
	return draft{rec: record{Sandbox: api.Sandbox{
		ID: id, Tenant: access.Recorded(tenant), Name: name, CreatedAt: time.Now().UTC(),
		Identity: api.Identity{SandboxID: id, ForkIndex: forkIndex, Hostname: host, MachineID: spawn.NewMachineID()},
	}}}
}

// prepare readies a blank sentry for the draft: limits and required layers.
func (m *Node) prepare(ctx context.Context, d *draft, require []string) (s *launch.Sentry, err error) {
	s, d.rec.Process, err = m.spawner.Prepare(ctx, &d.rec.Sandbox, require)
	return s, err
}

// canFreeze refuses a sandbox that goes on in the sentry of another version: what
// that would save, this one's sentries could not load.
func (m *Node) canFreeze(b *instance) error {
	b.mu.Lock()
	engine := b.rec.Engine
	b.mu.Unlock()
	if engine == "" || engine == m.engine() {
		return nil
	}
	return api.Errorf(api.CodeUnsupported, "sandbox %s was started by engine %s, this is %s: it runs on, and its files can be exported and committed, but it cannot be forked or frozen any more", b.id, engine, m.engine())
}

// placement is a sandbox that is to run from now on.
type placement struct {
	b      *instance
	rec    record // the record to be, but for its state
	sentry *launch.Sentry
	freeze *freezes.Freeze // what the sandbox was made from, with a reference; nil if it was created
}

// install lets sandboxes run, all or none: new ones, those that are listed while they
// are made, and those that get another state by a rollback, a promotion or when they are
// woken. What a sandbox had before ends. The records are written before anybody sees the
// change. The sentries are detached, and the caller holds op of the sandboxes that are
// listed. On error nothing changed, and sentries and freezes are left to the caller.
func (m *Node) install(ctx context.Context, list []placement, more ...store.Change) error {
	changes := more
	before := make([]api.State, len(list))
	now := m.clock.Now()
	for i := range list {
		b, rec := list[i].b, &list[i].rec
		b.mu.Lock()
		before[i] = b.rec.Sandbox.State
		b.mu.Unlock()
		if err := rec.runAfter(before[i]); err != nil {
			return err
		}
		rec.Hibernation, rec.DiskMiB, rec.Resting, rec.Dozing = "", 0, false, false
		changes = append(changes, store.Change{Table: store.Sandboxes, ID: b.id, Doc: *rec})
	}
	if err := m.store.Apply(ctx, changes...); err != nil {
		return err
	}
	m.mu.Lock()
	for _, p := range list {
		m.instances[p.b.id] = p.b
	}
	m.mu.Unlock()
	replaced := false
	for i, p := range list {
		p.b.mu.Lock()
		sentry, origin := p.b.sentry, p.b.freeze
		p.b.rec, p.b.sentry, p.b.freeze = p.rec, p.sentry, p.freeze
		p.b.activity.at = now
		p.b.mu.Unlock()
		if before[i] == "" || before[i] == api.StateCreating {
			m.publishCreated(p.b)
		} else {
			replaced = true
		}
		m.watch(p.b, p.sentry)
		m.book(p.b, sentry)
		m.endSentry(sentry)
		m.freezes.Drop(origin)
		m.arm(p.b)
	}
	if replaced { // a sandbox may not need its snapshot any more
		m.snapshots.Collect()
	}
	return nil
}

// gone reports whether b was destroyed.
func (m *Node) gone(b *instance) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.instances[b.id] != b
}

// watch notices when the sentry of b ends by itself, and serves its requests if it
// may make any.
func (m *Node) watch(b *instance, s *launch.Sentry) {
	if b.controls() {
		m.selfControl.Serve(m.choreContext, s)
	}
	m.watchers.Add(1)
	go func() {
		defer m.watchers.Done()
		select {
		case <-m.closing:
		case <-s.Done():
			m.died(b, s)
		}
	}()
}

// died marks b failed if s still is its sentry, and collects what s left.
func (m *Node) died(b *instance, s *launch.Sentry) {
	b.mu.Lock()
	if b.sentry != s {
		b.mu.Unlock()
		return // destroyed, promoted or rolled back meanwhile
	}
	b.sentry = nil
	m.become(b, api.StateFailed, s.End().Error())
	reason, f := b.rec.Sandbox.Reason, b.freeze
	b.freeze = nil
	b.mu.Unlock()
	m.log.Warn("sandbox failed", "id", b.id, "reason", reason)
	m.publish(api.EventFailed, b, api.Event{Reason: reason})
	s.Kill()
	m.freezes.Drop(f)
	m.recordFailed(b)
}

// recordFailed stores that b failed, unless it was destroyed or got another
// sentry meanwhile: holding op keeps whoever does that from writing first.
func (m *Node) recordFailed(b *instance) {
	b.op.RLock()
	defer b.op.RUnlock()
	gone := m.gone(b)
	b.mu.Lock()
	rec := b.rec
	b.mu.Unlock()
	if gone || rec.Sandbox.State != api.StateFailed {
		return
	}
	if err := m.store.Apply(context.Background(), store.Change{Table: store.Sandboxes, ID: b.id, Doc: rec}); err != nil {
		m.log.Error("record a failed sandbox", "id", b.id, "error", err)
	}
}

// Get returns a sandbox with its present memory and disk.
func (m *Node) Get(ctx context.Context, ref string) (*api.Sandbox, error) {
	b, err := m.resolve(ctx, ref)
	if err != nil {
		return nil, err
	}
	return m.inspect(ctx, b), nil
}

// inspect returns all that is known of a sandbox. What it uses is left out where
// that cannot be read now.
func (m *Node) inspect(ctx context.Context, b *instance) *api.Sandbox {
	v := b.viewFor(ctx)
	if v.Lifecycle.IdleTimeout() > 0 {
		at := b.usedAt(m.clock.Now()).UTC()
		v.ActiveAt = &at
	}
	if st := m.statsAtRest(b); st != nil && st.State == api.StateHibernated {
		v.Disk = &st.Disk
	} else if st, err := m.stats(ctx, b); err == nil {
		v.Memory, v.Disk = &st.Memory, &st.Disk
	}
	return &v
}

// List returns the sandboxes that match, the oldest first.
func (m *Node) List(ctx context.Context, f api.ListFilter) ([]api.Sandbox, error) {
	image := f.Image
	if image != "" {
		if img, err := m.FindImage(ctx, image); err == nil {
			image = img.ID
		}
	}
	boxes := oldestFirst(m.visible(ctx))
	var err error
	if f.Parent, err = m.ancestorID(ctx, boxes, f.Parent); err != nil {
		return nil, err
	}
	if f.Ancestor, err = m.ancestorID(ctx, boxes, f.Ancestor); err != nil {
		return nil, err
	}
	list := make([]api.Sandbox, 0, len(boxes))
	for _, b := range boxes {
		v := b.viewFor(ctx)
		switch {
		case f.Parent != "" && v.Parent != f.Parent && v.Snapshot != f.Parent:
		case f.Ancestor != "" && (v.ID == f.Ancestor || !slices.Contains(b.lineage(), f.Ancestor)):
		case f.State != "" && v.State != f.State:
		case image != "" && v.Image != image:
		case f.Name != "" && v.Name != f.Name:
		case !hasAll(v.Metadata, f.Metadata):
		default:
			list = append(list, v)
		}
	}
	return list, nil
}

// oldestFirst sorts sandboxes, without the descriptions of all of them.
func oldestFirst(boxes []*instance) []*instance {
	type place struct {
		at time.Time
		b  *instance
	}
	order := make([]place, len(boxes))
	for i, b := range boxes {
		b.mu.Lock()
		order[i] = place{b.rec.Sandbox.CreatedAt, b}
		b.mu.Unlock()
	}
	slices.SortFunc(order, func(a, b place) int { return a.at.Compare(b.at) })
	for i, p := range order {
		boxes[i] = p.b
	}
	return boxes
}

func (m *Node) all() []*instance {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Values(m.instances))
}

func hasAll(have, want map[string]string) bool {
	for k, v := range want {
		if got, ok := have[k]; !ok || got != v {
			return false
		}
	}
	return true
}

// keeps reports whether the snapshot id is one that b, which may be nil, may return
// to by itself.
func (b *instance) keeps(id string) bool {
	if b == nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.rec.Hibernation == id || b.rec.Base == id || b.timeline.Has(id)
}
