package node

import (
	"context"
	"maps"
	"strings"
	"sync"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/launch"
	"ramet.dev/ramet/internal/node/freezes"
	"ramet.dev/ramet/internal/node/quota"
	"ramet.dev/ramet/internal/server/audit"
	"ramet.dev/ramet/internal/service/access"
)

// What is about to be made counts like what there is, from the moment that it is
// allowed: of two requests for the last place one is refused.

// admission is what is being made.
type admission struct {
	mu      sync.Mutex
	making  map[string]int64 // sandboxes, by tenant
	inTree  map[string]int64 // and by the tree's first sandbox
	pending int64            // bytes of memory that they will need
}

// root returns the first sandbox of the tree that something with the line belongs
// to, "" for a tree that is to be.
func root(line []string) string {
	if len(line) == 0 {
		return ""
	}
	return line[0]
}

// admit refuses what would exceed a quota or does not fit the machine. line is what
// the n new sandboxes descend from. done is called when they are there, or failed.
// If memory is short, it waits until sandboxes are put to disk that nobody uses: the
// caller must not hold the op of one that could be.
func (m *Node) admit(ctx context.Context, tenant string, line []string, n int) (done func(), err error) {
	return m.withRoom(ctx, func() (func(), error) { return m.tryAdmit(tenant, line, n) })
}

// admitAgain is admit for a sandbox that there is, and to which no process on the host
// belongs: it counts already, and needs memory again.
func (m *Node) admitAgain(ctx context.Context) (done func(), err error) {
	return m.withRoom(ctx, func() (func(), error) {
		m.admitted.mu.Lock()
		defer m.admitted.mu.Unlock()
		if err := m.fits(perSandbox, m.admitted.pending); err != nil {
			return nil, err
		}
		return m.admitted.promiseLocked(perSandbox), nil
	})
}

// promise keeps bytes of memory for what was admitted and is not made yet.
func (m *Node) promise(bytes int64) (done func()) {
	m.admitted.mu.Lock()
	defer m.admitted.mu.Unlock()
	return m.admitted.promiseLocked(bytes)
}

// promiseLocked is promise. The caller holds a.mu.
func (a *admission) promiseLocked(bytes int64) (done func()) {
	a.pending += bytes
	return sync.OnceFunc(func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.pending -= bytes
	})
}

// withRoom makes room as long as try fails for want of memory, and there is some to make.
func (m *Node) withRoom(ctx context.Context, try func() (func(), error)) (done func(), err error) {
	waiting, cancel := context.WithTimeout(ctx, patienceForRoom)
	defer cancel()
	for {
		done, err := try()
		if api.CodeOf(err) != api.CodeNoMemory || waiting.Err() != nil || !m.makeRoom(waiting) {
			return done, err
		}
	}
}

func (m *Node) tryAdmit(tenant string, line []string, n int) (done func(), err error) {
	m.admitted.mu.Lock()
	defer m.admitted.mu.Unlock()
	tree := root(line)
	if err := m.checkQuotas(tenant, tree, quota.Ask{Sandboxes: int64(n), Depth: int64(len(line)), Disk: n == 0}); err != nil {
		return nil, err
	}
	need := int64(n) * perSandbox
	if err := m.fits(need, m.admitted.pending); err != nil {
		return nil, err
	}
	m.admitted.making[tenant] += int64(n)
	m.admitted.inTree[tree] += int64(n)
	kept := m.admitted.promiseLocked(need)
	return sync.OnceFunc(func() {
		kept()
		m.admitted.mu.Lock()
		defer m.admitted.mu.Unlock()
		subtract(m.admitted.making, tenant, int64(n))
		subtract(m.admitted.inTree, tree, int64(n))
	}), nil
}

func subtract(from map[string]int64, key string, n int64) {
	if from[key] -= n; from[key] == 0 {
		delete(from, key)
	}
}

// checkQuotas is called with admitted locked.
func (m *Node) checkQuotas(tenant, tree string, ask quota.Ask) error {
	ofTenant, ofTree := m.ledger.Quotas(tenant)
	if ofTenant != (api.Quota{}) {
		used := m.consumption(tenant, "")
		used.Sandboxes += m.admitted.making[tenant]
		if err := quota.Check("tenant "+tenant, ofTenant, used, ask); err != nil {
			return err
		}
	}
	if ofTree == (api.Quota{}) {
		return nil
	}
	of := "tree " + tree
	var used api.Consumption
	if tree == "" {
		of = "a new tree"
	} else {
		used = m.consumption(tenant, tree)
		used.Sandboxes += m.admitted.inTree[tree]
	}
	return quota.Check(of, ofTree, used, ask)
}

// mayRun refuses to do anything in a sandbox whose processor time is used up.
func (m *Node) mayRun(b *instance) error {
	b.mu.Lock()
	tenant, tree := b.rec.tenant(), root(b.rec.lineage())
	b.mu.Unlock()
	ofTenant, ofTree := m.ledger.Quotas(tenant)
	all, ours := m.ledger.Spent(tenant, tree)
	if err := quota.Check("tenant "+tenant, api.Quota{CPUSeconds: ofTenant.CPUSeconds}, api.Consumption{CPUSeconds: all}, quota.Ask{}); err != nil {
		return err
	}
	return quota.Check("tree "+tree, api.Quota{CPUSeconds: ofTree.CPUSeconds}, api.Consumption{CPUSeconds: ours}, quota.Ask{})
}

// consumption adds up what a tenant has, or one tree of it. It asks no sandbox:
// memory files say themselves how large they are.
func (m *Node) consumption(tenant, tree string) api.Consumption {
	var c api.Consumption
	sizes := map[string]int64{} // of files, by name: what several share counts once
	shared := m.memFiles.Sizes()
	add := func(f *freezes.Freeze) {
		if f == nil {
			return
		}
		for _, name := range f.Generations {
			sizes[name] = shared[name]
		}
	}
	for _, b := range m.all() {
		b.mu.Lock()
		if b.rec.tenant() == tenant && (tree == "" || root(b.rec.lineage()) == tree) {
			c.Sandboxes++
			c.Depth = max(c.Depth, int64(b.rec.Sandbox.Depth))
			if s := b.sentry; s != nil {
				sizes[s.Key()], sizes[s.FilesName()] = launch.Allocated(s.Memory()), launch.Allocated(s.Files()) // 0 if they are closed by now
			}
			add(b.freeze)
		}
		b.mu.Unlock()
	}
	const mib = 1 << 20
	for _, s := range m.allSnapshots() {
		s.mu.Lock()
		if s.rec.tenant() == tenant && (tree == "" || root(s.rec.Ancestors) == tree) {
			c.DiskMiB += float64(s.rec.Snapshot.SizeBytes) / mib
			if !s.rec.Snapshot.OnDisk {
				add(s.freeze)
			}
		}
		s.mu.Unlock()
	}
	for name, bytes := range sizes {
		if strings.Contains(name, "/") {
			c.DiskMiB += float64(bytes) / mib
		} else {
			c.MemoryMiB += float64(bytes) / mib
		}
	}
	all, ours := m.ledger.Spent(tenant, tree)
	if c.CPUSeconds = all; tree != "" {
		c.CPUSeconds = ours
	}
	return c
}

// Tenants returns all tenants that have anything.
func (m *Node) Tenants(ctx context.Context) ([]api.Tenant, error) {
	names, err := m.tenantNames(ctx)
	if err != nil {
		return nil, err
	}
	var list []api.Tenant
	for name := range names {
		list = append(list, *m.tenant(name))
	}
	return list, nil
}

// tenantNames returns the tenants that have a quota, a token, a sandbox or an image, and the
// default one.
func (m *Node) tenantNames(ctx context.Context) (map[string]bool, error) {
	names := map[string]bool{access.DefaultTenant: true}
	for _, t := range m.ledger.Tenants() {
		names[t] = true
	}
	for _, t := range m.tokens.List(ctx) {
		names[t.Tenant] = true
	}
	for _, b := range m.all() {
		names[b.tenant()] = true
	}
	owners, err := m.ImageOwners()
	if err != nil {
		return nil, err
	}
	maps.Copy(names, owners)
	return names, nil
}

func (m *Node) tenant(name string) *api.Tenant {
	t := &api.Tenant{Name: name, Usage: m.consumption(name, "")}
	t.Quota, t.Tree = m.ledger.Quotas(name)
	return t
}

// GetTenant returns the caller's own tenant, or any for the owner of the daemon.
func (m *Node) GetTenant(ctx context.Context, name string) (*api.Tenant, error) {
	if c := access.From(ctx); !c.Owner && (c.Tenant != name || c.Bound()) {
		return nil, api.NotFound("tenant", name)
	}
	if err := api.ValidTenant(name); err != nil {
		return nil, err
	}
	names, err := m.tenantNames(ctx)
	if err != nil {
		return nil, err
	}
	if !names[name] {
		return nil, api.NotFound("tenant", name)
	}
	return m.tenant(name), nil
}

// UpdateTenant changes the quotas of a tenant. What it has already stays.
func (m *Node) UpdateTenant(ctx context.Context, name string, req api.TenantUpdate) (*api.Tenant, error) {
	if err := access.From(ctx).OwnerOnly("changes quotas"); err != nil {
		return nil, err
	}
	if err := api.ValidTenant(name); err != nil {
		return nil, err
	}
	audit.Of(ctx).Object(name)
	if err := m.ledger.Set(ctx, name, req); err != nil {
		return nil, err
	}
	return m.tenant(name), nil
}
