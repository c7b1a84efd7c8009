package host

import (
	"context"
	"fmt"

	"ramet.dev/ramet/internal/network/control"
	"ramet.dev/ramet/internal/network/gateway"
)

// tenants are what bounds the tenants of a daemon. A gateway is told of them before it is told of
// sandboxes. It is used by who has the turn.
type tenants struct {
	bounded map[string]*bounded
	// unknown says that the gateway may have bounds of an earlier daemon, which do not hold any more.
	unknown bool
}

// bounded is a tenant, and whether the gateway knows of it.
type bounded struct {
	gateway.Tenant
	told bool
}

func newTenants(list []gateway.Tenant) tenants {
	t := tenants{bounded: map[string]*bounded{}}
	for i := range list {
		t.set(list[i])
	}
	return t
}

func (t *tenants) set(to gateway.Tenant) { t.bounded[to.Name] = &bounded{Tenant: to} }

// found says that there is another gateway, which is fresh or one of an earlier daemon.
func (t *tenants) found(fresh bool) {
	t.unknown = !fresh
	for _, b := range t.bounded {
		b.told = false
	}
}

// tell tells the gateway of the tenants that it does not know of.
func (t *tenants) tell(ctx context.Context, c *control.Client) error {
	if t.unknown {
		theirs, err := c.Tenants(ctx)
		if err != nil {
			return fmt.Errorf("ask the gateway for what bounds tenants: %w", err)
		}
		for _, has := range theirs {
			if t.bounded[has.Name] == nil {
				t.set(gateway.Tenant{Name: has.Name})
			}
		}
		t.unknown = false
	}
	for name, b := range t.bounded {
		if b.told {
			continue
		}
		if err := c.SetTenant(ctx, b.Tenant); err != nil {
			return fmt.Errorf("tell the gateway what bounds tenant %s: %w", name, err)
		}
		if b.told = true; b.Bare() {
			delete(t.bounded, name)
		}
	}
	return nil
}

// SetTenant puts what bounds a tenant in force, for sandboxes that run and for those that come. Flows that
// it does not allow are cut when SetTenant returns. With an error the gateway may not know it yet: it is
// told as soon as it answers, and before it is told of another sandbox.
func (h *Host) SetTenant(ctx context.Context, to gateway.Tenant) error {
	h.renewals.bound(to)
	if err := h.take(ctx); err != nil {
		h.settle()
		return err
	}
	defer h.give()
	if !h.running && !alive(h.cfg.Dir) {
		return nil // the next gateway is told first
	}
	err := h.ensure(ctx)
	if err != nil {
		h.goOn()
	}
	return err
}
