package policy

import (
	"net/netip"
	"reflect"
	"slices"
	"strings"

	"ramet.dev/ramet/api"
)

// Within returns nil if the document of child allows nothing that the document of parent does not,
// and else an error of api.CodeForbidden about the first thing that could not be proven. The proof
// looks at rules and not at connections, so it is on the safe side: a child is refused that is not
// wider, but whose rules are not seen to be within rules of its parent. Bounds are not compared:
// a child has those of its parent. Questions are those whose Names the child may look up.
//
// For each rule of child that allows, and each port, it shows that
//
//   - a rule of parent allows all of it, and
//   - each rule of parent that denies a part of it is less specific than that one, or has a
//     counterpart in child that is not less specific than the rule of child.
func Within(child, parent *Policy) error {
	c, p := child.documents[0], parent.documents[0]
	n := narrowing{child: c, parent: p, own: parent.own}
	for _, check := range []func() error{n.limits, n.connections, n.treatments} {
		if err := check(); err != nil {
			return err
		}
	}
	if err := peersWithin("network.allow", c.allowed, p.allowed); err != nil {
		return err
	}
	return peersWithin("network.accept", c.accepts, p.accepts)
}

// narrowing is one comparison.
type narrowing struct {
	child, parent *document
	own           func(netip.Addr) bool
}

func wider(field, format string, args ...any) error {
	e := api.Errorf(api.CodeForbidden, format, args...)
	e.Field = field
	return e
}

func (n *narrowing) limits() error {
	c, p := effective(n.child.limits), effective(n.parent.limits)
	switch {
	case c.Connections > p.Connections:
		return wider("network.limits.connections", "%d is more than the %d of the parent", c.Connections, p.Connections)
	case c.DNSPerS > p.DNSPerS:
		return wider("network.limits.dns_per_s", "%d is more than the %d of the parent", c.DNSPerS, p.DNSPerS)
	case p.RateMbit > 0 && (c.RateMbit == 0 || c.RateMbit > p.RateMbit):
		return wider("network.limits.rate_mbit", "%d (0 is no limit) is more than the %d of the parent", c.RateMbit, p.RateMbit)
	}
	return nil
}

// connections compares the rules about names and addresses, and the defaults.
func (n *narrowing) connections() error {
	probes := slices.Concat(n.child.probes, n.parent.probes)
	slices.Sort(probes)
	probes = slices.Compact(probes)
	given := n.child.all
	if n.child.byDefault.allow {
		given = append(slices.Clip(given), n.child.byDefault)
	}
	for _, r := range given {
		if !r.allow {
			continue
		}
		for _, proto := range []Protocol{TCP, UDP} {
			for _, port := range probes {
				if !r.covers(proto, port) || proto == UDP && port == quic {
					continue
				}
				if err := n.rule(r, proto, port); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// rule compares what a rule of the child allows at one port.
func (n *narrowing) rule(r *rule, proto Protocol, port uint16) error {
	covering := n.covering(r, proto, port)
	if len(covering) == 0 {
		return wider("network.allow", "%s allows port %d, and no single rule of the parent is seen to allow all of that", r.text, port)
	}
	for _, d := range n.parent.all {
		if d.allow || !d.covers(proto, port) || !overlap(d, r) {
			continue
		}
		beaten := slices.ContainsFunc(covering, func(q *rule) bool { return q.beats(d) })
		if !beaten && !n.deniedToo(d, r, proto, port) {
			return wider("network.allow", "%s allows some of what the parent denies (%s) at port %d: deny that too", r.text, d.text, port)
		}
	}
	return nil
}

// covering returns the rules of the parent that allow all that r allows at a port.
func (n *narrowing) covering(r *rule, proto Protocol, port uint16) []*rule {
	var out []*rule
	for _, q := range n.parent.all {
		if q.allow && q.covers(proto, port) && contains(q, r) && n.reaches(q, r) {
			out = append(out, q)
		}
	}
	if d := n.parent.byDefault; d.allow && proto == TCP && n.reaches(d, r) && !(r.isAddress() && n.parent.namesMatter) {
		out = append(out, d)
	}
	return out
}

// reaches reports whether q reaches the classes of addresses that r reaches.
func (n *narrowing) reaches(q, r *rule) bool {
	need := r.named
	if r.isAddress() && need&ownHost != 0 && !n.own(r.prefix.Addr()) {
		need &^= ownHost
	}
	if need&private != 0 && r.isAddress() && !meetsPrivate(r.prefix) {
		need &^= private // it says private, and has no private addresses
	}
	return need&^q.named == 0
}

// meetsPrivate reports whether there are private addresses in a range.
func meetsPrivate(prefix netip.Prefix) bool {
	for i := range special {
		if special[i].class == private && special[i].prefix.Overlaps(prefix) {
			return true
		}
	}
	return false
}

// deniedToo reports whether the child denies what both d, a rule of its parent, and r are about,
// with a rule that is not less specific than r.
func (n *narrowing) deniedToo(d, r *rule, proto Protocol, port uint16) bool {
	return slices.ContainsFunc(n.child.all, func(own *rule) bool {
		return !own.allow && own.covers(proto, port) && (contains(own, d) || contains(own, r)) && !r.beats(own)
	})
}

// contains reports whether all that b is about, q is about. Names and addresses do not contain each
// other.
func contains(q, b *rule) bool {
	switch {
	case q.kind == everything:
		return true
	case b.kind == everything || q.isAddress() != b.isAddress():
		return false
	case q.isAddress():
		return q.prefix.Bits() <= b.prefix.Bits() && q.prefix.Contains(b.prefix.Addr())
	case q.kind == single:
		return b.kind == single && q.name == b.name
	}
	return below(b.name, q.name) || b.kind == wildcard && b.name == q.name
}

// overlap reports whether a connection may be about both. Any name may stand for any address.
func overlap(a, b *rule) bool {
	if a.kind == everything || b.kind == everything || a.isAddress() != b.isAddress() {
		return true
	}
	if a.isAddress() {
		return a.prefix.Overlaps(b.prefix)
	}
	return contains(a, b) || contains(b, a)
}

// beats reports whether the rule is more specific than a denial that matches the same connection.
func (r *rule) beats(d *rule) bool {
	switch {
	case r.kind == everything || d.kind == single:
		return false
	case r.kind == single:
		return true
	case r.isAddress() != d.isAddress():
		return false
	case r.isAddress():
		return r.prefix.Bits() > d.prefix.Bits()
	}
	return r.name != d.name && (d.name == "" || below(r.name, d.name))
}

// treatments compares what is done to requests.
func (n *narrowing) treatments() error {
	for _, c := range n.child.treated.all {
		if len(c.Inserted()) > 0 && !n.sameSecret(c) {
			return wider("network.rules."+c.Pattern, "the parent puts no such secret or header there")
		}
	}
	for _, p := range n.parent.treated.all {
		if !p.Restricts() {
			continue
		}
		if err := n.treatment(p); err != nil {
			return err
		}
	}
	return nil
}

// treatment compares the child with one treatment of the parent that restricts requests.
func (n *narrowing) treatment(p *Treatment) error {
	field := "network.rules." + p.Pattern
	for _, c := range n.child.treated.all {
		if overlap(c.about(), p.about()) && !replaced(n.parent, p, c) && !replaced(n.child, c, p) && !c.within(p) {
			return wider("network.rules."+c.Pattern, "it allows requests that the parent's treatment of %s does not", p.Pattern)
		}
	}
	given := n.child.all
	if n.child.byDefault.allow {
		given = append(slices.Clip(given), n.child.byDefault)
	}
	for _, r := range given {
		if !r.allow || !r.tcp || !overlap(r, p.about()) {
			continue
		}
		kept := slices.ContainsFunc(n.child.treated.all, func(c *Treatment) bool {
			return c.Restricts() && (contains(c.about(), p.about()) || !r.isAddress() && contains(c.about(), r))
		})
		if !kept {
			return wider(field, "the parent restricts requests to %s, and the child, which allows %s, does not", p.Pattern, r.text)
		}
	}
	return nil
}

// about returns the names of a treatment as a rule.
func (t *Treatment) about() *rule { return &rule{kind: t.kind, name: t.name} }

// replaced reports whether d has a treatment that counts in place of its treatment t for all names
// of another one.
func replaced(d *document, t, other *Treatment) bool {
	return slices.ContainsFunc(d.treated.all, func(q *Treatment) bool {
		return q != t && contains(t.about(), q.about()) && contains(q.about(), other.about())
	})
}

// sameSecret reports whether the parent puts the headers of c into requests to all of its names.
func (n *narrowing) sameSecret(c *Treatment) bool {
	found := false
	for _, p := range n.parent.treated.all {
		switch {
		case !overlap(p.about(), c.about()) || replaced(n.parent, p, c):
		case !contains(p.about(), c.about()) || !reflect.DeepEqual(p.Inserted(), c.Inserted()) || !c.within(p):
			return false
		default:
			found = true
		}
	}
	return found
}

// within reports whether the treatment lets no request pass that p does not.
func (t *Treatment) within(p *Treatment) bool {
	if p.Hold != "" && t.Hold != p.Hold {
		return false
	}
	if len(p.Methods) > 0 && (len(t.Methods) == 0 || slices.ContainsFunc(t.Methods, func(m string) bool { return !slices.Contains(p.Methods, m) })) {
		return false
	}
	return len(p.Paths) == 0 || len(t.Paths) > 0 && !slices.ContainsFunc(t.Paths, func(path string) bool {
		return !slices.ContainsFunc(p.Paths, func(of string) bool { return pathWithin(path, of) })
	})
}

// pathWithin reports whether all paths of a pattern match another one.
func pathWithin(path, of string) bool {
	prefix, open := strings.CutSuffix(of, "*")
	if !open {
		return path == of
	}
	return strings.HasPrefix(path, prefix)
}

// peersWithin compares rules about other sandboxes.
func peersWithin(field string, child, parent peers) error {
	var probes []uint16
	for _, r := range slices.Concat(child, parent) {
		probes = append(probes, 1)
		for _, p := range r.ports {
			if probes = append(probes, p.First); p.Last < 65535 {
				probes = append(probes, p.Last+1)
			}
		}
	}
	slices.Sort(probes)
	probes = slices.Compact(probes)
	for _, r := range child {
		for _, port := range probes {
			if !r.allow || !r.covers(port) {
				continue
			}
			if err := peerWithin(field, r, port, child, parent); err != nil {
				return err
			}
		}
	}
	return nil
}

func peerWithin(field string, r *peer, port uint16, child, parent peers) error {
	var by *peer
	for _, q := range parent {
		if q.allow && q.covers(port) && q.contains(r) && (by == nil || q.single()) {
			by = q
		}
	}
	if by == nil {
		return wider(field, "%s allows port %d, and no single rule of the parent is seen to allow all of that", r.text, port)
	}
	for _, d := range parent {
		if d.allow || !d.covers(port) || by.single() && !d.single() || d.single() && r.single() && d.target.Name != r.target.Name {
			continue
		}
		deniedToo := slices.ContainsFunc(child, func(own *peer) bool {
			return !own.allow && own.covers(port) && own.contains(d) && (own.single() || !r.single())
		})
		if !deniedToo {
			return wider(field, "%s allows some of what the parent denies (%s) at port %d: deny that too", r.text, d.text, port)
		}
	}
	return nil
}

// contains reports whether all sandboxes that r names, p names.
func (p *peer) contains(r *peer) bool {
	switch {
	case p.target.Name == api.AnySandbox:
		return true
	case p.target.Name != "" || r.target.Name != "":
		return p.target.Name == r.target.Name && p.target.Name != ""
	}
	for k, v := range p.target.Metadata {
		if have, ok := r.target.Metadata[k]; !ok || have != v {
			return false
		}
	}
	return true
}
