package networks

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/network/policy"
	"ramet.dev/ramet/internal/network/secrets"
	"ramet.dev/ramet/internal/node/sandboxes"
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
	return api.Secret{
		Name: i.Name, SecretBinding: api.SecretBinding{Names: b.Names, Header: b.Header, Methods: b.Methods, Paths: b.Paths, Plain: b.Plain},
		Version: i.Version, Metadata: i.Metadata, CreatedAt: i.Created, UpdatedAt: i.Updated,
	}
}

func binding(b api.SecretBinding) secrets.Binding {
	return secrets.Binding{Names: b.Names, Header: b.Header, Methods: b.Methods, Paths: b.Paths, Plain: b.Plain}
}

// SetSecret implements service.Secrets.
func (s Secrets) SetSecret(ctx context.Context, name string, req api.SecretRequest) (*api.Secret, error) {
	caller := access.From(ctx)
	if err := caller.MayMakeTree("secrets"); err != nil {
		return nil, err
	}
	value := secrets.NewValue(req.Value)
	defer value.Clear()
	err := s.n.cfg.Secrets.Set(caller.Tenant, name, value, binding(req.SecretBinding), req.Metadata)
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

// changed tells the gateway of the sandboxes that have a secret in their documents, of all of them also if
// ctx ends or one fails: the secret has changed. Requests that begin later have what it is now. With an error
// the gateway did not answer, and is told as soon as it does.
func (s Secrets) changed(ctx context.Context, tenant, name string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.n.cfg.Timeout)
	defer cancel()
	s.n.prepared.forget()
	var errs []error
	for _, b := range s.n.cfg.Sandboxes.All() {
		if b.Tenant() != tenant {
			continue
		}
		if err := s.renew(ctx, b, name); err != nil {
			errs = append(errs, fmt.Errorf("sandbox %s: %w", b.ID, err))
		}
	}
	if len(errs) > 0 {
		return fmt.Errorf("the change of the secret is kept, and not all of its sandboxes have it yet: %w", errors.Join(errs...))
	}
	return nil
}

// renew tells the gateway of a sandbox, if a secret is in its document. It is no error if the sandbox is
// gone, or goes meanwhile.
func (s Secrets) renew(ctx context.Context, b *sandboxes.Instance, name string) error {
	b.Op.RLock() // it stays in its sentry, and its network as it is
	defer b.Op.RUnlock()
	for {
		changes := s.n.prepared.changes.Load()
		rec, sentry := b.Record(), b.Sentry()
		if sentry == nil || len(rec.Reach.Authority) == 0 || rec.Sandbox.Network == nil {
			return nil
		}
		compiled, err := policy.Compile(s.n.spec(rec.Network()), notOwn)
		if err != nil {
			return err
		}
		if !slices.Contains(secretsIn(compiled), name) {
			return nil
		}
		r, err := s.n.registration(rec, sentry)
		if err != nil {
			return err
		}
		if err := s.n.host.Renew(ctx, r); err != nil || s.n.prepared.changes.Load() == changes {
			return err
		}
	}
}
