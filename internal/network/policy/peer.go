package policy

import (
	"ramet.dev/ramet/api"
)

// Peer is another sandbox of the same tenant, as rules name it.
type Peer struct {
	Name   string
	Labels api.Labels
}

// peer is a rule about other sandboxes.
type peer struct {
	text   string
	allow  bool
	target api.SandboxSelector
	ports  []api.PortRange // all if there are none
}

func peerRule(r *api.NetworkRule, allow bool, via string) *peer {
	p := &peer{text: via + r.String(), allow: allow, target: *r.Sandbox, ports: r.Ports}
	if !allow {
		p.text = via + "deny " + r.String()
	}
	return p
}

// names reports whether the rule is about a sandbox.
func (p *peer) names(s *Peer) bool {
	if p.target.Name != "" {
		return p.target.Name == api.AnySandbox || p.target.Name == s.Name
	}
	for k, v := range p.target.Metadata {
		if have, ok := s.Labels[k]; !ok || have != v {
			return false
		}
	}
	return true
}

// single reports whether the rule is about one name, and so decides before those that are not.
func (p *peer) single() bool { return p.target.Name != "" && p.target.Name != api.AnySandbox }

func (p *peer) covers(port uint16) bool {
	if len(p.ports) == 0 {
		return true
	}
	for _, r := range p.ports {
		if r.Has(port) {
			return true
		}
	}
	return false
}

// peers are the rules of one list. Without a rule nothing is allowed, whatever the default is.
type peers []*peer

func (ps *peers) add(p *peer) { *ps = append(*ps, p) }

// judge returns the rule that decides, or nil: by name before others, denial before permission.
func (ps peers) judge(s *Peer, port uint16) *peer {
	var best *peer
	for _, p := range ps {
		if !p.covers(port) || !p.names(s) {
			continue
		}
		if best == nil || p.single() && !best.single() || p.single() == best.single() && !p.allow {
			best = p
		}
	}
	return best
}
