package manager

import (
	"cmp"
	"context"

	"ramet.dev/ramet/internal/access"
	"ramet.dev/ramet/internal/audit"
	"ramet.dev/ramet/internal/sandbox"
)

// owned is a name, which is one tenant's.
type owned struct{ tenant, name string }

// resolve returns the box that ref, an id or a name, refers to. Here alone it is
// decided whether the caller sees it: what is hidden is not there.
func (m *Manager) resolve(ctx context.Context, ref string) (*box, error) {
	if err := sandbox.ValidRef(sandbox.KindSandbox, "id", ref); err != nil {
		return nil, err
	}
	caller := access.From(ctx)
	m.mu.Lock()
	id := ref
	if named, ok := m.names[owned{caller.Tenant, ref}]; ok {
		id = named
	}
	b := m.boxes[id]
	m.mu.Unlock()
	if b == nil || !b.seenBy(caller) {
		return nil, sandbox.NotFound("sandbox", ref)
	}
	audit.Of(ctx).Object(b.id)
	return b, nil
}

// resolveSnapshot is resolve for snapshots.
func (m *Manager) resolveSnapshot(ctx context.Context, ref string) (*snapshot, error) {
	if err := sandbox.ValidRef(sandbox.KindSnapshot, "snapshot", ref); err != nil {
		return nil, err
	}
	caller := access.From(ctx)
	m.mu.Lock()
	id := ref
	if named, ok := m.snapNames[owned{caller.Tenant, ref}]; ok {
		id = named
	}
	s := m.snaps[id]
	m.mu.Unlock()
	if s == nil || !s.seenBy(caller) {
		return nil, sandbox.NotFound("snapshot", ref)
	}
	audit.Of(ctx).Object(s.id)
	return s, nil
}

// seenBy reports whether a caller may know of b.
func (b *box) seenBy(c access.Caller) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return c.Sees(b.rec.tenant(), b.rec.line())
}

// seenBy reports whether a caller may know of s.
func (s *snapshot) seenBy(c access.Caller) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rec.Private != "" {
		return false
	}
	return c.Sees(s.rec.tenant(), s.rec.Ancestors) || c.Tree == s.id && c.Sees(s.rec.tenant(), []string{s.id})
}

// visible returns the boxes that the caller sees.
func (m *Manager) visible(ctx context.Context) []*box {
	caller := access.From(ctx)
	list := m.all()
	seen := list[:0]
	for _, b := range list {
		if b.seenBy(caller) {
			seen = append(seen, b)
		}
	}
	return seen
}

// visibleSnapshots returns the snapshots that the caller sees.
func (m *Manager) visibleSnapshots(ctx context.Context) []*snapshot {
	caller := access.From(ctx)
	list := m.allSnapshots()
	seen := list[:0]
	for _, s := range list {
		if s.seenBy(caller) {
			seen = append(seen, s)
		}
	}
	return seen
}

// tenant returns whose the sandbox is. Records of versions without tenants are the
// default one's.
func (r *record) tenant() string { return tenantOf(r.Sandbox.Tenant) }

func (r *snapRecord) tenant() string { return tenantOf(r.Snapshot.Tenant) }

// tenantOf reads the tenant in a record, and ownerIn writes it.
func tenantOf(recorded string) string { return cmp.Or(recorded, access.DefaultTenant) }

func ownerIn(tenant string) string {
	if tenant == access.DefaultTenant {
		return ""
	}
	return tenant
}

// tenant returns whose sandbox it is.
func (b *box) tenant() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.rec.tenant()
}

// line returns the ids of what the sandbox descends from, itself the last.
func (r *record) line() []string {
	return append(append(make([]string, 0, len(r.Ancestors)+1), r.Ancestors...), r.Sandbox.ID)
}

// lineNow is the line of a box that others may change.
func (b *box) lineNow() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.rec.line()
}

// reserve takes names for new sandboxes of a tenant, all or none. Empty names are
// skipped.
func (m *Manager) reserve(tenant string, names []string, ids []string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, n := range names {
		if n == "" {
			continue
		}
		if err := sandbox.ValidName("name", n); err != nil {
			m.unreserveLocked(tenant, names[:i])
			return err
		}
		if _, taken := m.names[owned{tenant, n}]; taken {
			m.unreserveLocked(tenant, names[:i])
			return sandbox.Errorf(sandbox.CodeNameTaken, "a sandbox is called %q already", n)
		}
		m.names[owned{tenant, n}] = ids[i]
	}
	return nil
}

func (m *Manager) unreserve(tenant string, names ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.unreserveLocked(tenant, names)
}

func (m *Manager) unreserveLocked(tenant string, names []string) {
	for _, n := range names {
		delete(m.names, owned{tenant, n})
	}
}
