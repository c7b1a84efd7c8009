package route

import (
	"github.com/danielgtaylor/huma/v2"
	"ramet.dev/ramet/internal/server/rest/auth"

	"ramet.dev/ramet/internal/httpwire"
	"ramet.dev/ramet/internal/server/portproxy"
)

// The names of the ways to authenticate in the document.
const (
	TokenScheme   = "token"
	headerScheme  = "token-header"
	BrowserScheme = "browser-token"
)

func securitySchemes() map[string]*huma.SecurityScheme {
	return map[string]*huma.SecurityScheme{
		TokenScheme: {Type: "http", Scheme: "bearer",
			Description: "A secret of `ramet token create`. The owner of the daemon needs none at its socket. Operations list the scope that they need: read, exec or admin."},
		headerScheme: {Type: "apiKey", In: "header", Name: httpwire.TokenHeader,
			Description: "The same secret, where Authorization is for a server in a sandbox."},
		BrowserScheme: {Type: "apiKey", In: "query", Name: portproxy.TokenParameter,
			Description: "The secret of a token that was made for browsers, which cannot set headers of WebSockets and event streams."},
	}
}

// security documents the right that a route demands.
func security(method, path string) []map[string][]string {
	r := auth.RightOf(method + " " + path)
	if r.Open {
		return []map[string][]string{}
	}
	return []map[string][]string{{TokenScheme: {string(r.Scope)}}, {headerScheme: {string(r.Scope)}}}
}
