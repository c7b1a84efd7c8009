package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Prefixes of rules in their short form.
const (
	sandboxPrefix = "sandbox="
	profilePrefix = "profile="
)

// ParseNetworkRule reads the short form of a rule, as documents and the command line have it:
//
//	[tcp:|udp:]ADDRESS[:PORTS]   ADDRESS is NAME, *.NAME, *, an IP address or a range;
//	                             IPv6 with ports is [ADDRESS]:PORTS
//	sandbox=NAME[:PORTS]         a sandbox of the same tenant, or * for all of them
//	profile=NAME                 the rules of a profile
//
// PORTS are numbers and ranges such as 80,8000-8099, or * for all. The error, of CodeInvalid,
// names field.
func ParseNetworkRule(field, s string) (NetworkRule, error) {
	r, err := parseRule(field, s)
	if err != nil {
		return NetworkRule{}, err
	}
	if err := r.Valid(field); err != nil {
		return NetworkRule{}, err
	}
	return r, nil
}

func parseRule(field, s string) (r NetworkRule, err error) {
	if name, ok := strings.CutPrefix(s, profilePrefix); ok {
		return NetworkRule{Profile: name}, nil
	}
	if rest, ok := strings.CutPrefix(s, sandboxPrefix); ok {
		name, ports, given := strings.Cut(rest, ":")
		r.Sandbox = &SandboxSelector{Name: name}
		if given {
			r.Ports, err = parsePorts(field, ports)
		}
		return r, err
	}
	rest := s
	for _, p := range []NetworkProtocol{NetworkTCP, NetworkUDP} {
		// A host may be called "udp" too: what follows its colon would be a number.
		if after, ok := strings.CutPrefix(s, string(p)+":"); ok && !isPorts(after) {
			r.Protocol, rest = p, after
		}
	}
	address, ports, given, err := cutPorts(field, rest)
	if err != nil {
		return r, err
	}
	r.Address = address
	if given {
		r.Ports, err = parsePorts(field, ports)
	}
	return r, err
}

// isPorts reports whether s has the form of ports and cannot be an address.
func isPorts(s string) bool {
	return s == "*" || s != "" && strings.Trim(s, "0123456789,-") == ""
}

// cutPorts cuts an address from the ports behind it.
func cutPorts(field, s string) (address, ports string, given bool, err error) {
	if inner, ok := strings.CutPrefix(s, "["); ok {
		address, after, ok := strings.Cut(inner, "]")
		ports, given = strings.CutPrefix(after, ":")
		if !ok || !strings.Contains(address, ":") || after != "" && !given {
			return "", "", false, Invalid(field, "%.200q is not an IPv6 address with ports, such as [2001:db8::1]:443", s)
		}
		return address, ports, given, nil
	}
	if strings.Count(s, ":") > 1 { // IPv6 without ports
		return s, "", false, nil
	}
	address, ports, given = strings.Cut(s, ":")
	return address, ports, given, nil
}

func parsePorts(field, s string) ([]PortRange, error) {
	var out []PortRange
	for part := range strings.SplitSeq(s, ",") {
		r, err := parsePortRange(field, part)
		if err != nil {
			return nil, err
		}
		if out = append(out, r); len(out) > maxPortRanges {
			return nil, Invalid(field, "there are more than %d ranges of ports", maxPortRanges)
		}
	}
	return out, nil
}

func parsePortRange(field, s string) (PortRange, error) {
	if s == "*" {
		return AllPorts, nil
	}
	first, last, isRange := strings.Cut(s, "-")
	if !isRange {
		last = first
	}
	a, errA := strconv.ParseUint(first, 10, 16)
	b, errB := strconv.ParseUint(last, 10, 16)
	if errA != nil || errB != nil || a == 0 || b < a || first[0] == '+' {
		return PortRange{}, Invalid(field, "%.100q is not a port from 1 to 65535, a range such as 8000-8099, or *", s)
	}
	return PortRange{First: uint16(a), Last: uint16(b)}, nil
}

// String returns the short form of the rule where it has one, and else its JSON.
func (r NetworkRule) String() string {
	if s, ok := r.short(); ok {
		return s
	}
	b, err := json.Marshal(r)
	if err != nil {
		return "invalid rule"
	}
	return string(b)
}

// Describe returns the rule for people: as String does, but with a word in place of JSON where all that
// the short form cannot say is that the name may stand for a private address.
func (r NetworkRule) Describe() string {
	if !r.Private || r.Address == "" {
		return r.String()
	}
	r.Private = false
	return r.String() + " (private)"
}

// short returns the short form, which cannot say private or metadata.
func (r NetworkRule) short() (text string, ok bool) {
	ports := portsText(r.Ports)
	if ports != "" {
		ports = ":" + ports
	}
	switch {
	case r.Private:
		return "", false
	case r.Profile != "":
		return profilePrefix + r.Profile, true
	case r.Sandbox != nil:
		return sandboxPrefix + r.Sandbox.Name + ports, len(r.Sandbox.Metadata) == 0
	case ports != "" && strings.Contains(r.Address, ":"):
		text = "[" + r.Address + "]" + ports
	default:
		text = r.Address + ports
	}
	if r.Protocol != "" {
		text = string(r.Protocol) + ":" + text
	}
	return text, true
}

// MarshalJSON writes the short form of an address where there is one, and else an object.
func (r NetworkRule) MarshalJSON() ([]byte, error) {
	if text, ok := r.short(); ok && r.Address != "" {
		return json.Marshal(text)
	}
	type object NetworkRule
	return marshal(object(r))
}

// UnmarshalJSON reads the short form or an object.
func (r *NetworkRule) UnmarshalJSON(b []byte) error {
	var text string
	if json.Unmarshal(b, &text) == nil && !isNull(b) {
		rule, err := ParseNetworkRule("network", text)
		if err != nil {
			return err
		}
		*r = rule
		return nil
	}
	type object NetworkRule
	var o object
	if err := strict(b, &o); err != nil {
		return fmt.Errorf("a rule is a string such as %q or an object with address, sandbox or profile: %w", "example.org:443", err)
	}
	*r = NetworkRule(o)
	return nil
}

// MarshalJSON writes a number, or a string for more than one port.
func (r PortRange) MarshalJSON() ([]byte, error) {
	if r.First == r.Last {
		return strconv.AppendUint(nil, uint64(r.First), 10), nil
	}
	return json.Marshal(r.String())
}

// UnmarshalJSON reads a number, or a string such as "8000-8099".
func (r *PortRange) UnmarshalJSON(b []byte) error {
	text := string(b)
	if bytes.HasPrefix(b, []byte(`"`)) {
		if err := json.Unmarshal(b, &text); err != nil {
			return err
		}
	}
	parsed, err := parsePortRange("ports", text)
	if err != nil {
		return err
	}
	*r = parsed
	return nil
}

// MarshalJSON writes the name, or the metadata as an object.
func (s SandboxSelector) MarshalJSON() ([]byte, error) {
	if s.Name != "" {
		return json.Marshal(s.Name)
	}
	return marshal(s.Metadata)
}

// UnmarshalJSON reads a name, or an object of metadata.
func (s *SandboxSelector) UnmarshalJSON(b []byte) error {
	*s = SandboxSelector{}
	if json.Unmarshal(b, &s.Name) == nil && !isNull(b) {
		return nil
	}
	if err := json.Unmarshal(b, &s.Metadata); err != nil || isNull(b) {
		return errors.New("sandbox is a name or an object of metadata with values that are strings")
	}
	return nil
}

// DecodeNetworkPolicy reads a document from JSON. Unknown members are errors of CodeInvalid.
func DecodeNetworkPolicy(b []byte) (*NetworkPolicy, error) {
	p := &NetworkPolicy{}
	if err := strict(b, p); err != nil {
		var known *Error
		if errors.As(err, &known) {
			return nil, known
		}
		return nil, Invalid("network", "%v", err)
	}
	if err := p.Valid(); err != nil {
		return nil, err
	}
	return p, nil
}

// strict decodes one JSON value that must have no members that v has not.
func strict(b []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is more behind the end of the document")
	}
	return nil
}

func isNull(b []byte) bool { return bytes.Equal(bytes.TrimSpace(b), []byte("null")) }
