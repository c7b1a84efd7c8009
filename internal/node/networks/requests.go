package networks

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/node/sandboxes"
	"ramet.dev/ramet/internal/service/audit"
)

// Network implements service.Networks.
func (n *Networks) Network(ctx context.Context, ref string) (*api.SandboxNetwork, error) {
	b, err := n.cfg.Sandboxes.Find(ctx, ref)
	if err != nil {
		return nil, err
	}
	return n.describe(b), nil
}

func (n *Networks) describe(b *sandboxes.Instance) *api.SandboxNetwork {
	rec := b.Record()
	out := &api.SandboxNetwork{NetworkPolicy: api.NetworkPolicy{}.Normal(), Hold: rec.Reach.Hold, Profiles: rec.Reach.Profiles}
	if p := rec.Sandbox.Network; p != nil {
		out.NetworkPolicy = p.Normal()
	}
	bounds := n.bounds
	if max := n.cfg.Accounts.NetworkMax(rec.Tenant()); max != nil {
		bounds = append(slices.Clip(bounds), *max)
	}
	for i := range bounds {
		out.Bounds = append(out.Bounds, api.NetworkBound{Of: bounds[i].Of, Policy: bounds[i].Document})
	}
	return out
}

// SetNetwork implements service.Networks.
func (n *Networks) SetNetwork(ctx context.Context, ref string, req api.NetworkRequest) (*api.SandboxNetwork, error) {
	b, err := n.cfg.Sandboxes.Find(ctx, ref)
	if err != nil {
		return nil, err
	}
	err = n.edit(ctx, b, func(rec *sandboxes.Record) error {
		granted, err := n.Grant(ctx, Owner{Tenant: rec.Tenant(), Tree: rec.Lineage()[0]}, &req, Branch{}, rec.Network())
		if err != nil {
			return err
		}
		rec.SetNetwork(granted)
		rec.Sandbox.Env = Environment(rec.Sandbox.Env, &granted.Kept)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("set network: %w", err)
	}
	audit.Of(ctx).Object(b.ID)
	n.cfg.Sandboxes.Events.Publish(api.EventNetwork, b, api.Event{})
	return n.describe(b), nil
}

// edit changes the network in the record of b and puts it in force, or does neither.
func (n *Networks) edit(ctx context.Context, b *sandboxes.Instance, change func(*sandboxes.Record) error) error {
	return n.cfg.Sandboxes.EditAnd(ctx, b, func(rec *sandboxes.Record) error {
		was := *rec
		if err := change(rec); err != nil {
			return err
		}
		return n.equip(ctx, b, &was, rec)
	}, func(was, is *sandboxes.Record) error { return n.Put(ctx, b, was, is) })
}

// equip has the programs of a sandbox that runs find what they need with a new network: the
// authorities that they are to trust, and the variables of its record to be, which it completes. The
// caller holds b.Op.
func (n *Networks) equip(ctx context.Context, b *sandboxes.Instance, was, rec *sandboxes.Record) error {
	s := b.Sentry()
	if s == nil || rec.Sandbox.Network == nil {
		return nil
	}
	if was.Sandbox.Network == nil || len(was.Reach.Certificate) < len(rec.Reach.Certificate) {
		if err := n.cfg.Trust.OfRunning(ctx, b, rec, s); err != nil {
			return err
		}
	}
	if maps.Equal(was.Sandbox.Env, rec.Sandbox.Env) {
		return nil
	}
	if _, err := s.Call(ctx, &wire.Call{Op: wire.OpEnviron, Environ: &wire.Environ{Env: rec.ForSentry().Env}}, nil); err != nil {
		return fmt.Errorf("change the environment of commands: %w", err)
	}
	return nil
}

// Put stores a changed record and puts the network, the name and the metadata that it has in force,
// or does neither. The caller holds b.Op.
func (n *Networks) Put(ctx context.Context, b *sandboxes.Instance, was, is *sandboxes.Record) error {
	if err := n.cfg.Store.Apply(ctx, is.Stored()); err != nil {
		return err
	}
	s := b.Sentry()
	if s == nil {
		return nil // it is hibernated, or has failed
	}
	if err := n.enforce(ctx, *is, s, nil); err != nil {
		back := n.cfg.Store.Apply(context.WithoutCancel(ctx), was.Stored())
		return errors.Join(err, back)
	}
	return nil
}

// TestNetwork implements service.Networks.
func (n *Networks) TestNetwork(ctx context.Context, ref string, test api.NetworkTest) (*api.NetworkTestResult, error) {
	b, err := n.cfg.Sandboxes.Find(ctx, ref)
	if err != nil {
		return nil, err
	}
	protocol := test.Protocol
	switch protocol {
	case "":
		protocol = "tcp"
	case "tcp", "udp", "echo":
	default:
		return nil, api.Invalid("protocol", "%q is not tcp, udp or echo", protocol)
	}
	if protocol != "echo" && test.Port == 0 {
		return nil, api.Invalid("port", "0 is not from 1 to 65535")
	}
	if b.View().Network == nil {
		return &api.NetworkTestResult{Rule: "the sandbox has no network"}, nil
	}
	s, err := b.Running(api.StateRunning, api.StatePaused)
	if err != nil {
		return nil, err
	}
	r, err := n.host.Client().Test(ctx, s.Key(), test.Host, protocol, test.Port)
	if err != nil {
		return nil, fmt.Errorf("test network: %w", err)
	}
	return &r, nil
}

// NetworkProfiles implements service.Networks.
func (n *Networks) NetworkProfiles(ctx context.Context) ([]api.NetworkProfile, error) {
	return n.cfg.Profiles.All(ctx)
}
