package node

import (
	"context"
	"slices"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/launch"
	"ramet.dev/ramet/internal/node/selfcontrol"
	"ramet.dev/ramet/internal/storage/store"
)

// newSelfControl returns the server of the self-requests of the node's sandboxes.
func (m *Node) newSelfControl() *selfcontrol.Server {
	return selfcontrol.NewServer(selfcontrol.Config{Sandboxes: handles{m}, Budgets: m.budgets, Audit: m.cfg.Audit.AppendAudit, Log: m.log})
}

// dropBudget removes the budget of a grant, which may be nil, if no sandbox and no
// snapshot has it any more.
func (m *Node) dropBudget(g *selfcontrol.Grant) {
	if g == nil {
		return
	}
	for _, s := range m.snapshots.All() {
		if control := s.Control(); control != nil && control.Budget == g.Budget {
			return
		}
	}
	for _, b := range m.all() {
		b.mu.Lock()
		has := b.rec.Control != nil && b.rec.Control.Budget == g.Budget
		b.mu.Unlock()
		if has {
			return
		}
	}
	if err := m.store.Apply(context.Background(), m.budgets.Drop(g.Budget)); err != nil {
		m.log.Warn("forget a budget", "budget", g.Budget, "error", err) // the next start does
	}
}

// In implements selfcontrol.Sandboxes.
func (h handles) In(s *launch.Sentry) selfcontrol.Sandbox {
	for _, b := range h.m.all() {
		b.mu.Lock()
		found := b.sentry == s
		b.mu.Unlock()
		if found {
			return self{h.m, b}
		}
	}
	return nil
}

// self is a sandbox of the node as it controls itself.
type self struct {
	m *Node
	b *instance
}

// The methods implement selfcontrol.Sandbox.

func (s self) View() (api.Sandbox, string, *selfcontrol.Grant) {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	return s.b.rec.Sandbox, s.b.rec.tenant(), s.b.rec.Control
}

func (s self) Children(budget string) []api.Sandbox {
	var list []api.Sandbox
	for _, b := range s.m.all() {
		b.mu.Lock()
		g, v := b.rec.Control, b.rec.Sandbox
		b.mu.Unlock()
		if g != nil && g.Made && g.Budget == budget && v.Parent == s.b.id {
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
	return s.m.fork(ctx, s.b, req, by)
}

func (s self) Snapshot(ctx context.Context, req api.SnapshotRequest, by *selfcontrol.Request) (*api.Snapshot, error) {
	return s.m.snapshot(ctx, s.b, req, by)
}

func (s self) Rollback(ctx context.Context, snapshot string) error {
	_, err := s.m.Rollback(ctx, s.b.id, snapshot)
	return err
}

func (s self) Diff(ctx context.Context, from, to string) (*api.Diff, error) {
	return s.m.Diff(ctx, from, to, api.DiffRequest{})
}

func (s self) Tag(ctx context.Context, change func(map[string]string, *selfcontrol.Grant) (map[string]string, *selfcontrol.Grant, error)) error {
	return s.m.edit(ctx, s.b, func(rec *record) error {
		metadata, g, err := change(rec.Sandbox.Metadata, rec.Control)
		if err != nil {
			return err
		}
		rec.Sandbox.Metadata, rec.Control = metadata, g
		return nil
	})
}

// newBudgetOf adds the budget of a sandbox that is to control itself, and returns what is
// to be recorded.
func (m *Node) newBudgetOf(rec *record) []store.Change {
	if rec.Control == nil {
		return nil
	}
	return []store.Change{m.budgets.Grant(rec.Control.Budget, rec.Sandbox.SelfControl)}
}
