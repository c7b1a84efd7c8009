package selfcontrol

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/control"
)

// requester is a sandbox that makes a request, as it was when the request came.
type requester struct {
	sandbox Sandbox
	view    api.Sandbox
	grant   *Grant
	budget  *Budget
	id      uint64 // of the request
	// refuse returns an error as the guest may see it.
	refuse func(error) *control.Error
}

// operation returns the function that carries out an operation, and what it costs besides
// the cost of any request.
func (r *requester) operation(op control.Op) (do func(context.Context, *control.Request) (*control.Reply, error), cost int, err error) {
	switch op {
	case control.OpInfo:
		return r.info, 0, nil
	case control.OpTag:
		return r.tag, 0, nil
	case control.OpFork:
		return r.fork, costlyRequest, nil
	case control.OpSnapshot:
		return r.snapshot, costlyRequest, nil
	case control.OpRollback:
		return r.rollback, costlyRequest, nil
	case control.OpDiff:
		return r.diff, costlyRequest, nil
	}
	return nil, 0, api.Invalid("op", "%.100q is not info, fork, snapshot, rollback, diff or tag", op)
}

// maxListed bounds the children that info lists. It lists the youngest.
const maxListed = 200

func (r *requester) info(context.Context, *control.Request) (*control.Reply, error) {
	used, depth := r.budget.Used(), r.view.SelfControl.Depth
	out := &control.Info{
		ID: r.view.ID, Name: r.view.Name, Index: r.view.Identity.ForkIndex, Parent: r.view.Parent,
		Metadata: maps.Clone(r.view.Metadata), Snapshots: []control.Snapshot{}, Children: []control.Child{},
		Budget: control.Budget{
			Forks:     control.Left{Limit: used.Forks, Left: used.Forks - used.UsedForks},
			Depth:     control.Left{Limit: depth, Left: depth},
			Snapshots: control.Left{Limit: used.Snapshots, Left: used.Snapshots - used.UsedSnapshots},
		},
	}
	if out.Metadata == nil {
		out.Metadata = map[string]string{}
	}
	for _, s := range r.sandbox.Snapshots(r.grant.Snapshots) {
		out.Snapshots = append(out.Snapshots, control.Snapshot{ID: s.ID, Name: s.Label})
	}
	children := r.sandbox.Children(r.grant.Budget)
	for _, c := range children[max(0, len(children)-maxListed):] {
		out.Children = append(out.Children, control.Child{ID: c.ID, Index: c.Identity.ForkIndex})
	}
	return &control.Reply{Info: out}, nil
}

// ownSnapshot finds a snapshot by id or name: the youngest of that name, and the youngest
// of all if ref is empty.
func (r *requester) ownSnapshot(field, ref string) (*Snapshot, error) {
	list := r.sandbox.Snapshots(r.grant.Snapshots)
	for _, s := range slices.Backward(list) {
		if ref == "" || s.ID == ref || s.Label == ref {
			return &s, nil
		}
	}
	e := api.Errorf(api.CodeNotFound, "no snapshot %.100q that this sandbox made", ref)
	if ref == "" {
		e = api.Errorf(api.CodeNotFound, "this sandbox has made no snapshot")
	}
	e.Field = field
	return nil, e
}

func (r *requester) fork(ctx context.Context, req *control.Request) (*control.Reply, error) {
	count := 1
	if req.Count != nil {
		count = *req.Count
	}
	if count < 1 || count > api.MaxSelfForks {
		return nil, api.Invalid("count", "%d is not from 1 to %d", count, api.MaxSelfForks)
	}
	if err := mayChange(r.view.Labels(), Additions(req.Metadata)); err != nil {
		return nil, err
	}
	if r.view.SelfControl.Depth < 1 {
		return nil, api.Errorf(api.CodeLimit, "depth: this sandbox is of the last generation that may be made, and 1 more was asked for")
	}
	done, err := r.budget.reserve(count, 0)
	if err != nil {
		return nil, err
	}
	defer done()
	res, err := r.sandbox.Fork(ctx, api.ForkRequest{Count: count, Metadata: req.Metadata}, &Request{ID: r.id, Budget: r.budget})
	if err != nil {
		return nil, err
	}
	out := &control.Reply{}
	for i, c := range res.Children {
		if c.Error != nil {
			e := r.refuse(c.Error)
			e.Detail = e.Detail[:min(len(e.Detail), 200)]
			out.Children = append(out.Children, control.Child{Index: i, Error: e})
			continue
		}
		out.Children = append(out.Children, control.Child{ID: c.Sandbox.ID, Index: i})
	}
	return out, nil
}

func (r *requester) snapshot(ctx context.Context, req *control.Request) (*control.Reply, error) {
	if req.Name != "" {
		if err := api.ValidName("name", req.Name); err != nil {
			return nil, err
		}
	}
	done, err := r.budget.reserve(0, 1)
	if err != nil {
		return nil, err
	}
	defer done()
	snap, err := r.sandbox.Snapshot(ctx, api.SnapshotRequest{Memory: req.Memory}, &Request{ID: r.id, Label: req.Name, Budget: r.budget})
	if err != nil {
		return nil, err
	}
	return &control.Reply{Snapshot: &control.Snapshot{ID: snap.ID, Name: req.Name}}, nil
}

func (r *requester) rollback(ctx context.Context, req *control.Request) (*control.Reply, error) {
	s, err := r.ownSnapshot("snapshot", req.Snapshot)
	if err != nil {
		return nil, err
	}
	if err := r.sandbox.Rollback(ctx, s.ID); err != nil {
		return nil, err
	}
	return &control.Reply{Restored: &control.Restored{ID: r.view.ID}}, nil // the process that asked is gone with the old state
}

const (
	// maxListedChanges and maxListedBytes bound the changes of a diff that are answered.
	maxListedChanges = 1000
	maxListedBytes   = 60 << 10
	// diffTimeout bounds the comparison.
	diffTimeout = 30 * time.Second
)

func (r *requester) diff(ctx context.Context, req *control.Request) (*control.Reply, error) {
	ctx, cancel := context.WithTimeout(ctx, diffTimeout)
	defer cancel()
	from, to := r.view.ID, req.With
	if !slices.ContainsFunc(r.sandbox.Children(r.grant.Budget), func(c api.Sandbox) bool { return c.ID == req.With }) {
		s, err := r.ownSnapshot("with", req.With)
		if err != nil {
			return nil, err
		}
		from, to = s.ID, r.view.ID
	}
	d, err := r.sandbox.Diff(ctx, from, to)
	if err != nil {
		return nil, err
	}
	out := &control.Diff{From: d.From, To: d.To, Changes: []control.Change{}}
	size := 0
	for _, c := range d.Changes {
		change := control.Change{Kind: string(c.Kind), Path: c.Path, Exact: api.ExactBytes(c.Path), Old: c.OldPath, OldExact: api.ExactBytes(c.OldPath)}
		text, err := json.Marshal(change)
		if err != nil {
			return nil, fmt.Errorf("encode a change: %w", err)
		}
		if size += len(text) + 1; len(out.Changes) == maxListedChanges || size > maxListedBytes {
			break
		}
		out.Changes = append(out.Changes, change)
	}
	out.Truncated = len(d.Changes) - len(out.Changes)
	return &control.Reply{Diff: out}, nil
}

func (r *requester) tag(ctx context.Context, req *control.Request) (*control.Reply, error) {
	change := Additions(req.Set)
	for _, k := range req.Remove {
		change[k] = nil
	}
	if len(change) == 0 {
		return nil, api.Invalid("set", "there is nothing to set or remove")
	}
	out := &control.Reply{}
	err := r.sandbox.Tag(ctx, func(v *api.Sandbox, g *Grant) error {
		if g == nil {
			return errNoGrant
		}
		if err := mayChange(v.Labels(), change); err != nil {
			return err
		}
		metadata, err := api.ChangeMetadata(v.Metadata, change)
		if err != nil {
			return err
		}
		v.Metadata, v.Claimed = metadata, api.ChangeClaimed(v.Claimed, change, true)
		out.Tagged = &control.Tagged{Metadata: metadata}
		return nil
	})
	return out, err
}
