package lineage

import (
	"cmp"
	"context"
	"slices"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/node/sandboxes"
	"ramet.dev/ramet/internal/node/snapshots"
	"ramet.dev/ramet/internal/service/access"
)

// lineage is one line from a created sandbox down to a living resource.
type lineage struct {
	node      api.TreeNode
	ancestors []string
}

// Trees is what callers see of lineages. It is safe for concurrent use.
type Trees struct {
	sandboxes *sandboxes.Registry
	snapshots *snapshots.Set
	remains   *Remains
}

// NewTrees returns the trees of sandboxes and snapshots, of which remains are kept.
func NewTrees(remains *Remains) *Trees {
	return &Trees{remains.sandboxes, remains.snapshots, remains}
}

// Tree returns the lineage of everything that lives, or of what descends from
// ref. Ancestors that are gone but have living descendants are shown as
// destroyed.
func (t *Trees) Tree(ctx context.Context, ref string) ([]*api.TreeNode, error) {
	root := ""
	if ref != "" {
		id, err := t.LineageID(ctx, ref)
		if err != nil {
			return nil, err
		}
		root = id
	}
	gone := t.remains.names()
	nodes := map[string]*api.TreeNode{}
	parents := map[string]string{}
	node := func(id string) *api.TreeNode {
		n, ok := nodes[id]
		if !ok {
			kind := "sandbox"
			if api.IsID(api.KindSnapshot, id) {
				kind = "snapshot"
			}
			n = &api.TreeNode{ID: id, Name: gone[id].Name, Label: gone[id].Label, Kind: kind, State: string(api.StateDestroyed)}
			nodes[id] = n
		}
		return n
	}
	for _, l := range t.lineages(ctx) {
		line := seenLine(ctx, append(slices.Clone(l.ancestors), l.node.ID))
		for i, id := range line {
			node(id).Tenant = l.node.Tenant // a line is one tenant's
			if i > 0 {
				parents[id] = line[i-1]
			}
		}
		*node(l.node.ID) = l.node
	}
	for id, p := range parents {
		nodes[p].Children = append(nodes[p].Children, nodes[id])
	}
	var roots []*api.TreeNode
	for id, n := range nodes {
		slices.SortFunc(n.Children, byAge)
		if root == id || root == "" && parents[id] == "" {
			roots = append(roots, n)
		}
	}
	slices.SortFunc(roots, byAge)
	return roots, nil
}

func byAge(a, b *api.TreeNode) int {
	if c := a.CreatedAt.Compare(b.CreatedAt); c != 0 {
		return c
	}
	if a.ID < b.ID {
		return -1
	}
	return 1
}

// seenLine returns what the caller may know of a line, which begins at a created sandbox.
func seenLine(ctx context.Context, line []string) []string {
	bound := cmp.Or(access.From(ctx).Tree, access.From(ctx).Sandbox)
	return line[max(slices.Index(line, bound), 0):]
}

// AncestorID returns the id of the sandbox or snapshot called ref, of the same name the sandbox,
// empty if ref is. An id may be of one that is gone, if a sandbox of seen, all that the caller
// sees, descends from it.
func (t *Trees) AncestorID(ctx context.Context, seen []*sandboxes.Instance, ref string) (string, error) {
	if ref == "" {
		return "", nil
	}
	id, err := t.LineageID(ctx, ref)
	if api.CodeOf(err) == api.CodeNotFound && slices.ContainsFunc(seen, func(b *sandboxes.Instance) bool {
		return slices.Contains(seenLine(ctx, b.Lineage()), ref)
	}) {
		return ref, nil
	}
	if api.CodeOf(err) == api.CodeNotFound {
		if s, serr := t.snapshots.Find(ctx, ref); serr == nil {
			return s.ID, nil
		}
	}
	return id, err
}

// LineageID returns the id of the sandbox or snapshot called ref.
func (t *Trees) LineageID(ctx context.Context, ref string) (string, error) {
	if api.IsID(api.KindSnapshot, ref) {
		s, err := t.snapshots.Find(ctx, ref)
		if err != nil {
			return "", err
		}
		return s.ID, nil
	}
	b, err := t.sandboxes.Find(ctx, ref)
	if err != nil {
		return "", err
	}
	return b.ID, nil
}

// SandboxID returns the id of the sandbox called ref.
func (t *Trees) SandboxID(ctx context.Context, ref string) (string, error) {
	b, err := t.sandboxes.Find(ctx, ref)
	if err != nil {
		return "", err
	}
	return b.ID, nil
}

// lineages returns the line of every sandbox and snapshot that the caller sees. A snapshot hangs
// below the sandbox it was taken of.
func (t *Trees) lineages(ctx context.Context) []lineage {
	var out []lineage
	for _, b := range t.sandboxes.Visible(ctx) {
		rec := b.Record()
		s := &rec.Sandbox
		out = append(out, lineage{
			api.TreeNode{ID: b.ID, Tenant: s.Tenant, Name: s.Name, Kind: "sandbox", State: string(s.State), CreatedAt: s.CreatedAt}, rec.Ancestors,
		})
	}
	for _, x := range t.snapshots.Visible(ctx) {
		rec := x.Record()
		s := &rec.Snapshot
		out = append(out, lineage{
			api.TreeNode{ID: x.ID, Tenant: s.Tenant, Name: s.Name, Label: rec.Label, Kind: "snapshot", State: string(s.State), CreatedAt: s.CreatedAt}, rec.Ancestors,
		})
	}
	return out
}
