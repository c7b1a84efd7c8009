package networks

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/network/ca"
	"ramet.dev/ramet/internal/network/control"
	"ramet.dev/ramet/internal/network/gateway"
	"ramet.dev/ramet/internal/network/host"
	"ramet.dev/ramet/internal/network/policy"
	"ramet.dev/ramet/internal/network/secrets"
	"ramet.dev/ramet/internal/node/reach"
	"ramet.dev/ramet/internal/node/sandboxes"
)

// A document that treats requests needs more than a document: the authority of the tree, with which
// the gateway ends TLS, and the secrets that it puts in. Values of secrets are in the store of secrets
// and in registrations, and nowhere else.

// treat adds to granted what a policy needs that treats requests.
func (n *Networks) treat(of Owner, granted *reach.Network, compiled *policy.Policy) error {
	if !compiled.TreatsRequests() {
		return nil
	}
	for _, name := range secretsIn(compiled) {
		if !of.Secrets.has(name) {
			_, v, err := n.cfg.Secrets.Get(of.Tenant, name)
			if err != nil {
				return err
			}
			v.Clear()
		}
		if granted.Placeholders[name] == "" {
			granted.Placeholders = maps.Clone(granted.Placeholders)
			if granted.Placeholders == nil {
				granted.Placeholders = map[string]string{}
			}
			granted.Placeholders[name] = secrets.NewPlaceholder()
		}
	}
	return found(n.cfg.Secrets, of.Tree, &granted.Kept)
}

// found makes the authority of a tree, which is sealed by vault, unless k has it.
func found(vault *secrets.Store, tree string, k *reach.Kept) error {
	if len(k.Authority) > 0 {
		return nil
	}
	authority, err := ca.New(ca.Options{Tree: tree})
	if err != nil {
		return err
	}
	text, err := authority.Marshal()
	if err != nil {
		return err
	}
	defer clear(text)
	if k.Authority, err = vault.Seal(text); err != nil {
		return fmt.Errorf("seal the authority of a tree: %w", err)
	}
	k.Certificate = authority.Certificate()
	return nil
}

// Prepare has the programs of b trust the authority of its tree before it is forked into branches: the
// children have what it has. The programs of one that is hibernated do when they are woken, and those of
// its children when they are made. The caller does not hold b.Op.
func (n *Networks) Prepare(ctx context.Context, b *sandboxes.Instance, branch Branch) error {
	rec := b.Record()
	if branch == (Branch{}) || rec.Sandbox.Network == nil || len(rec.Reach.Authority) > 0 {
		return nil
	}
	return n.edit(ctx, b, func(rec *sandboxes.Record) error { return found(n.cfg.Secrets, rec.Lineage()[0], &rec.Reach) })
}

// secretsIn returns the names of the secrets that a policy puts into requests.
func secretsIn(p *policy.Policy) (names []string) {
	for _, t := range p.Treatments() {
		for _, name := range t.SecretNames() {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

// Environment returns the variables by which programs of a sandbox find its placeholders, of those that
// env does not have.
func Environment(env map[string]string, k *reach.Kept) map[string]string {
	out := env
	for name, placeholder := range k.Placeholders {
		if _, has := env[name]; !has {
			if len(out) == len(env) {
				out = maps.Clone(env)
			}
			if out == nil {
				out = map[string]string{}
			}
			out[name] = placeholder
		}
	}
	return out
}

// treated fills in what a registration needs whose policy treats requests. A secret that is gone is left
// out: names that need it are not reached.
func (n *Networks) treated(rec *sandboxes.Record, r *gateway.Registration) error {
	if len(rec.Reach.Authority) == 0 {
		return nil
	}
	p, err := n.prepared.of(rec.Tenant(), &rec.Reach, r.Policy)
	if err != nil {
		return err
	}
	r.Authority, r.RecordGroup, r.Secrets = p.authority, rec.Reach.RecordGroup, p.secrets
	return nil
}

// Branch is what a fork asks of the requests of its children.
type Branch struct {
	// Hold has requests wait that change something; Record has the children see the same answers.
	Hold   api.NetworkHold
	Record bool
}

// apply returns a network whose requests are held or recorded. What cannot be is not reached: servers
// without a name, other sandboxes, and other protocols than HTTP.
func (b Branch) apply(from reach.Network) (reach.Network, error) {
	switch {
	case b.Hold == "" && !b.Record:
		return from, nil
	case b.Hold != "" && b.Hold != api.HoldWrites:
		return from, api.Invalid("hold", "%q is not %q", b.Hold, api.HoldWrites)
	}
	out := from
	if b.Hold != "" {
		out.Hold = b.Hold
	}
	if from.Policy == nil {
		return out, nil // no request leaves
	}
	doc := b.document(*from.Policy)
	if doc.Rules == nil {
		doc.Rules = map[string]api.NetworkTreatment{}
	}
	if _, has := doc.Rules["*"]; !has {
		doc.Rules["*"] = b.treatment(api.NetworkTreatment{})
	}
	out.Policy = &doc
	out.Profiles = map[string]api.NetworkPolicy{}
	for name, p := range from.Profiles {
		out.Profiles[name] = b.document(p)
	}
	if b.Record {
		var id [12]byte
		rand.Read(id[:]) // never fails
		out.RecordGroup = hex.EncodeToString(id[:])
	}
	return out, nil
}

// document returns a document with the treatments of the branch, and without the rules that it makes
// void.
func (b Branch) document(doc api.NetworkPolicy) api.NetworkPolicy {
	rules := doc.Rules
	doc.Rules = nil
	for name, t := range rules {
		if doc.Rules == nil {
			doc.Rules = map[string]api.NetworkTreatment{}
		}
		doc.Rules[name] = b.treatment(t)
	}
	if b.Hold == "" {
		return doc
	}
	doc.Accept = nil
	doc.Allow = slices.DeleteFunc(slices.Clone(doc.Allow), func(r api.NetworkRule) bool {
		_, isAddress := r.Prefix()
		return isAddress || r.Sandbox != nil
	})
	return doc
}

func (b Branch) treatment(t api.NetworkTreatment) api.NetworkTreatment {
	if b.Hold != "" {
		t.Hold = b.Hold
	}
	t.Record = t.Record || b.Record
	return t
}

// Removed drops what b has held, which is gone.
func (n *Networks) Removed(b *sandboxes.Instance) {
	if len(b.Record().Reach.Authority) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), n.cfg.Timeout)
	defer cancel()
	if err := insist(ctx, n.host, func(c *control.Client) error { return c.DropAll(ctx, b.ID, true) }); err != nil {
		// The next daemon finds requests of a sandbox that is not there.
		n.cfg.Log.Warn("drop the held requests of a sandbox", "sandbox", b.ID, "error", err)
	}
}

// insistPause is how long a call waits for the next gateway before it is made once more.
const insistPause = 20 * time.Millisecond

// insist calls a gateway until one answers: the one that is called may be killed meanwhile, and nobody
// would ask for it again while the daemon lives.
func insist(ctx context.Context, h *host.Host, call func(*control.Client) error) error {
	for {
		if err := h.Ready(ctx); err != nil {
			return err
		}
		err := call(h.Client())
		var answered *api.Error
		if err == nil || errors.As(err, &answered) || ctx.Err() != nil {
			return err
		}
		select {
		case <-time.After(insistPause):
		case <-ctx.Done():
			return err
		}
	}
}
