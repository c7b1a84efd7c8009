package rest

import (
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/httpwire"
	"ramet.dev/ramet/internal/server/portproxy"
	"ramet.dev/ramet/internal/service/access"
)

// right is what a route demands of its caller. Which things the caller sees is for
// the service to say, where it resolves references.
type right struct {
	scope api.Scope
	// operator is for what concerns all tenants: unbound callers of the default one.
	operator bool
	// open is for those that say nothing about anybody.
	open bool
	// inURL is for WebSockets and event streams that browsers read, which cannot set
	// headers for them: there a token may stand in the URL.
	inURL bool
}

// exceptions are the routes that demand something else than the rule says. They
// are written as the document writes them.
var exceptions = map[string]right{
	"GET /healthz":      {open: true},
	"GET /readyz":       {open: true},
	"GET /openapi.json": {open: true},
	"GET /metrics":      {scope: api.ScopeRead, operator: true},

	"GET /v1/events":                                {scope: api.ScopeRead, inURL: true},
	"GET /v1/sandboxes/{id}/events":                 {scope: api.ScopeRead, inURL: true},
	"GET /v1/sandboxes/{id}/files/watch":            {scope: api.ScopeRead, inURL: true},
	"GET /v1/sandboxes/{id}/logs":                   {scope: api.ScopeRead, inURL: true},
	"GET /v1/sandboxes/{id}/processes/{pid}/output": {scope: api.ScopeRead, inURL: true},

	// Doing something in a sandbox.
	"GET /v1/sandboxes/{id}/exec":                          {scope: api.ScopeExec, inURL: true},
	"POST /v1/sandboxes/{id}/exec":                         {scope: api.ScopeExec},
	"POST /v1/sandboxes/{id}/run-code":                     {scope: api.ScopeExec},
	"POST /v1/sandboxes/{id}/contexts":                     {scope: api.ScopeExec},
	"DELETE /v1/sandboxes/{id}/contexts/{context}":         {scope: api.ScopeExec},
	"POST /v1/sandboxes/{id}/contexts/{context}/interrupt": {scope: api.ScopeExec},
	"POST /v1/sandboxes/{id}/contexts/{context}/restart":   {scope: api.ScopeExec},
	"POST /v1/sandboxes/{id}/processes":                    {scope: api.ScopeExec},
	"DELETE /v1/sandboxes/{id}/processes/{pid}":            {scope: api.ScopeExec},
	"GET /v1/sandboxes/{id}/processes/{pid}/attach":        {scope: api.ScopeExec, inURL: true},
	"POST /v1/sandboxes/{id}/processes/{pid}/resize":       {scope: api.ScopeExec},
	"POST /v1/sandboxes/{id}/processes/{pid}/signal":       {scope: api.ScopeExec},
	"POST /v1/sandboxes/{id}/processes/{pid}/stdin":        {scope: api.ScopeExec},
	"PUT /v1/sandboxes/{id}/files":                         {scope: api.ScopeExec},
	"DELETE /v1/sandboxes/{id}/files":                      {scope: api.ScopeExec},
	"PUT /v1/sandboxes/{id}/files/archive":                 {scope: api.ScopeExec},
	"POST /v1/sandboxes/{id}/files/chmod":                  {scope: api.ScopeExec},
	"POST /v1/sandboxes/{id}/files/mkdir":                  {scope: api.ScopeExec},
	"POST /v1/sandboxes/{id}/files/move":                   {scope: api.ScopeExec},
	"GET /v1/sandboxes/{id}/ports/{port}":                  {scope: api.ScopeExec},
	"GET /v1/sandboxes/{id}/ports/{port}/{path}":           {scope: api.ScopeExec},
	"POST /v1/sandboxes/{id}/port-sessions":                {scope: api.ScopeExec},
	// Secrets of others are not told, but who has which rights is no reader's business.
	"GET /v1/tokens":       {scope: api.ScopeAdmin},
	"GET /v1/tenants":      {scope: api.ScopeAdmin, operator: true},
	"GET /v1/audit":        {scope: api.ScopeAdmin},
	"GET /v1/audit/verify": {scope: api.ScopeAdmin, operator: true},
}

// proxyRoute is what passing a request on to a sandbox counts as, whatever its
// method.
const proxyRoute = "GET /v1/sandboxes/{id}/ports/{port}/{path}"

// rightOf returns what a route demands: "METHOD /path". A route that nobody thought
// of demands most unless it only looks.
func rightOf(route string) right {
	route = documentedRoute(route)
	if r, ok := exceptions[route]; ok {
		return r
	}
	switch method, _, _ := strings.Cut(route, " "); method {
	case http.MethodGet, http.MethodHead:
		return right{scope: api.ScopeRead}
	}
	return right{scope: api.ScopeAdmin}
}

// allow refuses a caller that a route is not for.
func (r right) allow(c access.Caller) error {
	switch {
	case r.open:
		return nil
	case r.operator && (c.Tenant != access.DefaultTenant || c.Bound()):
		return api.Errorf(api.CodeForbidden, "this concerns all tenants: it needs a token of tenant %s that is bound to nothing", access.DefaultTenant)
	case !c.Scope.Covers(r.scope):
		return api.Errorf(api.CodeForbidden, "this needs a token of scope %s, and yours is of scope %s", r.scope, c.Scope)
	}
	return nil
}

// How the document calls the ways to authenticate.
const (
	tokenScheme   = "token"
	headerScheme  = "token-header"
	browserScheme = "browser-token"
)

func securitySchemes() map[string]*huma.SecurityScheme {
	return map[string]*huma.SecurityScheme{
		tokenScheme: {Type: "http", Scheme: "bearer",
			Description: "A secret that `ramet token create` told. The owner of the daemon needs none at its socket. Operations list the scope that they need: read, exec or admin."},
		headerScheme: {Type: "apiKey", In: "header", Name: httpwire.TokenHeader,
			Description: "The same secret, where Authorization is for a server in a sandbox."},
		browserScheme: {Type: "apiKey", In: "query", Name: portproxy.TokenParameter,
			Description: "The secret of a token that was made for browsers, which cannot set headers of WebSockets and event streams."},
	}
}

// security documents what a route demands.
func security(method, path string) []map[string][]string {
	r := rightOf(method + " " + path)
	if r.open {
		return []map[string][]string{}
	}
	return []map[string][]string{{tokenScheme: {string(r.scope)}}, {headerScheme: {string(r.scope)}}}
}

// documentBrowser adds the way in which browsers authenticate to an operation that answers
// with a WebSocket or a stream of events.
func documentBrowser(op *huma.Operation) {
	if rightOf(op.Method + " " + op.Path).inURL {
		op.Security = append(op.Security, map[string][]string{browserScheme: op.Security[0][tokenScheme]})
	}
}
