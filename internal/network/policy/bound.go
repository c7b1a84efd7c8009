package policy

import (
	"fmt"

	"ramet.dev/ramet/api"
)

// Bound is a document that has to allow what a policy allows. It has no treatments.
type Bound struct {
	Of       string                       `json:"of"` // as decisions tell it: "the daemon", "tenant acme"
	Document api.NetworkPolicy            `json:"document"`
	Profiles map[string]api.NetworkPolicy `json:"profiles,omitempty"` // those that Document names
}

// Bounds are compiled bounds. They are immutable, and many policies may be under the same ones. Nil
// bounds nothing.
type Bounds struct {
	documents []*document
	limits    api.NetworkLimits
}

// CompileBounds makes bounds, which all have to allow what a policy allows.
func CompileBounds(list ...Bound) (*Bounds, error) {
	if len(list) > maxBounds {
		return nil, api.Invalid("network", "there are %d bounds, more than %d", len(list), maxBounds)
	}
	out := &Bounds{}
	for i := range list {
		b := &list[i]
		d, err := compileDocument(b.Of, &b.Document, b.Profiles)
		if err != nil {
			return nil, fmt.Errorf("bound of %s: %w", b.Of, err)
		}
		if len(d.treated.all) > 0 {
			return nil, fmt.Errorf("bound of %s: %w", b.Of, api.Invalid("network.rules", "a bound has no treatments of requests"))
		}
		out.documents, out.limits = append(out.documents, d), smaller(out.limits, d.limits)
	}
	return out, nil
}

// Under returns the policy that allows what p allows and the bounds do.
func (p *Policy) Under(b *Bounds) *Policy {
	if b == nil || len(b.documents) == 0 {
		return p
	}
	bounded := *p
	bounded.documents = append(p.documents[:len(p.documents):len(p.documents)], b.documents...)
	bounded.limits = smaller(p.limits, b.limits)
	return &bounded
}
