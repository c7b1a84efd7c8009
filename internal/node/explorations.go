package node

import (
	"context"
	"fmt"
	"io"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/node/dataplane"
	"ramet.dev/ramet/internal/node/explore"
	"ramet.dev/ramet/internal/storage/store"
)

// openExplorer reads the explorations of the node.
func (m *Node) openExplorer(ctx context.Context) (*explore.Explorer, error) {
	return explore.Open(ctx, explore.Config{
		Sandboxes: explored{m.plane, m}, Records: explorationRecords{m.cfg.Store}, Audit: m.cfg.Audit.AppendAudit, Log: m.cfg.Log,
	})
}

// explorationRecords implements explore.Records.
type explorationRecords struct{ store *store.Store }

func (r explorationRecords) Save(ctx context.Context, id string, doc any) error {
	return r.store.Apply(ctx, store.Change{Table: store.Explorations, ID: id, Doc: doc})
}

func (r explorationRecords) Remove(ctx context.Context, id string) error {
	return r.store.Apply(ctx, store.Change{Table: store.Explorations, ID: id})
}

func (r explorationRecords) Each(ctx context.Context, fn func(id string, doc []byte) error) error {
	return r.store.Each(ctx, store.Explorations, fn)
}

// explored gives package explore access to the sandboxes of the node.
type explored struct {
	*dataplane.Plane
	m *Node
}

// The methods implement explore.Sandboxes.

func (x explored) Source(ctx context.Context, ref string) (api.Sandbox, string, []string, error) {
	b, err := x.m.sandboxes.Find(ctx, ref)
	if err != nil {
		return api.Sandbox{}, "", nil, err
	}
	return b.View(), b.Tenant(), b.Lineage(), nil
}

func (x explored) Fork(ctx context.Context, ref string, req api.ForkRequest) (*api.ForkResult, error) {
	return x.m.forker.Fork(ctx, ref, req)
}

func (x explored) ReadFile(ctx context.Context, ref, path string, limit int) ([]byte, error) {
	f, err := x.OpenFile(ctx, ref, api.FileRef{Path: path})
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if from := f.Info().Size - int64(limit); from > 0 {
		if _, err := f.Seek(from, io.SeekStart); err != nil {
			return nil, fmt.Errorf("read %s: %w", path, err)
		}
	}
	text, err := io.ReadAll(io.LimitReader(f, int64(limit)))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return text, nil
}

func (x explored) Diff(ctx context.Context, from, to string, req api.DiffRequest) (*api.Diff, error) {
	return x.m.comparer.Diff(ctx, from, to, req)
}

func (x explored) Merge(ctx context.Context, into string, req api.MergeRequest) (*api.MergeResult, error) {
	return x.m.comparer.Merge(ctx, into, req)
}

func (x explored) Promote(ctx context.Context, child string) (*api.Sandbox, error) {
	return x.m.swapper.Promote(ctx, child)
}

func (x explored) Update(ctx context.Context, ref string, req api.UpdateRequest) (*api.Sandbox, error) {
	return x.m.lifecycles.Update(ctx, ref, req)
}

func (x explored) Destroy(id, reason string) error { return stepped{x.m}.Destroy(id, reason) }

func (x explored) Labelled(tenant, key, value string) map[string][]string {
	found := map[string][]string{}
	for _, b := range x.m.sandboxes.All() {
		if v := b.View(); b.Tenant() == tenant && v.Labels()[key] == value {
			found[b.ID] = b.Lineage()
		}
	}
	return found
}

func (x explored) PrivateMiB(ctx context.Context, ref string) (float64, error) {
	st, err := x.m.inspector.Stats(ctx, ref)
	if err != nil {
		return 0, err
	}
	return st.Memory.PrivateMiB, nil
}

var _ explore.Sandboxes = explored{}
