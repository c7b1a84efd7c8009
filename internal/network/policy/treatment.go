package policy

import (
	"reflect"
	"slices"
	"strings"

	"ramet.dev/ramet/api"
)

// Treatment is what a document says about requests to a name, or to names below a domain.
type Treatment struct {
	Pattern string // as in the document
	api.NetworkTreatment
	kind kind
	name string
}

// treatments are those of one document.
type treatments struct {
	names    map[string]*Treatment
	domains  map[string]*Treatment
	all      []*Treatment
	restrict bool // at least one refuses or delays requests
}

func newTreatments() treatments {
	return treatments{names: map[string]*Treatment{}, domains: map[string]*Treatment{}}
}

// add returns false if there is a treatment of the same names.
func (ts *treatments) add(t *Treatment) bool {
	m := ts.names
	if t.kind == wildcard {
		m = ts.domains
	}
	if m[t.name] != nil {
		return false
	}
	m[t.name] = t
	ts.all = append(ts.all, t)
	ts.restrict = ts.restrict || t.Restricts()
	slices.SortFunc(ts.all, func(a, b *Treatment) int { return strings.Compare(a.Pattern, b.Pattern) })
	return true
}

// of returns the treatment of a name, the most specific one, or nil.
func (ts *treatments) of(name string) *Treatment {
	if len(ts.all) == 0 || name == "" {
		return nil
	}
	if t := ts.names[name]; t != nil {
		return t
	}
	for domain := parent(name); ; domain = parent(domain) {
		if t := ts.domains[domain]; t != nil || domain == "" {
			return t
		}
	}
}

// restricts reports whether requests to one of the names are refused or delayed.
func (ts *treatments) restricts(names []string) bool {
	if !ts.restrict {
		return false
	}
	for _, n := range names {
		if t := ts.of(n); t != nil && t.Restricts() {
			return true
		}
	}
	return false
}

// equal reports whether requests are treated alike. Both may be nil.
func (t *Treatment) equal(o *Treatment) bool {
	if t == nil || o == nil {
		return t == o
	}
	return t.Pattern == o.Pattern && reflect.DeepEqual(t.NetworkTreatment, o.NetworkTreatment)
}
