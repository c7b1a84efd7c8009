package auth

import (
	"context"
	"net/http"
	"strings"

	"ramet.dev/ramet/internal/server/rest/stream"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/httpwire"
	"ramet.dev/ramet/internal/server/front"
	"ramet.dev/ramet/internal/server/portproxy"
	"ramet.dev/ramet/internal/service"
	"ramet.dev/ramet/internal/service/access"
)

// Identify returns the caller of a connection, or false if the caller needs a token.
type Identify func(*http.Request) (access.Caller, bool)

var (
	ErrNoToken = api.Errorf(api.CodeUnknownUser, "no token was given: send one as Authorization: Bearer, or use the daemon's socket")
	errForeign = api.Errorf(api.CodeUnknownUser, "the bearer token is none of Ramet's, which begin with %s", httpwire.SecretPrefix)
	errInURL   = api.Errorf(api.CodeUnknownUser, "a token in a URL is taken for WebSockets and event streams only, of browsers: send it as Authorization: Bearer")
)

// TakeSecret removes the token of Ramet from a request and returns it, or "". Other tokens
// are for a server in a sandbox and stay: that server must never see Ramet's.
func TakeSecret(r *http.Request) (secret string, inURL bool) {
	if s := r.Header.Get(httpwire.TokenHeader); s != "" {
		secret = s
		r.Header.Del(httpwire.TokenHeader)
	}
	if found := portproxy.CutAuthorization(r.Header); secret == "" {
		secret = found
	}
	if found, rest := portproxy.CutToken(r.URL.RawQuery); found != "" {
		u := *r.URL
		u.RawQuery = rest
		r.URL, r.RequestURI = &u, u.RequestURI()
		if secret == "" {
			secret, inURL = found, true
		}
	}
	return secret, inURL
}

// Authenticator finds callers by their tokens and connections.
type Authenticator struct {
	svc   service.Tokens
	whois Identify
}

// New returns an authenticator that asks svc about tokens, and whois, which may
// be nil, about callers without one.
func New(svc service.Tokens, whois Identify) *Authenticator {
	return &Authenticator{svc, whois}
}

// Authenticate finds the caller of a request. secret is of TakeSecret. A secret from the URL
// counts only if mayBe is set.
func (a *Authenticator) Authenticate(r *http.Request, secret string, inURL, mayBe bool) (*service.Session, error) {
	if secret != "" {
		if inURL && !mayBe {
			return nil, errInURL
		}
		return a.svc.Authenticate(r.Context(), secret, inURL)
	}
	if a.whois != nil {
		if c, ok := a.whois(r); ok {
			return &service.Session{Caller: c}, nil
		}
	}
	return nil, ErrNoToken
}

// Admit returns r with its caller in the context, or an error if the caller may not use the
// route.
func (a *Authenticator) Admit(w http.ResponseWriter, r *http.Request, route string) (*http.Request, context.CancelFunc, error) {
	need := RightOf(route)
	if need.Open {
		front.Stranger(w, r)
		return r, func() {}, nil
	}
	secret, inURL := TakeSecret(r)
	s, err := a.Authenticate(r, secret, inURL, need.InURL && isStream(r))
	end := func() {}
	if err == nil {
		r, end = front.During(r, s)
	}
	// A request with a mangled token is not admitted as one of the owner.
	if err == nil && strings.HasPrefix(strings.ToLower(r.Header.Get("Authorization")), "bearer ") {
		err = errForeign
	}
	if err == nil {
		err = need.Allow(access.From(r.Context()))
	}
	if err != nil {
		front.Stranger(w, r)
	}
	return r, end, err
}

// isStream reports whether r is a request for which browsers cannot set headers.
func isStream(r *http.Request) bool {
	return r.Method == http.MethodGet && (strings.EqualFold(r.Header.Get("Upgrade"), "websocket") || stream.AcceptsEvents(r.Header.Get("Accept")))
}
