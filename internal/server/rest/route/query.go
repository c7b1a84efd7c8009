package route

import (
	"net/url"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"ramet.dev/ramet/api"
)

// MayBeEmpty are parameters of the query that may have no value. A client that reads a list to
// its end asks for the first page with an empty token, and paths have an error of their own.
var MayBeEmpty = []string{"page_token", "path"}

// CheckQuery refuses a query of which the route would ignore a part: a
// parameter that is unknown, has no value, or has two where one is possible. The
// framework takes a parameter without a value for an absent one.
func (r *Router) CheckQuery(route, rawQuery string) error {
	op := r.Operations[documentedRoute(route)]
	if rawQuery == "" || op == nil || !strings.HasPrefix(op.Path, "/v1/") { // probes may have any
		return nil
	}
	query, err := url.ParseQuery(rawQuery)
	if err != nil {
		return api.Invalid("query", "the query of the URL cannot be read: %w", err)
	}
	for name, values := range query {
		i := slices.IndexFunc(op.Parameters, func(p *huma.Param) bool { return p.In == "query" && p.Name == name })
		switch {
		case i < 0:
			return api.Invalid(name, "there is no query parameter %.100q here%s", name, knownParameters(op))
		case len(values) > 1 && op.Parameters[i].Schema.Type != huma.TypeArray:
			return api.Invalid(name, "the query parameter %s is given %d times: it has one value", name, len(values))
		case slices.Contains(values, "") && !slices.Contains(MayBeEmpty, name):
			return api.Invalid(name, "the query parameter %s has no value: give one, or leave it out", name)
		}
	}
	return nil
}

// knownParameters names the parameters that the query of an operation may have.
func knownParameters(op *huma.Operation) string {
	var names []string
	for _, p := range op.Parameters {
		if p.In == "query" {
			names = append(names, p.Name)
		}
	}
	if len(names) == 0 {
		return ": there are none"
	}
	return ": there are " + strings.Join(names, ", ")
}
