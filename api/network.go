package api

import (
	"maps"
	"slices"
	"time"
)

// NetworkDefault is the verdict about a connection that no rule of a document names.
type NetworkDefault string

// The defaults. NetworkAllow covers names and public addresses over TCP; private ranges, other
// sandboxes and UDP always need a rule.
const (
	NetworkDeny  NetworkDefault = "deny"
	NetworkAllow NetworkDefault = "allow"
)

// NetworkPolicy is the document that says what a sandbox may reach. The most specific rule
// counts: a single name or address before a wildcard or a range, a longer wildcard or range before
// a shorter one; between equally specific rules denial wins.
type NetworkPolicy struct {
	Default NetworkDefault `json:"default,omitempty" enum:"deny,allow" doc:"verdict about connections that no rule names; deny if absent"`
	Allow   []NetworkRule  `json:"allow,omitzero" required:"false" maxItems:"1024" doc:"rules that allow connections"`
	Deny    []NetworkRule  `json:"deny,omitzero" required:"false" maxItems:"1024" doc:"rules that deny connections"`
	// Accept is the inbound half of connections between sandboxes: one exists if its source
	// allows the target and its target accepts the source.
	Accept []NetworkRule               `json:"accept,omitempty" maxItems:"1024" doc:"sandboxes that may connect to this one; their own documents must allow it too"`
	Rules  map[string]NetworkTreatment `json:"rules,omitempty" doc:"treatment of HTTP requests, by name or wildcard; an entry for a single name allows that name at port 443"`
	Limits NetworkLimits               `json:"limits" required:"false" doc:"bounds on connections, rate and name look-ups"`
}

// NetworkRequest asks for a network: that of a profile, with the rules of the request added. With
// neither it asks for none.
type NetworkRequest struct {
	Profile string `json:"profile,omitempty" doc:"profile that the document begins with: none, open, host-registries, or one of the daemon's"`
	// ReleaseHold ends a hold, which every other change of the network keeps.
	ReleaseHold bool `json:"release_hold,omitempty" doc:"end the hold of a sandbox that a fork or restore with hold made; requests that wait already keep waiting"`
	NetworkPolicy
}

// Valid returns a CodeInvalid error unless r is nil or has the form of a request. Whether its profile
// exists is decided where it is resolved.
func (r *NetworkRequest) Valid() error {
	if r == nil {
		return nil
	}
	if r.Profile != "" {
		if err := ValidProfileName("network.profile", r.Profile); err != nil {
			return err
		}
	}
	return r.NetworkPolicy.Valid()
}

// On returns the document that is asked for, if profile is what the request begins with.
func (r *NetworkRequest) On(profile *NetworkPolicy) *NetworkPolicy {
	p := *profile
	if r.Default != "" {
		p.Default = r.Default
	}
	p.Allow, p.Deny, p.Accept = slices.Concat(p.Allow, r.Allow), slices.Concat(p.Deny, r.Deny), slices.Concat(p.Accept, r.Accept)
	if len(r.Rules) > 0 {
		p.Rules = maps.Clone(p.Rules)
		if p.Rules == nil {
			p.Rules = map[string]NetworkTreatment{}
		}
		maps.Copy(p.Rules, r.Rules)
	}
	for _, l := range []struct{ to, from *int }{
		{&p.Limits.Connections, &r.Limits.Connections}, {&p.Limits.RateMbit, &r.Limits.RateMbit}, {&p.Limits.DNSPerS, &r.Limits.DNSPerS},
	} {
		if *l.from != 0 {
			*l.to = *l.from
		}
	}
	return &p
}

// Closed reports whether the document allows nothing in either direction: a sandbox with it has no
// network at all.
func (p *NetworkPolicy) Closed() bool {
	return p.Default != NetworkAllow && len(p.Allow) == 0 && len(p.Accept) == 0 && len(p.Rules) == 0
}

// SandboxNetwork is the network of a sandbox.
type SandboxNetwork struct {
	NetworkPolicy
	Hold     NetworkHold              `json:"hold,omitempty" enum:"writes" doc:"held: requests that wait, whatever the document says"`
	Profiles map[string]NetworkPolicy `json:"profiles,omitempty" doc:"the profiles that the document names, as they were when it was set"`
	Bounds   []NetworkBound           `json:"bounds,omitempty" doc:"documents that have to allow what this one allows"`
}

// NetworkBound is a document that bounds those of sandboxes.
type NetworkBound struct {
	Of     string        `json:"of" doc:"whose bound it is: the daemon, or tenant NAME"`
	Policy NetworkPolicy `json:"policy" doc:"the document"`
}

// NetworkProfile is a document that has a name.
type NetworkProfile struct {
	Name   string         `json:"name" doc:"name of the profile"`
	Source string         `json:"source" enum:"built-in,derived,file" doc:"built-in; derived from what this host is set up with; or a file of the daemon's configuration"`
	Policy *NetworkPolicy `json:"policy,omitempty" doc:"the document; absent if it cannot be made"`
	Error  string         `json:"error,omitempty" doc:"why there is no document"`
}

// NetworkTest asks whether a connection would be allowed.
type NetworkTest struct {
	Host     string `json:"host" minLength:"1" maxLength:"253" doc:"a name or an IP address"`
	Port     uint16 `json:"port,omitempty" doc:"port; absent with echo"`
	Protocol string `json:"protocol,omitempty" enum:"tcp,udp,echo" doc:"tcp if absent"`
}

// NetworkLimits bounds the use of the network. Zero is the default of the daemon.
type NetworkLimits struct {
	Connections int `json:"connections,omitempty" minimum:"0" maximum:"65536" doc:"connections at a time; 0 is the default, 1024"`
	RateMbit    int `json:"rate_mbit,omitempty" minimum:"0" maximum:"1000000" doc:"megabits per second in each direction; 0 is no limit"`
	DNSPerS     int `json:"dns_per_s,omitempty" minimum:"0" maximum:"10000" doc:"name look-ups per second; 0 is the default, 100"`
}

// NetworkProtocol is the transport of a rule.
type NetworkProtocol string

// The transports of rules. Echo requests (ping) follow the rules of both.
const (
	NetworkTCP NetworkProtocol = "tcp"
	NetworkUDP NetworkProtocol = "udp"
)

// NetworkRule names what is allowed or denied: an address, other sandboxes, or the rules of a
// profile. In JSON and YAML it is an object, or a string in the form of ParseNetworkRule.
type NetworkRule struct {
	Address  string           `json:"address,omitempty" doc:"a name, *.NAME for all names below it, an IP address, or a range of them (CIDR); host.ramet.internal is the loopback address of the host"`
	Sandbox  *SandboxSelector `json:"sandbox,omitempty" doc:"sandboxes of the same tenant"`
	Profile  string           `json:"profile,omitempty" doc:"name of a profile, whose rules are taken"`
	Protocol NetworkProtocol  `json:"protocol,omitempty" enum:"tcp,udp" doc:"transport: tcp if absent, and both in a denial; udp takes an IP address or a range"`
	Ports    []PortRange      `json:"ports,omitempty" maxItems:"64" doc:"ports; if absent, 443 and 80 of an allowed name, and else all"`
	Private  bool             `json:"private,omitempty" doc:"the address, or the addresses that the name stands for, may be of private ranges"`
}

// PortRange is a range of ports, both ends included. In JSON and YAML it is a number, or a
// string such as "8000-8099", or "*" for all ports.
type PortRange struct {
	First, Last uint16
}

// AllPorts is the range of all ports.
var AllPorts = PortRange{First: 1, Last: 65535}

// Has reports whether port is in the range.
func (r PortRange) Has(port uint16) bool { return r.First <= port && port <= r.Last }

// SandboxSelector names sandboxes by their name or by their metadata. In JSON and YAML it is a
// string, the name or "*" for all sandboxes, or an object, the metadata.
type SandboxSelector struct {
	Name     string
	Metadata map[string]string
}

// AnySandbox is the name in a selector of all sandboxes of the tenant.
const AnySandbox = "*"

// NetworkTreatment says what happens to the HTTP requests to a name. The gateway ends their TLS
// for that.
type NetworkTreatment struct {
	Secret *NetworkSecret `json:"secret,omitempty" doc:"a header that is put into requests outside of the sandbox"`
	// Headers are more of them. What of them names no secret is shown with the document.
	Headers []NetworkSecret `json:"headers,omitempty" maxItems:"32" doc:"headers that are put into requests outside of the sandbox; their values may name secrets, and none needs to"`
	Methods []string        `json:"methods,omitempty" maxItems:"32" doc:"methods that are allowed; all if there are none"`
	Paths   []string        `json:"paths,omitempty" maxItems:"256" doc:"paths that are allowed; a * at the end stands for any rest; all if there are none"`
	Hold    NetworkHold     `json:"hold,omitempty" enum:"writes" doc:"requests that wait for a decision: writes are all but GET, HEAD and OPTIONS"`
	// HoldTimeoutMS bounds the wait of the guest.
	HoldTimeoutMS int64 `json:"hold_timeout_ms,omitempty" minimum:"0" maximum:"315360000000" doc:"after so long the guest is answered 425, and the request still waits; 0 is never"`
	Record        bool  `json:"record,omitempty" doc:"answers are recorded, and siblings that ask the same get them"`
}

// SecretNames returns the names of the secrets that are put into requests, in their order.
func (t *NetworkTreatment) SecretNames() []string {
	var names []string
	for _, h := range t.Inserted() {
		for _, name := range h.Names() {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

// Inserted returns all headers that are put into requests.
func (t *NetworkTreatment) Inserted() []NetworkSecret {
	if t.Secret == nil {
		return t.Headers
	}
	return append([]NetworkSecret{*t.Secret}, t.Headers...)
}

// Restricts reports whether the treatment refuses or delays requests.
func (t *NetworkTreatment) Restricts() bool {
	return len(t.Methods) > 0 || len(t.Paths) > 0 || t.Hold != ""
}

// NetworkHold says which requests wait for a decision.
type NetworkHold string

// HoldWrites holds all requests but GET, HEAD and OPTIONS.
const HoldWrites NetworkHold = "writes"

// NetworkSecret is a header with a secret in it. The document has the names of secrets, never
// their values.
type NetworkSecret struct {
	Header string `json:"header" doc:"name of the header"`
	Value  string `json:"value" doc:"its value, in which ${NAME} stands for the secret of that name"`
	Plain  bool   `json:"plain,omitempty" doc:"also into requests without TLS"`
}

// NetworkVerdict is what became of a connection.
type NetworkVerdict string

// The verdicts.
const (
	NetworkAllowed NetworkVerdict = "allowed"
	NetworkDenied  NetworkVerdict = "denied"
	NetworkHeld    NetworkVerdict = "held"
)

// NetworkLogEntry is a decision about one flow.
type NetworkLogEntry struct {
	At         time.Time      `json:"at" doc:"when it was decided"`
	Sandbox    string         `json:"sandbox" doc:"id of the sandbox"`
	Flow       uint64         `json:"flow" doc:"number of the flow in its sandbox"`
	Name       string         `json:"name,omitempty" doc:"name that the guest had asked for"`
	Address    string         `json:"address,omitempty" doc:"IP address; absent for a name look-up"`
	Port       uint16         `json:"port,omitempty" doc:"port; absent for name look-ups and echo requests"`
	Protocol   string         `json:"protocol" enum:"tcp,udp,echo,dns,http" doc:"tcp, udp, echo, dns, or http for a request on a flow of tcp"`
	Verdict    NetworkVerdict `json:"verdict" enum:"allowed,denied,held" doc:"what became of it"`
	Rule       string         `json:"rule" doc:"rule that decided"`
	WouldAllow string         `json:"would_allow,omitempty" doc:"rule that would have allowed it, if it was denied"`
	BytesIn    int64          `json:"bytes_in" doc:"bytes to the sandbox"`
	BytesOut   int64          `json:"bytes_out" doc:"bytes from the sandbox"`
	DurationMS float64        `json:"duration_ms,omitempty" doc:"how long the flow was open, or the request took, once it has ended"`
	Method     string         `json:"method,omitempty" doc:"method of a request"`
	Path       string         `json:"path,omitempty" doc:"path of a request, without its query"`
	Status     int            `json:"status,omitempty" doc:"status that a request was answered with"`
	Secrets    []string       `json:"secrets,omitempty" doc:"names of the secrets that were put into a request"`
	Held       string         `json:"held,omitempty" doc:"id of the held request"`
	Lost       uint64         `json:"lost,omitempty" doc:"how many decisions about the sandbox before this one were not told, because the reader was slow"`
}

// IsEnd reports whether e tells of the end of a flow, of whose decision there is a line before.
func (e *NetworkLogEntry) IsEnd() bool {
	return e.Verdict == NetworkAllowed && e.DurationMS > 0 && e.Protocol != "http"
}

// NetworkTestResult says whether a connection would be allowed.
type NetworkTestResult struct {
	Allowed    bool   `json:"allowed" doc:"it would be allowed"`
	Rule       string `json:"rule" doc:"rule that decides"`
	WouldAllow string `json:"would_allow,omitempty" doc:"rule that would allow it, if it is denied"`
}
