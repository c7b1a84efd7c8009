package networks

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/network/secrets"
	"ramet.dev/ramet/internal/service/access"
)

// GivenSecrets are the secrets of a request that makes a sandbox: checked with the request, and stored when
// nothing of it can be refused any more. A nil pointer has none.
type GivenSecrets struct {
	s       Secrets
	tenant  string
	entries []secrets.Entry
}

// Given checks the secrets of a request by their names. The result is cleared by its caller.
func (s Secrets) Given(ctx context.Context, all map[string]api.SecretRequest) (*GivenSecrets, error) {
	if len(all) == 0 {
		return nil, nil
	}
	caller := access.From(ctx)
	if err := caller.MayMakeTree("secrets"); err != nil {
		return nil, err
	}
	p := &GivenSecrets{s: s, tenant: caller.Tenant}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		req := all[name]
		p.entries = append(p.entries, secrets.Entry{Name: name, Value: secrets.NewValue(req.Value), Binding: binding(req.SecretBinding), Metadata: req.Metadata})
	}
	if err := s.n.cfg.Secrets.Check(p.tenant, p.entries); err != nil {
		p.Clear()
		return nil, err
	}
	return p, nil
}

// Clear overwrites the values.
func (p *GivenSecrets) Clear() {
	if p == nil {
		return
	}
	for i := range p.entries {
		p.entries[i].Value.Clear()
	}
}

func (p *GivenSecrets) has(name string) bool {
	return p != nil && slices.ContainsFunc(p.entries, func(e secrets.Entry) bool { return e.Name == name })
}

// StoreWith stores the secrets and calls make. If make fails, the secrets are as they were before.
func (p *GivenSecrets) StoreWith(ctx context.Context, make func() error) error {
	if p == nil {
		return make()
	}
	undo, forget, err := p.s.n.cfg.Secrets.SetAll(p.tenant, p.entries)
	if err != nil {
		return err
	}
	if err = p.changed(ctx); err == nil {
		err = make()
	}
	if err == nil {
		forget()
		return nil
	}
	if uerr := undo(); uerr != nil {
		return errors.Join(err, fmt.Errorf("take back the secrets: %w", uerr))
	}
	if cerr := p.changed(ctx); cerr != nil {
		return errors.Join(err, cerr)
	}
	return err
}

// changed has the sandboxes that have the secrets already use the new values.
func (p *GivenSecrets) changed(ctx context.Context) error {
	var errs []error
	for _, e := range p.entries {
		errs = append(errs, p.s.changed(ctx, p.tenant, e.Name))
	}
	return errors.Join(errs...)
}
