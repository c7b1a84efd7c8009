package gateway

import (
	"context"
	"net"
	"net/netip"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/network/dns"
	"ramet.dev/ramet/internal/network/policy"
)

// Reach connects to a port of a name for a request of a tenant whose guest may be gone: one that was
// held. The name is looked up, and the policy within the bounds of the tenant judges it and its
// addresses, as if the guest asked now.
func (g *Gateway) Reach(ctx context.Context, tenant string, p *policy.Policy, name string, port uint16) (net.Conn, error) {
	p = g.bounded(tenant, p)
	if d := p.JudgeName(name); !d.Allowed {
		return nil, denied(d)
	}
	q := policy.Question{Protocol: policy.TCP, Address: anyAddress, Port: port, Names: []string{name}, Seen: true, Host: name}
	if g.cfg.Via != nil {
		if via := g.cfg.Via(name, port); via != nil {
			if d := p.Judge(&q); !d.Allowed {
				return nil, denied(d)
			}
			return via(ctx)
		}
	}
	addrs, err := dns.NewClient(g.cfg.Upstream, noSiblings{}, dns.NewNames(), names{p}, 0).Lookup(ctx, name)
	if err != nil {
		return nil, err
	}
	for _, q.Address = range addrs {
		d := p.Judge(&q)
		if !d.Allowed {
			err = denied(d)
			continue
		}
		conn, derr := g.cfg.Dial(ctx, "tcp", netip.AddrPortFrom(q.Address, port).String())
		if derr == nil {
			return conn, nil
		}
		err = derr
	}
	return nil, err
}

func denied(d policy.Decision) error {
	return api.Errorf(api.CodeForbidden, "the network policy denies it: %s", d.String())
}

// anyAddress is of no class of its own: where it is judged, the name alone decides.
var anyAddress = netip.AddrFrom4([4]byte{1, 0, 0, 0})

// noSiblings knows no sandboxes.
type noSiblings struct{}

// Sibling implements dns.Siblings.
func (noSiblings) Sibling(name string) (netip.Addr, bool) {
	return netip.Addr{}, isSibling(name)
}
