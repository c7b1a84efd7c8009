package node

import (
	"context"
	"slices"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/launch"
	"ramet.dev/ramet/internal/node/sandboxes"
	"ramet.dev/ramet/internal/node/selfcontrol"
)

// newSelfControl returns the server of the self-requests of the node's sandboxes.
func (m *Node) newSelfControl() *selfcontrol.Server {
	return selfcontrol.NewServer(selfcontrol.Config{Sandboxes: handles{m}, Budgets: m.budgets, Audit: m.cfg.Audit.AppendAudit, Log: m.cfg.Log})
}

// In implements selfcontrol.Sandboxes.
func (h handles) In(s *launch.Sentry) selfcontrol.Sandbox {
	if b := h.m.sandboxes.In(s); b != nil {
		return self{h.m, b}
	}
	return nil
}

// self is a sandbox of the node as it controls itself.
type self struct {
	m *Node
	b *sandboxes.Instance
}

// The methods implement selfcontrol.Sandbox.

func (s self) View() (api.Sandbox, string, *selfcontrol.Grant) {
	rec := s.b.Record()
	return rec.Sandbox, rec.Tenant(), rec.Control
}

func (s self) Children(budget string) []api.Sandbox {
	var list []api.Sandbox
	for _, b := range s.m.sandboxes.All() {
		rec := b.Record()
		g, v := rec.Control, rec.Sandbox
		if g != nil && g.Made && g.Budget == budget && v.Parent == s.b.ID {
			list = append(list, v)
		}
	}
	slices.SortFunc(list, func(a, b api.Sandbox) int { return a.CreatedAt.Compare(b.CreatedAt) })
	return list
}

func (s self) Snapshots(ids []string) []selfcontrol.Snapshot {
	var list []selfcontrol.Snapshot
	for _, id := range ids {
		if x := s.m.snapshots.Get(id); x != nil {
			list = append(list, selfcontrol.Snapshot{ID: x.ID, Label: x.Label()})
		}
	}
	return list
}

func (s self) Fork(ctx context.Context, req api.ForkRequest, by *selfcontrol.Request) (*api.ForkResult, error) {
	return s.m.forker.ForkOf(ctx, s.b, req, by)
}

func (s self) Snapshot(ctx context.Context, req api.SnapshotRequest, by *selfcontrol.Request) (*api.Snapshot, error) {
	return s.m.taker.SnapshotOf(ctx, s.b, req, by)
}

func (s self) Rollback(ctx context.Context, snapshot string) error {
	_, err := s.m.Rollback(ctx, s.b.ID, snapshot)
	return err
}

func (s self) Diff(ctx context.Context, from, to string) (*api.Diff, error) {
	return s.m.Diff(ctx, from, to, api.DiffRequest{})
}

func (s self) Tag(ctx context.Context, change func(*api.Sandbox, *selfcontrol.Grant) error) error {
	return s.m.sandboxes.Edit(ctx, s.b, func(rec *sandboxes.Record) error {
		v := rec.Sandbox
		if err := change(&v, rec.Control); err != nil {
			return err
		}
		rec.Sandbox.Metadata, rec.Sandbox.Claimed = v.Metadata, v.Claimed
		return nil
	})
}
