package node

import (
	"context"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/node/timeline"
	"ramet.dev/ramet/internal/storage/store"
)

// newTimelines puts the service of timelines together.
func (m *Node) newTimelines() *timeline.Timelines {
	return timeline.New(timeline.Config{
		Sandboxes: stepped{m}, Timeout: callTimeout, Log: m.cfg.Log,
		Save: func(ctx context.Context, id string, doc any) error {
			return m.cfg.Store.Apply(ctx, store.Change{Table: store.Timelines, ID: id, Doc: doc})
		},
	})
}

// stepped gives package timeline access to the sandboxes of the node.
type stepped struct{ m *Node }

// The methods implement timeline.Sandboxes.

func (s stepped) Find(ctx context.Context, ref string) (timeline.Sandbox, error) {
	b, err := s.m.sandboxes.Find(ctx, ref)
	if err != nil {
		return nil, err
	}
	return handle{s.m, b}, nil
}

func (s stepped) Snapshot(id string) (api.Snapshot, bool) {
	x := s.m.snapshots.Get(id)
	if x == nil {
		return api.Snapshot{}, false
	}
	return x.View(), true
}

func (s stepped) RestoreStep(ctx context.Context, snapshot string, req api.RestoreRequest) (*api.ForkResult, error) {
	x := s.m.snapshots.Get(snapshot)
	if x == nil {
		return nil, api.NotFound("snapshot", snapshot)
	}
	return s.m.forker.RestoreOf(ctx, x, req, time.Now())
}

func (s stepped) Destroy(id, reason string) error {
	b := s.m.sandboxes.Get(id)
	if b == nil {
		return api.NotFound("sandbox", id)
	}
	return s.m.sandboxes.Destroy(b, reason)
}

func (s stepped) Run(ctx context.Context, ref string, req api.ExecRequest, output int) (*api.ExecResult, error) {
	stdout, stderr := tailBuffer{max: output}, tailBuffer{max: output}
	res, err := s.m.Exec(ctx, ref, req, api.ExecIO{Stdout: &stdout, Stderr: &stderr})
	if err != nil {
		return nil, err
	}
	ran := *res
	ran.Stdout, ran.Stderr = stdout.String(), stderr.String()
	return &ran, nil
}

func (s stepped) Collect() { s.m.snapshots.Collect() }

// The methods implement timeline.Sandbox, with those in handle.go.

func (h handle) Steps() *timeline.Log { return &h.b.Timeline }

func (h handle) Checkpoint(ctx context.Context) (string, func(context.Context), error) {
	return h.m.taker.Checkpoint(ctx, h.b)
}

func (h handle) Rollback(ctx context.Context, snapshot string) (*api.Sandbox, error) {
	s := h.m.snapshots.Get(snapshot)
	if s == nil {
		return nil, api.NotFound("snapshot", snapshot)
	}
	return h.m.swapper.RollbackTo(ctx, h.b, s)
}
