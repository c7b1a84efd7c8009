package networks

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"sync"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/launch"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/network/control"
	"ramet.dev/ramet/internal/network/gateway"
	"ramet.dev/ramet/internal/network/host"
	"ramet.dev/ramet/internal/network/policy"
	"ramet.dev/ramet/internal/network/profiles"
	"ramet.dev/ramet/internal/network/secrets"
	"ramet.dev/ramet/internal/node/reach"
	"ramet.dev/ramet/internal/node/sandboxes"
	"ramet.dev/ramet/internal/service/access"
	"ramet.dev/ramet/internal/storage/store"
)

// Config is what networks are made with.
type Config struct {
	Sandboxes *sandboxes.Registry
	Store     *store.Store
	Profiles  *profiles.Set
	Secrets   *secrets.Store
	HeldFiles fs.FS // the directory of held requests, if it is there
	Trust     Trust
	Accounts  Accounts
	// Max asks for the document that has to allow what those of sandboxes allow; nil if there is none.
	Max *api.NetworkRequest
	// Gateway says how the gateway is started. Attach and Attend are set by New.
	Gateway host.Config
	Log     *slog.Logger
	// Timeout bounds what is done for a sandbox that begins or ends.
	Timeout time.Duration
}

// Trust has sandboxes trust the authorities that their host trusts.
type Trust interface {
	// OfRunning serves a sandbox that runs in s, and completes its record to be, which has a network.
	// The caller holds b.Op.
	OfRunning(ctx context.Context, b *sandboxes.Instance, rec *sandboxes.Record, s *launch.Sentry) error
}

// Networks is the networks of the sandboxes of a node. It is safe for concurrent use.
type Networks struct {
	cfg    Config
	host   *host.Host
	bounds []policy.Bound // of Config.Max

	prepared *preparations
	settler  *settler
}

// New returns networks without a gateway. A bound that cannot be enforced is refused.
func New(ctx context.Context, cfg Config) (*Networks, error) {
	prepared, err := newPreparations(cfg.Secrets)
	if err != nil {
		return nil, err
	}
	n := &Networks{cfg: cfg, prepared: prepared}
	n.settler = &settler{n: n}
	if cfg.Max != nil {
		bound, err := n.bound(ctx, "the daemon", cfg.Max)
		if err != nil {
			return nil, fmt.Errorf("upper bound of networks: %w", err)
		}
		n.bounds = []policy.Bound{*bound}
	}
	cfg.Gateway.Tenants = bounded(cfg.Accounts)
	cfg.Gateway.Attach = n.attach
	cfg.Gateway.Attend = func(ctx context.Context, c *control.Client, fresh bool) {
		var wg sync.WaitGroup
		wg.Go(func() { n.settler.rest(ctx) })
		tellEvents(ctx, cfg.Sandboxes, c, fresh, cfg.Log)
		wg.Wait()
	}
	n.host = host.New(cfg.Gateway)
	return n, nil
}

// notOwn is for policies that judge nothing.
func notOwn(netip.Addr) bool { return false }

// Adopt takes over the gateway of an earlier daemon, with all sandboxes that have a network. It
// comes before sandboxes begin.
func (n *Networks) Adopt(ctx context.Context) {
	var rs []gateway.Registration
	for _, b := range n.cfg.Sandboxes.All() {
		s := b.Sentry()
		if s == nil || b.View().Network == nil {
			continue
		}
		r, err := n.registration(b.Record(), s)
		if err != nil {
			n.cfg.Log.Error("put the network of a sandbox in force", "id", b.ID, "error", err)
			continue
		}
		rs = append(rs, r)
	}
	ctx, cancel := context.WithTimeout(ctx, n.cfg.Timeout)
	defer cancel()
	if err := n.host.Adopt(ctx, rs); err != nil {
		n.cfg.Log.Error("take over the gateway", "error", err)
	}
	if err := n.reconcile(ctx); err != nil {
		n.cfg.Log.Error("look through held requests", "error", err)
	}
}

// Close lets go of the gateway, which goes on.
func (n *Networks) Close() { n.host.Close() }

// Owner says whose a sandbox is that is to be made.
type Owner struct {
	Tenant string
	Tree   string // the sandbox that its tree began with
	// Secrets are set with the sandbox; nil if there are none.
	Secrets *GivenSecrets
}

// Grant returns the network of a sandbox that is to be made: the one that is asked for, or from if
// req is nil, with the requests of branches. A caller that is bound to sandboxes gives no more than
// from.
func (n *Networks) Grant(ctx context.Context, of Owner, req *api.NetworkRequest, branch Branch, from reach.Network) (reach.Network, error) {
	granted, err := from, error(nil)
	if req != nil {
		if granted, err = n.asked(ctx, of, req, from); err != nil {
			return reach.Network{}, err
		}
	}
	if branch != (Branch{}) {
		if granted, err = n.branch(of, branch, granted); err != nil {
			return reach.Network{}, err
		}
	}
	if granted.Policy != nil {
		if err := n.host.Ready(ctx); err != nil {
			return reach.Network{}, err
		}
	}
	return granted, nil
}

// branch returns a network for the children of a fork.
func (n *Networks) branch(of Owner, branch Branch, from reach.Network) (reach.Network, error) {
	granted, err := branch.apply(from)
	if err != nil || granted.Policy == nil {
		return granted, err
	}
	compiled, err := policy.Compile(n.spec(granted), notOwn)
	if err != nil {
		return reach.Network{}, err
	}
	err = n.treat(of, &granted, compiled)
	return granted, err
}

// asked returns the network that a request asks for, in place of from.
func (n *Networks) asked(ctx context.Context, of Owner, req *api.NetworkRequest, from reach.Network) (reach.Network, error) {
	doc, err := n.document(ctx, req)
	if err != nil {
		return reach.Network{}, err
	}
	kept := from.Kept // its programs know the authority and the placeholders
	if req.ReleaseHold {
		kept.Hold = ""
	}
	if doc.Closed() {
		return reach.Network{Kept: closed(kept)}, nil
	}
	spec, err := n.cfg.Profiles.Spec(ctx, doc)
	if err != nil {
		return reach.Network{}, err
	}
	asked := reach.Network{Policy: doc, Kept: kept}
	asked.Profiles = spec.Profiles
	if asked, err = (Branch{Hold: kept.Hold}).apply(asked); err != nil {
		return reach.Network{}, err
	}
	compiled, err := policy.Compile(n.spec(asked), notOwn)
	if err != nil {
		return reach.Network{}, err
	}
	if caller := access.From(ctx); caller.Bound() || caller.By != "" {
		had, err := policy.Compile(n.spec(from), notOwn)
		if err == nil {
			err = policy.Within(compiled, had)
		}
		if err != nil {
			return reach.Network{}, err
		}
	}
	if err := n.treat(of, &asked, compiled); err != nil {
		return reach.Network{}, err
	}
	return asked, nil
}

// document returns the document that a request asks for.
func (n *Networks) document(ctx context.Context, req *api.NetworkRequest) (*api.NetworkPolicy, error) {
	doc := &req.NetworkPolicy
	if req.Profile != "" {
		named, err := n.cfg.Profiles.Named(ctx, req.Profile)
		if err != nil {
			return nil, err
		}
		doc = req.On(named)
	}
	if err := doc.Valid(); err != nil {
		return nil, err
	}
	normal := doc.Normal()
	return &normal, nil
}

// closed returns what stays of a network that is taken away: what programs of the sandbox know.
func closed(k reach.Kept) reach.Kept {
	k.Profiles, k.RecordGroup = nil, ""
	return k
}

// spec returns what the policy of a network is compiled from.
func (n *Networks) spec(of reach.Network) policy.Spec {
	spec := policy.Spec{Bounds: n.bounds, Profiles: of.Profiles}
	if of.Policy != nil {
		spec.Document = *of.Policy
	}
	return spec
}

// registration returns what the gateway is told of a sandbox that runs in s.
func (n *Networks) registration(rec sandboxes.Record, s *launch.Sentry) (gateway.Registration, error) {
	r := gateway.Registration{
		ID: s.Key(), Sandbox: rec.Sandbox.ID, Parent: rec.Sandbox.Parent, Tenant: rec.Tenant(), Tree: rec.Lineage()[0],
		Name: rec.Sandbox.Name, Labels: rec.Sandbox.Labels(), Policy: n.spec(rec.Network()),
	}
	err := n.treated(&rec, &r) // before r is returned: Go says nothing about the order within a return
	return r, err
}

// Began puts the network of b, which goes on in s, in force. channel is the gateway's end of the
// channel that s was begun with, nil if there is none.
func (n *Networks) Began(b *sandboxes.Instance, s *launch.Sentry, channel *os.File) {
	ctx, cancel := context.WithTimeout(context.Background(), n.cfg.Timeout)
	defer cancel()
	// What a promoted child holds is sent before the network of its parent is in force, which cuts the
	// connections of programs that wait for the answers.
	n.settler.settle(ctx, b, s)
	if err := n.enforce(ctx, b.Record(), s, channel); err != nil {
		n.cfg.Log.Error("put the network of a sandbox in force", "id", b.ID, "error", err)
	}
}

// Ended ends the network of b in s, which it does not run in any more.
func (n *Networks) Ended(b *sandboxes.Instance, s *launch.Sentry) {
	if b.View().Network == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), n.cfg.Timeout)
	defer cancel()
	if err := n.host.Remove(ctx, s.Key()); err != nil {
		n.cfg.Log.Error("end the network of a sandbox", "id", b.ID, "error", err)
	}
}

// enforce puts the network of a record in force for the sentry that the sandbox runs in: once more if a
// secret has changed meanwhile, since the sandbox may not have been there when those that have the secret
// were looked for.
func (n *Networks) enforce(ctx context.Context, rec sandboxes.Record, s *launch.Sentry, channel *os.File) error {
	for rec.Sandbox.Network != nil {
		changes := n.prepared.changes.Load()
		r, err := n.registration(rec, s)
		if err != nil {
			return err
		}
		if err := n.host.Put(ctx, r, channel); err != nil || len(rec.Reach.Authority) == 0 || n.prepared.changes.Load() == changes {
			return err
		}
		channel = nil // the gateway has it
	}
	if !n.host.Has(s.Key()) { // as nearly always
		return nil
	}
	// Until now another sandbox ran in the sentry, which had a network.
	err := n.host.Remove(ctx, s.Key())
	_, cerr := s.Call(ctx, &wire.Call{Op: wire.OpNetwork, Network: &wire.Network{}}, nil)
	return errors.Join(err, cerr)
}

// attach gives the sentry with a key the end of a new channel.
func (n *Networks) attach(ctx context.Context, key string, channel *os.File) error {
	for _, b := range n.cfg.Sandboxes.All() {
		if s := b.Sentry(); s != nil && s.Key() == key {
			_, err := s.Call(ctx, &wire.Call{Op: wire.OpNetwork, Network: &wire.Network{Connected: true}}, nil, channel)
			return err
		}
	}
	return api.Errorf(api.CodeSandboxDied, "no sandbox runs in sentry %s", key)
}
