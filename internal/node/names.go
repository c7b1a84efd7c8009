package node

import (
	"context"
	"slices"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/server/audit"
	"ramet.dev/ramet/internal/service/access"
)

// owned is a name, which is one tenant's.
type owned struct{ tenant, name string }

// resolve returns the box that ref, an id or a name, refers to.
func (m *Node) resolve(ctx context.Context, ref string) (*instance, error) {
	if err := api.ValidRef(api.KindSandbox, "id", ref); err != nil {
		return nil, err
	}
	if err := access.From(ctx).Known(); err != nil {
		return nil, err
	}
	b, ok := find(ctx, m, ref, m.names, m.instances)
	if !ok {
		return nil, api.NotFound("sandbox", ref)
	}
	return b, nil
}

// resolveSnapshot is resolve for snapshots.
func (m *Node) resolveSnapshot(ctx context.Context, ref string) (*snapshot, error) {
	if err := api.ValidRef(api.KindSnapshot, "snapshot", ref); err != nil {
		return nil, err
	}
	if err := access.From(ctx).Known(); err != nil {
		return nil, err
	}
	s, ok := find(ctx, m, ref, m.snapNames, m.snaps)
	if !ok {
		return nil, api.NotFound("snapshot", ref)
	}
	return s, nil
}

// hideable is what not every caller sees.
type hideable interface {
	seenBy(access.Caller) bool
	tenant() string
}

// find looks up what ref, an id or a name, refers to. Here alone it is decided
// whether the caller sees it: what is hidden is not there.
func find[T hideable](ctx context.Context, m *Node, ref string, names map[owned]string, things map[string]T) (thing T, ok bool) {
	caller := access.From(ctx)
	m.mu.Lock()
	id := ref
	if named, ok := names[owned{caller.Tenant, ref}]; ok {
		id = named
	}
	thing, ok = things[id]
	m.mu.Unlock()
	if !ok || !thing.seenBy(caller) {
		return thing, false
	}
	audit.Of(ctx).Object(id)
	if of := thing.tenant(); of != caller.Tenant {
		audit.Of(ctx).Of(of)
	}
	return thing, true
}

// seenBy reports whether a caller may know of b.
func (b *instance) seenBy(c access.Caller) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return c.Sees(b.rec.tenant(), b.rec.lineage())
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
func (m *Node) visible(ctx context.Context) []*instance { return seenOf(ctx, m.all()) }

// visibleSnapshots returns the snapshots that the caller sees.
func (m *Node) visibleSnapshots(ctx context.Context) []*snapshot {
	return seenOf(ctx, m.allSnapshots())
}

// seenOf returns those of list that the caller sees, in its place.
func seenOf[T hideable](ctx context.Context, list []T) []T {
	caller := access.From(ctx)
	return slices.DeleteFunc(list, func(x T) bool { return !x.seenBy(caller) })
}

// tenant returns whose the sandbox is. Records of versions without tenants are the
// default one's.
func (r *record) tenant() string { return access.OfRecord(r.Sandbox.Tenant) }

func (r *snapRecord) tenant() string { return access.OfRecord(r.Snapshot.Tenant) }

// tenant returns whose sandbox it is.
func (b *instance) tenant() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.rec.tenant()
}

// tenant returns whose snapshot it is.
func (s *snapshot) tenant() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rec.tenant()
}

// lineage returns the ids of what the sandbox descends from, itself the last.
func (r *record) lineage() []string {
	return append(append(make([]string, 0, len(r.Ancestors)+1), r.Ancestors...), r.Sandbox.ID)
}

// lineage is the line of a box that others may change.
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
