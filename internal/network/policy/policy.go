package policy

import (
	"net/netip"

	"ramet.dev/ramet/api"
)

// Spec is all that a policy is compiled from. It is complete in itself, so that it can be stored
// with a sandbox and sent to the process that enforces it: later changes of a profile do not reach
// it.
type Spec struct {
	Document api.NetworkPolicy            `json:"document"`
	Profiles map[string]api.NetworkPolicy `json:"profiles,omitempty"` // those that Document names
	Bounds   []Bound                      `json:"bounds,omitempty"`
}

// Defaults of limits that a document leaves open.
const (
	DefaultConnections = 1024
	DefaultDNSPerS     = 100
)

// Policy judges connections. It is immutable; one that is replaced is compiled anew.
type Policy struct {
	documents []*document       // the sandbox's own first, then the bounds
	limits    api.NetworkLimits // 0 where no document says one
	own       func(netip.Addr) bool
}

// document is one compiled document.
type document struct {
	*table
	bound   string // whose bound it is; "" is the sandbox's own
	allowed peers
	accepts peers
	treated treatments
	// namesMatter is set if the document denies names or restricts requests to them, so that its
	// default allows no address without a name.
	namesMatter bool
	// hostMatters is set if a name that the first bytes show could change the decision.
	hostMatters bool
	// probes are ports of which each set of equal decisions has one.
	probes []uint16
	limits api.NetworkLimits // 0 where neither the document nor a profile of it says one
}

// Limits returns the limits of the policy, the smallest of all documents that say one. A rate of 0 is
// no limit.
func (p *Policy) Limits() api.NetworkLimits { return effective(p.limits) }

// TreatsRequests reports whether the policy has treatments, for which TLS is ended outside of the
// sandbox.
func (p *Policy) TreatsRequests() bool { return len(p.documents[0].treated.all) > 0 }

// TreatmentOf returns the treatment of requests to a name, or nil.
func (p *Policy) TreatmentOf(name string) *Treatment { return p.documents[0].treated.of(name) }

// Treatments returns the treatments of the policy, in the order of their names.
func (p *Policy) Treatments() []*Treatment { return p.documents[0].treated.all }

// smaller returns the limits that hold if both do.
func smaller(a, b api.NetworkLimits) api.NetworkLimits {
	return api.NetworkLimits{
		Connections: smallerOf(a.Connections, b.Connections),
		DNSPerS:     smallerOf(a.DNSPerS, b.DNSPerS),
		RateMbit:    smallerOf(a.RateMbit, b.RateMbit),
	}
}

// smallerOf returns the smaller limit, of which 0 is none.
func smallerOf(a, b int) int {
	if a == 0 || b == 0 {
		return a + b
	}
	return min(a, b)
}

// effective returns limits with their defaults.
func effective(l api.NetworkLimits) api.NetworkLimits {
	if l.Connections == 0 {
		l.Connections = DefaultConnections
	}
	if l.DNSPerS == 0 {
		l.DNSPerS = DefaultDNSPerS
	}
	return l
}
