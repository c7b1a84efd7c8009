package policy

import (
	"net/netip"

	"ramet.dev/ramet/api"
)

// kind is the class of what a rule names.
type kind uint8

const (
	everything kind = iota // the default of a document
	wildcard               // names below a domain
	network                // a range of addresses
	single                 // one name, or one address
)

// rule is one rule of a document, or its default.
type rule struct {
	text   string // as decisions tell it
	allow  bool
	kind   kind
	name   string       // of a name, or the domain of a wildcard; "" is all names
	prefix netip.Prefix // of addresses; not valid for names
	tcp    bool
	udp    bool
	ports  []api.PortRange // all if there are none
	named  class           // classes of addresses that it reaches
}

// isAddress reports whether the rule is about addresses rather than names.
func (r *rule) isAddress() bool { return r.prefix.IsValid() }

// covers reports whether the rule is about a protocol and a port.
func (r *rule) covers(proto Protocol, port uint16) bool {
	if proto == UDP && !r.udp || proto != UDP && !r.tcp {
		return false
	}
	if len(r.ports) == 0 {
		return true
	}
	for _, p := range r.ports {
		if p.Has(port) {
			return true
		}
	}
	return false
}

// rules are the rules about one name, domain, address or range.
type rules struct{ allow, deny []*rule }

// verdict is what rules of equal specificity say.
type verdict uint8

const (
	silent verdict = iota
	allows
	denies
)

// match returns what the rules say about a connection to an address of classes c. A rule that
// allows and does not name all of the classes does not match.
func (rs *rules) match(proto Protocol, port uint16, c class) (verdict, *rule) {
	if rs == nil {
		return silent, nil
	}
	for _, r := range rs.deny {
		if r.covers(proto, port) {
			return denies, r
		}
	}
	for _, r := range rs.allow {
		if c&^r.named == 0 && r.covers(proto, port) {
			return allows, r
		}
	}
	return silent, nil
}

// table has the rules of one document.
type table struct {
	names     map[string]*rules // single names
	domains   map[string]*rules // wildcards, by what is behind the first dot
	prefixes  map[netip.Prefix]*rules
	bits4     []int // lengths of ranges that there are, without that of single addresses, the longest first
	bits6     []int
	all       []*rule // all of them, in the order of the document
	byDefault *rule
}

func newTable() *table {
	return &table{names: map[string]*rules{}, domains: map[string]*rules{}, prefixes: map[netip.Prefix]*rules{}}
}

// add puts r where it is looked up.
func (t *table) add(r *rule) {
	t.all = append(t.all, r)
	var rs *rules
	switch {
	case r.isAddress():
		rs = entry(t.prefixes, r.prefix)
	case r.kind == wildcard:
		rs = entry(t.domains, r.name)
	default:
		rs = entry(t.names, r.name)
	}
	if r.allow {
		rs.allow = append(rs.allow, r)
	} else {
		rs.deny = append(rs.deny, r)
	}
}

func entry[K comparable](m map[K]*rules, k K) *rules {
	if m[k] == nil {
		m[k] = &rules{}
	}
	return m[k]
}

// lookUp is what is known of the target of a connection.
type lookUp struct {
	name       string // "" if none is known
	denyOnly   bool   // rules that allow the name do not count: the address was not given out for it
	addr       netip.Addr
	classes    class
	proto      Protocol
	port       uint16
	useDefault bool // whether a default that allows counts
}

// judge applies the precedence of the package to one name and one address. It returns the rule
// that decided.
func (t *table) judge(l *lookUp) (allowed bool, by *rule) {
	exact, exactBy := t.exact(l)
	if exact != silent {
		return exact == allows, exactBy
	}
	names, namesBy := t.wild(l)
	ranges, rangesBy := t.ranges(l)
	switch {
	case names == denies:
		return false, namesBy
	case ranges == denies:
		return false, rangesBy
	case names == allows:
		return true, namesBy
	case ranges == allows:
		return true, rangesBy
	case l.classes != 0:
		return false, l.classes.rule()
	case t.byDefault.allow && (l.proto == UDP || !l.useDefault):
		return false, noRule[l.proto]
	}
	return t.byDefault.allow, t.byDefault
}

// exact returns what the rules about the single name and the single address say together.
func (t *table) exact(l *lookUp) (verdict, *rule) {
	byAddr, addrBy := silent, (*rule)(nil)
	if l.addr.IsValid() {
		byAddr, addrBy = t.prefixes[netip.PrefixFrom(l.addr, l.addr.BitLen())].match(l.proto, l.port, l.classes)
	}
	byName, nameBy := silent, (*rule)(nil)
	if l.name != "" {
		byName, nameBy = l.ofNames(t.names[l.name])
	}
	if byAddr == denies || byName == silent {
		return byAddr, addrBy
	}
	return byName, nameBy
}

// wild returns what the longest wildcard says that matches.
func (t *table) wild(l *lookUp) (verdict, *rule) {
	if l.name == "" || len(t.domains) == 0 {
		return silent, nil
	}
	for domain := parent(l.name); ; domain = parent(domain) {
		if v, by := l.ofNames(t.domains[domain]); v != silent {
			return v, by
		}
		if domain == "" {
			return silent, nil
		}
	}
}

// ofNames returns what rules about names say.
func (l *lookUp) ofNames(rs *rules) (verdict, *rule) {
	v, by := rs.match(l.proto, l.port, l.classes)
	if v == allows && (l.denyOnly || l.proto == UDP) {
		return silent, nil
	}
	return v, by
}

// ranges returns what the longest range says that matches.
func (t *table) ranges(l *lookUp) (verdict, *rule) {
	if !l.addr.IsValid() {
		return silent, nil
	}
	lengths := t.bits6
	if l.addr.Is4() {
		lengths = t.bits4
	}
	for _, n := range lengths {
		prefix, err := l.addr.Prefix(n)
		if err != nil {
			continue // a length that addresses of this family do not have
		}
		if v, by := t.prefixes[prefix].match(l.proto, l.port, l.classes); v != silent {
			return v, by
		}
	}
	return silent, nil
}
