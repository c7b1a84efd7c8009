package networks

import (
	"context"
	"slices"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/network/policy"
	"ramet.dev/ramet/internal/network/secrets"
	"ramet.dev/ramet/internal/service/access"
	"ramet.dev/ramet/internal/service/audit"
)

// Secrets is the secrets of tenants. It is safe for concurrent use.
type Secrets struct{ n *Networks }

// NewSecrets returns the secrets that n puts into requests.
func NewSecrets(n *Networks) Secrets { return Secrets{n} }

// Secrets implements service.Secrets.
func (s Secrets) Secrets(ctx context.Context) ([]api.Secret, error) {
	caller := access.From(ctx)
	if err := caller.MayMakeTree("a list of secrets"); err != nil {
		return nil, err
	}
	infos, err := s.n.cfg.Secrets.List(caller.Tenant)
	if err != nil {
		return nil, err
	}
	list := make([]api.Secret, len(infos))
	for i := range infos {
		list[i] = describeSecret(&infos[i])
	}
	return list, nil
}

func describeSecret(i *secrets.Info) api.Secret {
	b := i.Binding
	return api.Secret{Name: i.Name, SecretBinding: api.SecretBinding{Names: b.Names, Header: b.Header, Methods: b.Methods, Paths: b.Paths, Plain: b.Plain}, CreatedAt: i.Created, UpdatedAt: i.Updated}
}

// SetSecret implements service.Secrets.
func (s Secrets) SetSecret(ctx context.Context, name string, req api.SecretRequest) (*api.Secret, error) {
	caller := access.From(ctx)
	if err := caller.MayMakeTree("secrets"); err != nil {
		return nil, err
	}
	value := secrets.NewValue(req.Value)
	defer value.Clear()
	b := req.SecretBinding
	err := s.n.cfg.Secrets.Set(caller.Tenant, name, value, secrets.Binding{Names: b.Names, Header: b.Header, Methods: b.Methods, Paths: b.Paths, Plain: b.Plain})
	if err != nil {
		return nil, err
	}
	audit.Of(ctx).Object(name)
	if err := s.changed(ctx, caller.Tenant, name); err != nil {
		return nil, err
	}
	info, got, err := s.n.cfg.Secrets.Get(caller.Tenant, name)
	if err != nil {
		return nil, err
	}
	got.Clear()
	set := describeSecret(&info)
	return &set, nil
}

// RemoveSecret implements service.Secrets.
func (s Secrets) RemoveSecret(ctx context.Context, name string) error {
	caller := access.From(ctx)
	if err := caller.MayMakeTree("secrets"); err != nil {
		return err
	}
	if err := s.n.cfg.Secrets.Remove(caller.Tenant, name); err != nil {
		return err
	}
	audit.Of(ctx).Object(name)
	return s.changed(ctx, caller.Tenant, name)
}

// changed tells the gateway of the sandboxes that have a secret in their documents. Requests that
// begin later have what it is now.
func (s Secrets) changed(ctx context.Context, tenant, name string) error {
	s.n.prepared.forget()
	for _, b := range s.n.cfg.Sandboxes.All() {
		rec, sentry := b.Record(), b.Sentry()
		if sentry == nil || rec.Tenant() != tenant || len(rec.Reach.Authority) == 0 || rec.Sandbox.Network == nil {
			continue
		}
		compiled, err := policy.Compile(s.n.spec(rec.Network()), notOwn)
		if err != nil {
			return err
		}
		if !slices.Contains(secretsIn(compiled), name) {
			continue
		}
		if err := s.n.enforce(ctx, rec, sentry, nil); err != nil {
			return err
		}
	}
	return nil
}
