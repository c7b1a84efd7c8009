package auth

import (
	"net/http"
	"strings"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/service/access"
)

// Right is the right that a route demands of its caller. The service decides which things the
// caller sees, where it resolves references.
type Right struct {
	Scope api.Scope
	// operator is for routes that concern all tenants: they need an unbound caller of the
	// default tenant.
	operator bool
	// Open is for routes whose answers have nothing about tenants: they need no caller.
	Open bool
	// InURL is for WebSockets and event streams that browsers read, which cannot set
	// headers for them: there a token may stand in the URL.
	InURL bool
}

// exceptions are the routes that do not follow the rule of RightOf, as the document writes
// them.
var exceptions = map[string]Right{
	"GET /healthz":      {Open: true},
	"GET /readyz":       {Open: true},
	"GET /openapi.json": {Open: true},
	"GET /metrics":      {Scope: api.ScopeRead, operator: true},

	"GET /v1/events":                                {Scope: api.ScopeRead, InURL: true},
	"GET /v1/explorations/{id}/events":              {Scope: api.ScopeRead, InURL: true},
	"GET /v1/sandboxes/{id}/events":                 {Scope: api.ScopeRead, InURL: true},
	"GET /v1/sandboxes/{id}/files/watch":            {Scope: api.ScopeRead, InURL: true},
	"GET /v1/sandboxes/{id}/logs":                   {Scope: api.ScopeRead, InURL: true},
	"GET /v1/sandboxes/{id}/network/log":            {Scope: api.ScopeRead, InURL: true},
	"GET /v1/sandboxes/{id}/processes/{pid}/output": {Scope: api.ScopeRead, InURL: true},

	// A question, which is no change.
	"POST /v1/sandboxes/{id}/network/test": {Scope: api.ScopeRead},

	// Operations inside of a sandbox.
	"GET /v1/sandboxes/{id}/exec":                          {Scope: api.ScopeExec, InURL: true},
	"POST /v1/sandboxes/{id}/exec":                         {Scope: api.ScopeExec},
	"POST /v1/sandboxes/{id}/run-code":                     {Scope: api.ScopeExec},
	"POST /v1/sandboxes/{id}/contexts":                     {Scope: api.ScopeExec},
	"DELETE /v1/sandboxes/{id}/contexts/{context}":         {Scope: api.ScopeExec},
	"POST /v1/sandboxes/{id}/contexts/{context}/interrupt": {Scope: api.ScopeExec},
	"POST /v1/sandboxes/{id}/contexts/{context}/restart":   {Scope: api.ScopeExec},
	"POST /v1/sandboxes/{id}/processes":                    {Scope: api.ScopeExec},
	"DELETE /v1/sandboxes/{id}/processes/{pid}":            {Scope: api.ScopeExec},
	"GET /v1/sandboxes/{id}/processes/{pid}/attach":        {Scope: api.ScopeExec, InURL: true},
	"POST /v1/sandboxes/{id}/processes/{pid}/resize":       {Scope: api.ScopeExec},
	"POST /v1/sandboxes/{id}/processes/{pid}/signal":       {Scope: api.ScopeExec},
	"POST /v1/sandboxes/{id}/processes/{pid}/stdin":        {Scope: api.ScopeExec},
	"PUT /v1/sandboxes/{id}/files":                         {Scope: api.ScopeExec},
	"DELETE /v1/sandboxes/{id}/files":                      {Scope: api.ScopeExec},
	"PUT /v1/sandboxes/{id}/files/archive":                 {Scope: api.ScopeExec},
	"POST /v1/sandboxes/{id}/files/chmod":                  {Scope: api.ScopeExec},
	"POST /v1/sandboxes/{id}/files/mkdir":                  {Scope: api.ScopeExec},
	"POST /v1/sandboxes/{id}/files/move":                   {Scope: api.ScopeExec},
	"GET /v1/sandboxes/{id}/ports/{port}":                  {Scope: api.ScopeExec},
	"GET /v1/sandboxes/{id}/ports/{port}/{path}":           {Scope: api.ScopeExec},
	"POST /v1/sandboxes/{id}/port-sessions":                {Scope: api.ScopeExec},
	// Stacks of the kernel are for those who run it.
	"GET /v1/sandboxes/{id}/trace": {Scope: api.ScopeAdmin},
	// Memory has whatever the programs of a sandbox know.
	"GET /v1/snapshots/{id}/pack":          {Scope: api.ScopeAdmin},
	"GET /v1/snapshots/{id}/pack/contents": {Scope: api.ScopeAdmin},
	// Lists of tokens have no secrets, but readers must not learn who has which rights.
	"GET /v1/tokens":       {Scope: api.ScopeAdmin},
	"GET /v1/tenants":      {Scope: api.ScopeAdmin, operator: true},
	"GET /v1/audit":        {Scope: api.ScopeAdmin},
	"GET /v1/audit/verify": {Scope: api.ScopeAdmin, operator: true},
}

// ProxyRoute is the route whose right a request needs that is passed on to a sandbox, with
// any method.
const ProxyRoute = "GET /v1/sandboxes/{id}/ports/{port}/{path}"

// RightOf returns the right that a route, "METHOD /path", demands. A route that is not an
// exception demands the scope read if it only reads, else the scope admin.
func RightOf(route string) Right {
	if r, ok := exceptions[route]; ok {
		return r
	}
	switch method, _, _ := strings.Cut(route, " "); method {
	case http.MethodGet, http.MethodHead:
		return Right{Scope: api.ScopeRead}
	}
	return Right{Scope: api.ScopeAdmin}
}

// Allow refuses a caller that a route is not for.
func (r Right) Allow(c access.Caller) error {
	switch {
	case r.Open:
		return nil
	case r.operator && (c.Tenant != access.DefaultTenant || c.Bound()):
		return api.Errorf(api.CodeForbidden, "this concerns all tenants: it needs a token of tenant %s that is bound to nothing", access.DefaultTenant)
	case !c.Scope.Covers(r.Scope):
		return api.Errorf(api.CodeForbidden, "this needs a token of scope %s, and yours is of scope %s", r.Scope, c.Scope)
	}
	return nil
}
