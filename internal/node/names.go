package node

import (
	"context"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/node/visibility"
	"ramet.dev/ramet/internal/service/access"
)

// owned is a name, which is one tenant's.
type owned struct{ tenant, name string }

// resolve returns the sandbox that ref, an id or a name, refers to.
func (m *Node) resolve(ctx context.Context, ref string) (*instance, error) {
	if err := api.ValidRef(api.KindSandbox, "id", ref); err != nil {
		return nil, err
	}
	if err := access.From(ctx).Known(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	id := ref
	if named, ok := m.names[owned{access.From(ctx).Tenant, ref}]; ok {
		id = named
	}
	b := m.instances[id]
	m.mu.Unlock()
	if b == nil || !visibility.Found(ctx, id, b) {
		return nil, api.NotFound("sandbox", ref)
	}
	return b, nil
}

// SeenBy implements visibility.Thing.
func (b *instance) SeenBy(c access.Caller) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return c.Sees(b.rec.tenant(), b.rec.lineage())
}

// visible returns the sandboxes that the caller sees.
func (m *Node) visible(ctx context.Context) []*instance { return visibility.Of(ctx, m.all()) }

// tenant returns whose the sandbox is. Records of versions without tenants are the
// default one's.
func (r *record) tenant() string { return access.OfRecord(r.Sandbox.Tenant) }

// Tenant implements visibility.Thing.
func (b *instance) Tenant() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.rec.tenant()
}

// lineage returns the ids of what the sandbox descends from, itself the last.
func (r *record) lineage() []string {
	return append(append(make([]string, 0, len(r.Ancestors)+1), r.Ancestors...), r.Sandbox.ID)
}

// lineage is the line of a sandbox that others may change.
func (b *instance) lineage() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.rec.lineage()
}

// reserve takes names for new sandboxes of a tenant, all or none. Empty names are
// skipped.
func (m *Node) reserve(tenant string, names []string, ids []string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, n := range names {
		if n == "" {
			continue
		}
		if err := api.ValidName("name", n); err != nil {
			m.unreserveLocked(tenant, names[:i])
			return err
		}
		if _, taken := m.names[owned{tenant, n}]; taken {
			m.unreserveLocked(tenant, names[:i])
			return api.Errorf(api.CodeNameTaken, "a sandbox is called %q already", n)
		}
		m.names[owned{tenant, n}] = ids[i]
	}
	return nil
}

func (m *Node) unreserve(tenant string, names ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.unreserveLocked(tenant, names)
}

func (m *Node) unreserveLocked(tenant string, names []string) {
	for _, n := range names {
		delete(m.names, owned{tenant, n})
	}
}
