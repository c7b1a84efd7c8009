package api

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds of a network document.
const (
	MaxNetworkRules   = 1024 // in each list
	maxPortRanges     = 64
	maxTreatments     = 256
	maxMethods        = 32
	maxPaths          = 256
	maxPath           = 1024 // bytes
	maxHeaderValue    = 4096 // bytes
	maxHeaders        = 32
	maxHostName       = 253 // RFC 1035, without the last dot
	maxHostLabel      = 63
	maxConnections    = 65536
	maxRateMbit       = 1_000_000
	maxDNSPerS        = 10_000
	maxProfileName    = 64
	maxSelectorLabels = 16
)

var (
	secretName    = pattern(`\$\{[A-Za-z_][A-Za-z0-9_.-]*\}`)
	httpToken     = pattern("^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,256}$")
	profileName   = pattern(`^[a-z0-9]([a-z0-9._-]*[a-z0-9])?$`)
	allowedPath   = pattern(`^/[^\x00-\x20?#%*\\\x7f]*\*?$`)
	hopByHop      = []string{"connection", "content-length", "host", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"}
	numericEnding = pattern(`(^|\.)([0-9]+|0[xX][0-9a-fA-F]*)$`)
)

// Valid returns a CodeInvalid error unless the document has the form of one. Whether it can be
// enforced, and whether its profiles exist, is decided where it is compiled.
func (p *NetworkPolicy) Valid() error {
	switch p.Default {
	case "", NetworkDeny, NetworkAllow:
	default:
		return Invalid("network.default", "%q is not deny or allow", p.Default)
	}
	for _, list := range []struct {
		field string
		rules []NetworkRule
	}{{"network.allow", p.Allow}, {"network.deny", p.Deny}, {"network.accept", p.Accept}} {
		if len(list.rules) > MaxNetworkRules {
			return Invalid(list.field, "%d rules are more than %d", len(list.rules), MaxNetworkRules)
		}
		for i := range list.rules {
			field := fmt.Sprintf("%s[%d]", list.field, i)
			if err := list.rules[i].Valid(field); err != nil {
				return err
			}
			if list.field == "network.accept" && list.rules[i].Sandbox == nil {
				return Invalid(field, "%s is not {sandbox: NAME}: only sandboxes are accepted", list.rules[i])
			}
		}
	}
	if len(p.Rules) > maxTreatments {
		return Invalid("network.rules", "%d names are more than %d", len(p.Rules), maxTreatments)
	}
	for name, t := range p.Rules {
		field := "network.rules." + name
		if err := validHostPattern(field, name); err != nil {
			return err
		}
		if IsHostName(name) {
			return Invalid(field, "requests to %s cannot be treated: it stands for an address, not for a server with a name", name)
		}
		if err := t.valid(field); err != nil {
			return err
		}
	}
	return p.Limits.valid()
}

func (l NetworkLimits) valid() error {
	for _, c := range []struct {
		field      string
		value, max int
	}{
		{"network.limits.connections", l.Connections, maxConnections},
		{"network.limits.rate_mbit", l.RateMbit, maxRateMbit},
		{"network.limits.dns_per_s", l.DNSPerS, maxDNSPerS},
	} {
		if c.value < 0 || c.value > c.max {
			return Invalid(c.field, "%d is not 0 (the default) or from 1 to %d", c.value, c.max)
		}
	}
	return nil
}

// Valid returns a CodeInvalid error that names field unless r names one thing and has only
// members that suit it.
func (r NetworkRule) Valid(field string) error {
	named := 0
	for _, given := range []bool{r.Address != "", r.Sandbox != nil, r.Profile != ""} {
		if given {
			named++
		}
	}
	if named != 1 {
		return Invalid(field, "a rule has exactly one of address, sandbox and profile")
	}
	if err := validPorts(field+".ports", r.Ports); err != nil {
		return err
	}
	switch r.Protocol {
	case "", NetworkTCP, NetworkUDP:
	default:
		return Invalid(field+".protocol", "%q is not tcp or udp", r.Protocol)
	}
	switch {
	case r.Profile != "":
		if r.Protocol != "" || len(r.Ports) > 0 || r.Private {
			return Invalid(field, "a profile has its own protocols, ports and private ranges")
		}
		return ValidProfileName(field+".profile", r.Profile)
	case r.Sandbox != nil:
		if r.Protocol == NetworkUDP || r.Private {
			return Invalid(field, "connections between sandboxes are TCP, and have no private ranges")
		}
		return r.Sandbox.valid(field + ".sandbox")
	}
	_, isAddress, err := parsePrefix(field+".address", r.Address)
	switch {
	case err != nil:
		return err
	case isAddress:
		return nil
	case r.Protocol == NetworkUDP:
		return Invalid(field, "UDP takes an IP address or a range, not the name %q", r.Address)
	}
	return validHostPattern(field+".address", r.Address)
}

// HostName is the name of the loopback address of the host. In a guest 127.0.0.1 is the guest itself.
const HostName = "host.ramet.internal"

// IsHostName reports whether a name stands for the loopback address of the host: HostName, or the one
// that Docker has for it.
func IsHostName(name string) bool {
	name = strings.TrimSuffix(name, ".")
	return strings.EqualFold(name, HostName) || strings.EqualFold(name, "host.docker.internal")
}

// Prefix returns the range of addresses that the rule names, if it does: a single address is the
// range of itself.
func (r NetworkRule) Prefix() (prefix netip.Prefix, ok bool) {
	prefix, ok, err := parsePrefix("", r.Address)
	return prefix, ok && err == nil
}

// parsePrefix returns the range that s is. It is an error if s looks like a range and is none.
func parsePrefix(field, s string) (prefix netip.Prefix, isAddress bool, err error) {
	if strings.Contains(s, "/") {
		prefix, err := netip.ParsePrefix(s)
		switch {
		case err != nil:
			return prefix, false, Invalid(field, "%.100q is not a range of addresses such as 10.1.0.0/16", s)
		case prefix != prefix.Masked():
			return prefix, false, Invalid(field, "%q has bits below its mask: the range is %s", s, prefix.Masked())
		}
		return prefix, true, nil
	}
	if IsHostName(s) {
		return netip.PrefixFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), 32), true, nil
	}
	addr, err := netip.ParseAddr(s)
	if err != nil {
		if strings.Contains(s, ":") {
			return prefix, false, Invalid(field, "%.100q is not an address; ports have a member of their own", s)
		}
		return prefix, false, nil // a name
	}
	if addr.Zone() != "" {
		return prefix, false, Invalid(field, "%.100q has a zone, which is a matter of one machine: leave it out", s)
	}
	return netip.PrefixFrom(addr, addr.BitLen()), true, nil
}

// validHostPattern checks the form of a name, or of *.NAME, or * for all names. Letters beyond
// ASCII are taken: they are encoded where the document is compiled.
func validHostPattern(field, s string) error {
	name := strings.TrimSuffix(strings.TrimPrefix(s, "*."), ".")
	switch {
	case s == "*":
		return nil
	case len(name) > maxHostName:
		return Invalid(field, "the name has %d bytes, more than %d", len(name), maxHostName)
	case strings.Contains(name, "*"):
		return Invalid(field, "%q has a * in it: only *.NAME, all names below NAME, and * are wildcards", s)
	case numericEnding().MatchString(name):
		return Invalid(field, "%q is neither a name nor an IP address: addresses are written as 192.0.2.1 or 2001:db8::1", s)
	}
	for label := range strings.SplitSeq(name, ".") {
		if !validHostLabel(label) {
			return Invalid(field, "%.300q is not a name, *.NAME, an IP address or a range such as 10.1.0.0/16", s)
		}
	}
	return nil
}

func validHostLabel(label string) bool {
	if label == "" || len(label) > maxHostLabel || !utf8.ValidString(label) || label[0] == '-' || label[len(label)-1] == '-' {
		return false
	}
	for _, c := range label {
		ascii := c < utf8.RuneSelf
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_'
		if ascii && !letter || !ascii && !unicode.In(c, unicode.L, unicode.M, unicode.N) {
			return false
		}
	}
	return true
}

func validPorts(field string, ports []PortRange) error {
	if len(ports) > maxPortRanges {
		return Invalid(field, "%d ranges are more than %d", len(ports), maxPortRanges)
	}
	for _, r := range ports {
		if r.First == 0 || r.Last < r.First {
			return Invalid(field, "%d-%d is not a range of ports from 1 to 65535", r.First, r.Last)
		}
	}
	return nil
}

func (s *SandboxSelector) valid(field string) error {
	switch {
	case (s.Name == "") == (len(s.Metadata) == 0):
		return Invalid(field, "a sandbox is named by its name or by metadata")
	case s.Name == AnySandbox:
		return nil
	case s.Name != "":
		return ValidName(field, s.Name)
	case len(s.Metadata) > maxSelectorLabels:
		return Invalid(field, "%d keys are more than %d", len(s.Metadata), maxSelectorLabels)
	}
	return ValidMetadata(field, s.Metadata)
}

// ValidProfileName returns a CodeInvalid error that names field unless s may be the name of a
// profile.
func ValidProfileName(field, s string) error {
	if len(s) > maxProfileName || !profileName().MatchString(s) || strings.Contains(s, "..") {
		return Invalid(field, "%.100q is not a profile: 1 to %d of a-z, 0-9, '.', '_' and '-', beginning and ending with a letter or digit", s, maxProfileName)
	}
	return nil
}

func (t *NetworkTreatment) valid(field string) error {
	switch {
	case t.Secret == nil && len(t.Headers) == 0 && !t.Restricts() && !t.Record:
		return Invalid(field, "it has none of secret, headers, methods, paths, hold and record")
	case len(t.Headers) > maxHeaders:
		return Invalid(field+".headers", "%d headers are more than %d", len(t.Headers), maxHeaders)
	case len(t.Methods) > maxMethods:
		return Invalid(field+".methods", "%d methods are more than %d", len(t.Methods), maxMethods)
	case len(t.Paths) > maxPaths:
		return Invalid(field+".paths", "%d paths are more than %d", len(t.Paths), maxPaths)
	case t.Hold != "" && t.Hold != HoldWrites:
		return Invalid(field+".hold", "%q is not writes", t.Hold)
	case t.HoldTimeoutMS < 0 || t.HoldTimeoutMS > maxLifeMS:
		return Invalid(field+".hold_timeout_ms", "%v is not 0 (never) or a time of up to ten years", inTime(t.HoldTimeoutMS))
	case t.HoldTimeoutMS != 0 && t.Hold == "":
		return Invalid(field+".hold_timeout_ms", "it has no meaning without hold")
	}
	for _, m := range t.Methods {
		if !httpToken().MatchString(m) || m != strings.ToUpper(m) {
			return Invalid(field+".methods", "%.100q is not a method such as GET", m)
		}
		if m == "CONNECT" {
			return Invalid(field+".methods", "CONNECT asks for a tunnel, in which nothing could be judged")
		}
	}
	for _, p := range t.Paths {
		if err := validPath(field+".paths", p); err != nil {
			return err
		}
	}
	if t.Secret != nil && len(t.Secret.Names()) == 0 {
		return Invalid(field+".secret.value", "it names no secret as ${NAME}: the value itself would be shown with the document")
	}
	seen := map[string]bool{}
	for i, h := range t.Inserted() {
		at := field + ".secret"
		if i > 0 || t.Secret == nil {
			at = field + ".headers"
		}
		if err := h.valid(at); err != nil {
			return err
		}
		if name := strings.ToLower(h.Header); seen[name] {
			return Invalid(at, "header %s is put in twice", h.Header)
		} else {
			seen[name] = true
		}
	}
	return nil
}

// validPath checks a path of a treatment. It has one spelling only, so that a request can be
// compared with it after its own path was cleaned.
func validPath(field, p string) error {
	segments := strings.Split(strings.TrimSuffix(p, "*"), "/")
	if len(p) > maxPath || !allowedPath().MatchString(p) || !utf8.ValidString(p) || strings.Contains(p, "//") ||
		slices.Contains(segments, ".") || slices.Contains(segments, "..") {
		return Invalid(field, "%.200q is not a path such as /v1/items or /v1/*: it begins with /, has no empty, . or .. segment, no escapes and no query, and a * at its end only", p)
	}
	return nil
}

func (s *NetworkSecret) valid(field string) error {
	switch {
	case !httpToken().MatchString(s.Header):
		return Invalid(field+".header", "%.100q is not the name of a header", s.Header)
	case slices.Contains(hopByHop, strings.ToLower(s.Header)):
		return Invalid(field+".header", "%s belongs to the connection, and is not set by a rule", s.Header)
	case len(s.Value) > maxHeaderValue || strings.ContainsFunc(s.Value, func(c rune) bool { return c < ' ' || c == 0x7f }):
		return Invalid(field+".value", "it is not one line of at most %d bytes", maxHeaderValue)
	case strings.Contains(secretName().ReplaceAllString(s.Value, ""), "${"):
		return Invalid(field+".value", "a secret is named as ${NAME}, with NAME of letters, digits and '_.-', beginning with a letter or '_'")
	}
	return nil
}

// Names returns the names of the secrets in the value, in their order.
func (s *NetworkSecret) Names() []string {
	var names []string
	for _, m := range secretName().FindAllString(s.Value, -1) {
		if name := m[2 : len(m)-1]; !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// Normal returns the document with its defaults written out: lists are not nil, and Default is
// set.
func (p NetworkPolicy) Normal() NetworkPolicy {
	if p.Default == "" {
		p.Default = NetworkDeny
	}
	p.Allow, p.Deny = append([]NetworkRule{}, p.Allow...), append([]NetworkRule{}, p.Deny...)
	return p
}

// ports returns the short form of ranges, as after the colon of a rule.
func portsText(ports []PortRange) string {
	var b strings.Builder
	for i, r := range ports {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(r.String())
	}
	return b.String()
}

// String returns the short form: "443", "8000-8099" or "*".
func (r PortRange) String() string {
	switch {
	case r == AllPorts:
		return "*"
	case r.First == r.Last:
		return strconv.Itoa(int(r.First))
	}
	return strconv.Itoa(int(r.First)) + "-" + strconv.Itoa(int(r.Last))
}
