package gateway

import (
	"context"
	"net/netip"
	"slices"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/network/dns"
	"ramet.dev/ramet/internal/network/policy"
	"ramet.dev/ramet/internal/network/wire"
)

// names is a policy as package dns asks it.
type names struct{ *policy.Policy }

// Name implements dns.Policy.
func (n names) Name(name string) dns.Ruling {
	d := n.JudgeName(name)
	return dns.Ruling{Allowed: d.Allowed, Named: d.Allowed && !d.ByDefault, Rule: d.String()}
}

// Address implements dns.Policy.
func (n names) Address(name string, addr netip.Addr) bool {
	return n.JudgeAnswer(name, addr).Allowed
}

// maxLeft bounds the pairs of names and addresses of sandboxes that are gone.
const maxLeft = 16 << 10

// left is what a sandbox was given that is gone: programs of one that is hibernated, rolled back or
// restored know it.
type left struct {
	tenant, sandbox string
	names           *dns.Names
}

// leave keeps the names of a sandbox that is gone. The caller holds mu.
func (g *Gateway) leave(r *Registration, n *dns.Names) {
	g.left = slices.DeleteFunc(g.left, func(l left) bool {
		same := l.tenant == r.Tenant && l.sandbox == r.sandbox()
		if same {
			n.Inherit(l.names, func(string, netip.Addr) bool { return true })
		}
		return same
	})
	if n.Len() == 0 {
		return
	}
	g.left = append(g.left, left{r.Tenant, r.sandbox(), n})
	pairs := 0
	for i, l := range slices.Backward(g.left) {
		if pairs += l.names.Len(); pairs > maxLeft {
			g.left = slices.Delete(g.left, 0, i+1)
			return
		}
	}
}

// inherit lets the guest use addresses that a sandbox was given for names, as far as the policy of s lets
// the names have them. Nobody else has s yet.
func (s *sandbox) inherit(from *dns.Names) {
	ask := names{s.policy}
	s.names.Inherit(from, func(name string, addr netip.Addr) bool {
		return ask.Name(name).Allowed && (isStandIn(addr) || ask.Address(name, addr))
	})
}

// question answers a question about a name.
func (s *sandbox) question(id uint32, message []byte) {
	reply, o, err := s.dns.Answer(s.ctx, message, false)
	if err != nil {
		s.g.counters.dropped.Add(1) // it is no question: there is nothing to answer
		return
	}
	s.logQuestion(uint64(id), o)
	_ = s.send(&wire.Message{Kind: wire.Answer, Flow: id, Payload: reply}, -1) // the channel has ended
}

func (s *sandbox) logQuestion(id uint64, o dns.Outcome) {
	s.g.counters.questions.Add(1)
	e := api.NetworkLogEntry{Flow: id, Name: o.Name, Protocol: "dns", Verdict: api.NetworkAllowed, Rule: o.Rule}
	if o.Reason != "" {
		e.Rule = join(e.Rule, o.Reason)
	}
	if !o.Allowed {
		e.Verdict = api.NetworkDenied
		if o.Reason == "" && o.Name != "" {
			e.WouldAllow = s.current().WouldAllowName(o.Name)
		}
	}
	s.log(e)
}

func join(rule, reason string) string {
	if rule == "" {
		return reason
	}
	return rule + ": " + reason
}

// serveNames answers the questions on a stream to port 53.
func (f *flow) serveNames(ctx context.Context) {
	conn, err := accept(f)
	if err != nil {
		return
	}
	defer conn.Close()
	_ = f.s.dns.Serve(ctx, conn, func(o dns.Outcome) { f.s.logQuestion(uint64(f.id), o) }) // the guest's end
}
