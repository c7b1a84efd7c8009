package policy

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"ramet.dev/ramet/api"
)

// Bounds of what is compiled.
const (
	maxCompiledRules = 8192 // of one document, with those of its profiles
	maxProfileDepth  = 8
	maxBounds        = 8
)

// quic is the port of UDP that is never reached: clients of HTTP/3 turn to TCP then, where names
// can be seen.
const quic = 443

var (
	namePorts   = []api.PortRange{{First: 443, Last: 443}, {First: 80, Last: 80}}
	secretPorts = namePorts[:1]
)

// Compile makes a policy of a Spec. It returns an error of api.CodeInvalid about what has not the
// form of a document, and about what could not be enforced. own reports whether an address is one
// of the host's; it is asked in each judgement, for other addresses than those of loopback.
func Compile(spec Spec, own func(netip.Addr) bool) (*Policy, error) {
	if own == nil {
		return nil, errors.New("compile network policy: the addresses of the host are not given")
	}
	bounds, err := CompileBounds(spec.Bounds...)
	if err != nil {
		return nil, err
	}
	d, err := compileDocument("", &spec.Document, spec.Profiles)
	if err != nil {
		return nil, err
	}
	p := &Policy{own: own, documents: []*document{d}, limits: d.limits}
	return p.Under(bounds), nil
}

// compiler makes one document.
type compiler struct {
	*document
	profiles map[string]api.NetworkPolicy
	included map[inclusion]bool
	count    int // rules so far
}

// inclusion is a profile in one of the lists. A second one adds nothing.
type inclusion struct {
	profile string
	allow   bool
}

func compileDocument(bound string, doc *api.NetworkPolicy, profiles map[string]api.NetworkPolicy) (*document, error) {
	c := &compiler{profiles: profiles, included: map[inclusion]bool{}, document: &document{
		table: newTable(), bound: bound, limits: doc.Limits, treated: newTreatments(),
	}}
	c.byDefault = &rule{text: "default: deny", tcp: true}
	if doc.Default == api.NetworkAllow {
		c.byDefault = &rule{text: "default: allow", tcp: true, allow: true}
	}
	if err := c.include(doc, "network", "", nil); err != nil {
		return nil, err
	}
	c.finish()
	return c.document, nil
}

// include adds a document, or a profile. via is how it is named in decisions, and within are the
// profiles that it was reached through.
func (c *compiler) include(doc *api.NetworkPolicy, field, via string, within []string) error {
	if err := doc.Valid(); err != nil {
		return err
	}
	for _, list := range []struct {
		name  string
		rules []api.NetworkRule
		allow bool
	}{{".allow", doc.Allow, true}, {".deny", doc.Deny, false}} {
		for i := range list.rules {
			if err := c.addRule(&list.rules[i], list.allow, fmt.Sprintf("%s%s[%d]", field, list.name, i), via, within); err != nil {
				return err
			}
		}
	}
	for i := range doc.Accept {
		if err := c.countRule(fmt.Sprintf("%s.accept[%d]", field, i)); err != nil {
			return err
		}
		c.accepts.add(peerRule(&doc.Accept[i], true, via))
	}
	for _, name := range slices.Sorted(maps.Keys(doc.Rules)) {
		if err := c.addTreatment(name, doc.Rules[name], field+".rules."+name, via); err != nil {
			return err
		}
	}
	return nil
}

// countRule bounds the work that a document and its profiles make.
func (c *compiler) countRule(field string) error {
	if c.count++; c.count > maxCompiledRules {
		return api.Invalid(field, "the document has more than %d rules with those of its profiles", maxCompiledRules)
	}
	return nil
}

func (c *compiler) addRule(r *api.NetworkRule, allow bool, field, via string, within []string) error {
	if err := c.countRule(field); err != nil {
		return err
	}
	switch {
	case r.Profile != "":
		return c.addProfile(r.Profile, allow, field, via, within)
	case r.Sandbox != nil:
		c.allowed.add(peerRule(r, allow, via))
		return nil
	}
	out, err := compileRule(r, allow, field, via)
	if err != nil {
		return err
	}
	c.add(out)
	return nil
}

// addProfile adds the rules of a profile. In a list of denials, all that it allows is denied.
func (c *compiler) addProfile(name string, allow bool, field, via string, within []string) error {
	profile, ok := c.profiles[name]
	switch {
	case !ok:
		return api.Invalid(field, "there is no profile %q", name)
	case slices.Contains(within, name):
		return api.Invalid(field, "profile %q names itself", name)
	case len(within) == maxProfileDepth:
		return api.Invalid(field, "profiles name each other more than %d deep", maxProfileDepth)
	case profile.Default == api.NetworkAllow:
		return api.Invalid(field, "profile %q allows by default: it can be a document, and no part of one", name)
	case !allow && (len(profile.Deny) > 0 || len(profile.Rules) > 0 || len(profile.Accept) > 0):
		return api.Invalid(field, "profile %q has more than a list of allow, and cannot be denied", name)
	}
	if c.included[inclusion{name, allow}] {
		return nil
	}
	c.included[inclusion{name, allow}] = true
	within = append(slices.Clip(within), name)
	via += "profile " + name + ": "
	if allow {
		c.limits = smaller(c.limits, profile.Limits)
		return c.include(&profile, field+" (profile "+name+")", via, within)
	}
	if err := profile.Valid(); err != nil {
		return err
	}
	for i := range profile.Allow {
		if err := c.addRule(&profile.Allow[i], false, fmt.Sprintf("%s (profile %s).allow[%d]", field, name, i), via, within); err != nil {
			return err
		}
	}
	return nil
}

// compileRule compiles a rule about a name or an address, and refuses one that would never count.
func compileRule(r *api.NetworkRule, allow bool, field, via string) (*rule, error) {
	out := &rule{allow: allow, ports: r.Ports, tcp: r.Protocol != api.NetworkUDP, udp: r.Protocol == api.NetworkUDP}
	out.text = via + r.Describe()
	if !allow {
		out.text = via + "deny " + r.Describe()
		out.udp = r.Protocol != api.NetworkTCP
	}
	if prefix, ok := r.Prefix(); ok {
		if embeds(prefix) {
			return nil, api.Invalid(field, "%s is judged as the IPv4 address in it: name that", r.Address)
		}
		out.prefix, out.kind = prefix, network
		if prefix.IsSingleIP() {
			out.kind = single
		}
		out.named = classesNamed(prefix)
	} else {
		var err error
		if out.kind, out.name, err = canonicalPattern(field, r.Address); err != nil {
			return nil, err
		}
		if f := forbiddenName(out.name); f != nil && allow && out.name != "" {
			return nil, api.Invalid(field, "%s is reached %s: name the address", r.Address, f.text)
		}
	}
	if allow && len(r.Ports) == 0 && (!out.isAddress() || api.IsHostName(r.Address)) {
		if out.udp {
			return nil, api.Invalid(field, "UDP to %s wants a port", r.Address)
		}
		out.ports = namePorts
	}
	if r.Private {
		out.named |= private
	}
	if allow && out.udp && slices.Equal(out.ports, secretPorts) {
		return nil, api.Invalid(field, "UDP to port %d is never passed on, so that names can be seen in TCP", quic)
	}
	return out, nil
}

// addTreatment adds a treatment, and for a single name the rule that allows it.
func (c *compiler) addTreatment(pattern string, t api.NetworkTreatment, field, via string) error {
	kind, name, err := canonicalPattern(field, pattern)
	if err != nil {
		return err
	}
	if f := forbiddenName(name); f != nil && name != "" {
		return api.Invalid(field, "%s is reached %s", pattern, f.text)
	}
	treatment := &Treatment{Pattern: pattern, NetworkTreatment: t, kind: kind, name: name}
	if !c.treated.add(treatment) {
		return api.Invalid(field, "%s has another treatment already", pattern)
	}
	if kind == single {
		c.add(&rule{
			text: via + "rules: " + pattern, allow: true, tcp: true, kind: single, name: name, ports: secretPorts,
		})
	}
	return nil
}

// finish derives what follows from all rules.
func (c *compiler) finish() {
	namesDenied := false
	probes := map[uint16]bool{1: true}
	for _, r := range c.all {
		if !r.isAddress() {
			namesDenied = namesDenied || !r.allow
		} else if n := r.prefix.Bits(); r.kind == network {
			lengths := &c.bits6
			if r.prefix.Addr().Is4() {
				lengths = &c.bits4
			}
			if !slices.Contains(*lengths, n) {
				*lengths = append(*lengths, n)
			}
		}
		if r.udp {
			probes[quic+1] = true // a range may begin with the port that is left out
		}
		for _, p := range r.ports {
			probes[p.First] = true
			if p.Last < 65535 {
				probes[p.Last+1] = true
			}
		}
	}
	c.bits4, c.bits6 = longestFirst(c.bits4), longestFirst(c.bits6)
	c.probes = slices.Sorted(maps.Keys(probes))
	c.namesMatter = namesDenied || c.treated.restrict
	c.hostMatters = namesDenied || len(c.treated.all) > 0
}

func longestFirst(bits []int) []int {
	slices.Sort(bits)
	slices.Reverse(bits)
	return bits
}
