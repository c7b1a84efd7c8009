package networks

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/network/gateway"
	"ramet.dev/ramet/internal/network/held"
	"ramet.dev/ramet/internal/node/sandboxes"
	"ramet.dev/ramet/internal/service/audit"
	"ramet.dev/ramet/internal/storage/store"
)

// Held is the requests of sandboxes that wait. It is safe for concurrent use.
type Held struct{ n *Networks }

// NewHeld returns the requests that sandboxes of n have waiting.
func NewHeld(n *Networks) Held { return Held{n} }

// HeldRequests implements service.Held.
func (h Held) HeldRequests(ctx context.Context, ref string) ([]api.HeldRequest, error) {
	b, err := h.n.cfg.Sandboxes.Find(ctx, ref)
	if err != nil {
		return nil, err
	}
	list := []api.HeldRequest{}
	if len(b.Record().Reach.Authority) == 0 {
		return list, nil // it never held one
	}
	err = h.n.eachHeld(ctx, b.ID, func(r held.Request) error { list = append(list, describeHeld(&r)); return nil })
	return list, err
}

// eachHeld calls f with the held requests of a sandbox, or with all.
func (n *Networks) eachHeld(ctx context.Context, id string, f func(held.Request) error) error {
	if err := n.host.Ready(ctx); err != nil {
		return err
	}
	return n.host.Client().Held(ctx, id, f)
}

func describeHeld(r *held.Request) api.HeldRequest {
	return api.HeldRequest{
		ID: r.ID, Sandbox: r.Sandbox, Name: r.Name, Port: r.Port, TLS: r.TLS, Method: r.Method, Target: r.Target,
		Size: r.Size, Digest: r.Digest, State: api.HeldState(r.State), Created: r.Created, Changed: r.Changed, Status: r.Status, Note: r.Note,
	}
}

// ReleaseHeld implements service.Held.
func (h Held) ReleaseHeld(ctx context.Context, ref string, req api.HeldRelease) ([]api.HeldRequest, error) {
	b, r, err := h.holder(ctx, ref)
	if err != nil {
		return nil, err
	}
	if req.ID == "" {
		err = h.n.host.Client().ReleaseAll(ctx, b.ID, r)
	} else {
		_, err = h.n.host.Client().Release(ctx, b.ID, req.ID, req.Again, r)
	}
	if err != nil {
		return nil, fmt.Errorf("release held requests: %w", err)
	}
	audit.Of(ctx).Object(b.ID)
	return h.HeldRequests(ctx, b.ID)
}

// DropHeld implements service.Held.
func (h Held) DropHeld(ctx context.Context, ref, id string) ([]api.HeldRequest, error) {
	b, _, err := h.holder(ctx, ref)
	if err != nil {
		return nil, err
	}
	if id == "" {
		err = h.n.host.Client().DropAll(ctx, b.ID, false)
	} else {
		err = h.n.host.Client().Drop(ctx, b.ID, id)
	}
	if err != nil {
		return nil, fmt.Errorf("drop held requests: %w", err)
	}
	audit.Of(ctx).Object(b.ID)
	return h.HeldRequests(ctx, b.ID)
}

// holder returns a sandbox that may have held requests, and its registration as far as it runs.
func (h Held) holder(ctx context.Context, ref string) (*sandboxes.Instance, *gateway.Registration, error) {
	b, err := h.n.cfg.Sandboxes.Find(ctx, ref)
	if err != nil {
		return nil, nil, err
	}
	if err := h.n.host.Ready(ctx); err != nil {
		return nil, nil, err
	}
	s := b.Sentry()
	if s == nil {
		return b, nil, nil
	}
	r, err := h.n.registration(b.Record(), s)
	return b, &r, err
}

// reconcile settles what is pending of held requests, and drops what sandboxes have held that are gone:
// an earlier daemon may have ended before.
func (n *Networks) reconcile(ctx context.Context) error {
	if _, err := fs.Stat(n.cfg.HeldFiles, "."); errors.Is(err, fs.ErrNotExist) {
		return nil // nothing was ever held
	}
	wanted := map[string]bool{}
	for _, b := range n.cfg.Sandboxes.All() {
		wanted[b.ID] = true
		for _, child := range b.Record().Reach.Releases {
			wanted[child] = true
		}
		n.settler.settle(ctx, b, b.Sentry())
	}
	gone := map[string]bool{}
	err := n.eachHeld(ctx, "", func(r held.Request) error {
		if !wanted[r.Sandbox] {
			gone[r.Sandbox] = true
		}
		return nil
	})
	for id := range gone {
		err = errors.Join(err, n.host.Client().DropAll(ctx, id, true))
	}
	return err
}

// storedOf returns the change that stores the record of a sandbox as it is.
func storedOf(b *sandboxes.Instance) store.Change {
	rec := b.Record()
	return rec.Stored()
}
