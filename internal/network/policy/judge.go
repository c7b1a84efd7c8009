package policy

import (
	"net/netip"
	"slices"
)

// String returns the rule with whose it is.
func (d Decision) String() string {
	if d.Bound != "" {
		return "bound of " + d.Bound + ": " + d.Rule
	}
	return d.Rule
}

// Protocol is the kind of a connection that is judged.
type Protocol uint8

// The protocols. Echo requests are judged as connections at any port.
const (
	TCP Protocol = iota
	UDP
	Echo
)

// Question asks whether a connection may exist. Names are in the form of CanonicalName.
type Question struct {
	Protocol Protocol
	Address  netip.Addr
	Port     uint16   // of TCP and UDP
	Names    []string // names that Address was given out for, to the sandbox that asks, and that JudgeName allows
	// Seen is set once the first bytes of the guest have been looked at, or the guest has sent none
	// in time. Host is the server name of TLS or the Host of HTTP that they show, "" if they show
	// none.
	Seen bool
	Host string
}

// Host says what has to be known of a connection before its first byte is passed on.
type Host uint8

// What has to be known, the least first.
const (
	HostIgnored  Host = iota // the decision holds whatever the first bytes are
	HostIfShown              // if they show a name, the connection is judged once more
	HostRequired             // no byte is passed on before they have shown a name that is allowed
)

// Failure is the class of error that a denied guest gets.
type Failure uint8

// The failures.
const (
	Refused     Failure = iota // ECONNREFUSED of TCP
	Unreachable                // EHOSTUNREACH of UDP and echo requests
)

// Decision is what a policy says about a connection, a name or another sandbox.
type Decision struct {
	Allowed   bool
	Rule      string     // text of the rule that decided
	Bound     string     // whose bound denied it; "" if the sandbox's own document decided
	Host      Host       // of connections that are allowed and whose first bytes are not Seen
	Treatment *Treatment // of requests to the Host that was Seen, or nil
	Failure   Failure    // of connections that are denied
	// ByDefault is set if no rule is about the target in particular: the default of the document
	// decided, or the rule * for all names.
	ByDefault bool
}

// noRule are decisions of documents that allow by default, about what their default does not cover.
var noRule = [...]*rule{
	TCP: {text: "default: allow holds for addresses that a name was looked up for, as names are denied or treated"},
	UDP: {text: "UDP: no address rule names it"},
}

var (
	quicRule   = &rule{text: "UDP to port 443 is never passed on"}
	noHostRule = &rule{text: "no server name is shown, and no address rule allows the address"}
	mixedRule  = &rule{text: "requests to a name are restricted, and the name that is shown and the address do not belong together"}
)

// Judge decides about a connection. All documents have to allow it; the first one that denies it is
// told.
func (p *Policy) Judge(q *Question) Decision {
	addr, classes := p.classify(q.Address)
	return p.judge(q, addr, classes)
}

// classify returns the address that is judged in place of addr, with its classes.
func (p *Policy) classify(addr netip.Addr) (netip.Addr, class) {
	addr = canonicalAddress(addr)
	classes := classesOf(addr)
	if classes&loopback == 0 && p.own(addr) {
		classes |= ownHost
	}
	if v4, ok := tunnelled(addr); ok && classes&loopback == 0 && p.own(v4) {
		classes |= ownHost
	}
	return addr, classes
}

func (p *Policy) judge(q *Question, addr netip.Addr, classes class) Decision {
	out := Decision{Allowed: true}
	for i, d := range p.documents {
		one := d.judgeConnection(q, addr, classes)
		if !one.Allowed {
			one.Failure, one.Bound = failure(q.Protocol), d.bound
			return one
		}
		if i == 0 {
			out.Rule, out.Treatment, out.ByDefault = one.Rule, one.Treatment, one.ByDefault
		}
		out.Host = max(out.Host, one.Host)
	}
	return out
}

func failure(proto Protocol) Failure {
	if proto == TCP {
		return Refused
	}
	return Unreachable
}

func (d *document) judgeConnection(q *Question, addr netip.Addr, classes class) Decision {
	switch q.Protocol {
	case UDP:
		if q.Port == quic {
			return denied(quicRule)
		}
		return d.decide(&lookUp{addr: addr, classes: classes, proto: UDP, port: q.Port})
	case Echo:
		return d.judgeEcho(q, addr, classes)
	}
	return d.judgeTCP(q, addr, classes)
}

func (d *document) decide(l *lookUp) Decision {
	allowed, by := d.judge(l)
	byDefault := by.kind == everything || by.kind == wildcard && by.name == ""
	return Decision{Allowed: allowed, Rule: by.text, ByDefault: byDefault}
}

func denied(by *rule) Decision { return Decision{Rule: by.text} }

// judgeTCP decides about one port of TCP.
func (d *document) judgeTCP(q *Question, addr netip.Addr, classes class) Decision {
	l := lookUp{addr: addr, classes: classes, proto: TCP, port: q.Port}
	restricted := d.treated.restricts(q.Names)
	if q.Seen && q.Host != "" {
		return d.judgeShown(q, l, restricted)
	}
	l.useDefault = !d.namesMatter
	out := d.decide(&l)
	nameless := out.Allowed
	if !nameless {
		out = d.judgeNames(q, l, out)
	}
	switch {
	case !out.Allowed:
		return out
	case restricted, !nameless && (q.Port == 443 || q.Port == 80):
		out.Host = HostRequired
	case !nameless, d.hostMatters:
		out.Host = HostIfShown
	}
	if q.Seen && out.Host == HostRequired {
		return denied(noHostRule)
	}
	if q.Seen {
		out.Host = HostIgnored
	}
	return out
}

// judgeNames decides by the names that the address was given out for: one that is allowed is
// enough. nameless is the decision without them.
func (d *document) judgeNames(q *Question, l lookUp, nameless Decision) Decision {
	l.useDefault = true
	out := nameless
	for i, name := range q.Names {
		l.name = name
		one := d.decide(&l)
		if one.Allowed {
			return one
		}
		if i == 0 {
			out = one
		}
	}
	return out
}

// judgeShown decides about a connection whose first bytes show a name.
func (d *document) judgeShown(q *Question, l lookUp, restricted bool) Decision {
	l.name = q.Host
	treatment := d.treated.of(q.Host)
	if !slices.Contains(q.Names, q.Host) {
		// The address was not given out for the name, which can only make things worse: no rule allows
		// by it, and no secret is sent to the address.
		if restricted || treatment != nil && treatment.Restricts() {
			return denied(mixedRule)
		}
		l.denyOnly, l.useDefault = true, !d.namesMatter
		return d.decide(&l)
	}
	l.useDefault = true
	out := d.decide(&l)
	if out.Allowed {
		out.Treatment = treatment
	}
	return out
}

// judgeEcho decides about echo requests: the target has to be allowed at one port.
func (d *document) judgeEcho(q *Question, addr netip.Addr, classes class) Decision {
	ask := Question{Protocol: TCP, Names: q.Names}
	var first Decision
	for i, port := range d.probes {
		ask.Port = port
		tcp := d.judgeTCP(&ask, addr, classes)
		if tcp.Allowed {
			return Decision{Allowed: true, Rule: tcp.Rule}
		}
		if i == 0 {
			first = tcp
		}
		if port != quic {
			if udp := d.decide(&lookUp{addr: addr, classes: classes, proto: UDP, port: port}); udp.Allowed {
				return udp
			}
		}
	}
	return first
}

// JudgeName decides whether a name may be looked up: a connection to it has to be allowed at one
// port, at some public or private address.
func (p *Policy) JudgeName(name string) Decision {
	out := Decision{Allowed: true, Failure: Refused}
	if f := forbiddenName(name); f != nil {
		return denied(f)
	}
	for i, d := range p.documents {
		one := d.judgeName(name)
		if !one.Allowed {
			one.Bound = d.bound
			return one
		}
		if i == 0 {
			out.Rule, out.ByDefault = one.Rule, one.ByDefault
		}
	}
	return out
}

// judgeName returns the decision at the first port at which a rule about the name allows it, or at
// which it is allowed at all.
func (d *document) judgeName(name string) Decision {
	var out Decision
	for i, port := range d.probes {
		one := d.decide(&lookUp{name: name, proto: TCP, port: port, useDefault: true})
		if one.Allowed && !one.ByDefault {
			return one
		}
		if i == 0 || one.Allowed && !out.Allowed {
			out = one
		}
	}
	return out
}

// JudgeAnswer decides whether an address may be given out for a name. It denies private addresses
// and those of the host where no rule says otherwise, so that a name cannot be bound to them
// later.
func (p *Policy) JudgeAnswer(name string, addr netip.Addr) Decision {
	addr, classes := p.classify(addr)
	names := [1]string{name}
	return p.judge(&Question{Protocol: Echo, Names: names[:]}, addr, classes)
}

// JudgeTarget decides whether the sandbox may connect to another one of its tenant.
func (p *Policy) JudgeTarget(s *Peer, port uint16) Decision {
	return p.judgePeer(s, port, func(d *document) peers { return d.allowed })
}

// JudgeSource decides whether another sandbox of the tenant may connect to this one.
func (p *Policy) JudgeSource(s *Peer, port uint16) Decision {
	return p.judgePeer(s, port, func(d *document) peers { return d.accepts })
}

func (p *Policy) judgePeer(s *Peer, port uint16, list func(*document) peers) Decision {
	out := Decision{Allowed: true}
	for i, d := range p.documents {
		by := list(d).judge(s, port)
		switch {
		case by == nil:
			return Decision{Rule: "no rule names the sandbox", Bound: d.bound}
		case !by.allow:
			return Decision{Rule: by.text, Bound: d.bound}
		case i == 0:
			out.Rule = by.text
		}
	}
	return out
}

// Keeps reports whether a connection that another policy allowed may stay open. q is as it was when
// the connection was decided for good, and t the treatment that it has.
func (p *Policy) Keeps(q *Question, t *Treatment) bool {
	d := p.Judge(q)
	return d.Allowed && d.Treatment.equal(t)
}
