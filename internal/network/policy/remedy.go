package policy

import (
	"slices"

	"ramet.dev/ramet/api"
)

// WouldAllow returns the rule that, added to the list of allow, would allow a connection that the
// policy denies, in the form of api.NetworkRule. It is "" if there is none: a rule as specific
// denies it, a bound does, or nothing can allow it.
func (p *Policy) WouldAllow(q *Question) string {
	d := p.Judge(q)
	if d.Allowed || d.Bound != "" || q.Protocol == UDP && q.Port == quic {
		return ""
	}
	own := p.documents[0]
	l := lookUp{proto: q.Protocol, port: q.Port, useDefault: true}
	l.addr, l.classes = p.classify(q.Address)
	restricted := own.treated.restricts(q.Names) || own.treated.restricts([]string{q.Host})
	shown := q.Seen && q.Host != ""
	var name string
	switch {
	case restricted && q.Seen && !slices.Contains(q.Names, q.Host):
		return ""
	case q.Protocol == UDP || l.classes&^private != 0: // by address only
	case shown && slices.Contains(q.Names, q.Host):
		name = q.Host
	case !q.Seen && len(q.Names) > 0:
		name = q.Names[0]
	}
	if shown {
		l.name = q.Host
	} else {
		l.name = name
	}
	if own.exactlyDenied(&l) {
		return ""
	}
	return remedy(name, q, &l).String()
}

// exactlyDenied reports whether a rule about the single name or address denies the connection, so
// that no rule that allows it could count. Of echo requests all ports have to be denied that the rule
// would be about.
func (d *document) exactlyDenied(l *lookUp) bool {
	if l.proto != Echo {
		v, _ := d.exact(l)
		return v == denies
	}
	probe := *l
	probe.proto = TCP
	ports := d.probes
	if l.name != "" {
		ports = []uint16{443, 80}
	}
	for _, port := range ports {
		probe.port = port
		if v, _ := d.exact(&probe); v != denies {
			return false
		}
	}
	return true
}

// remedy returns the narrowest rule for a connection.
func remedy(name string, q *Question, l *lookUp) api.NetworkRule {
	r := api.NetworkRule{Address: l.addr.String()}
	host, _ := api.NetworkRule{Address: api.HostName}.Prefix()
	switch {
	case name != "":
		r.Address, r.Private = name, l.classes&private != 0
	case host.Contains(l.addr):
		r.Address = api.HostName // in a guest the address is its own
	}
	if q.Protocol == UDP {
		r.Protocol = api.NetworkUDP
	}
	if q.Protocol != Echo && (name == "" || q.Port != 443 && q.Port != 80) {
		r.Ports = []api.PortRange{{First: q.Port, Last: q.Port}}
	}
	return r
}

// WouldAllowName is WouldAllow for the look-up of a name.
func (p *Policy) WouldAllowName(name string) string {
	d := p.JudgeName(name)
	if d.Allowed || d.Bound != "" || forbiddenName(name) != nil {
		return ""
	}
	if p.documents[0].exactlyDenied(&lookUp{name: name, proto: Echo}) {
		return ""
	}
	return name
}
