package httpapi

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"time"

	"ramet.dev/ramet/internal/access"
	"ramet.dev/ramet/internal/httpwire"
	"ramet.dev/ramet/internal/sandbox"
)

// Identify says who has connected, or false if only a token can say.
type Identify func(*http.Request) (access.Caller, bool)

// tokenParameter is where a browser puts a token that cannot set headers.
const tokenParameter = "access_token"

// strangerTimeout is how long the rest of a request may take that says nothing to us.
const strangerTimeout = 2 * time.Second

var (
	errNoToken = sandbox.Errorf(sandbox.CodeUnknownUser, "who asks? Send a token as Authorization: Bearer, or use the daemon's socket")
	errForeign = sandbox.Errorf(sandbox.CodeUnknownUser, "the bearer token is none of Ramet's, which begin with %s", httpwire.SecretPrefix)
	errRevoked = sandbox.Errorf(sandbox.CodeUnknownUser, "the token is no longer valid")
)

// takeSecret removes our token from a request and returns it, or "". What is not
// ours is meant for a server in a sandbox and stays: that must never see ours.
func takeSecret(r *http.Request) (secret string, inURL bool) {
	if s := r.Header.Get(httpwire.TokenHeader); s != "" {
		secret = s
		r.Header.Del(httpwire.TokenHeader)
	}
	scheme, value, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if value = strings.TrimSpace(value); strings.EqualFold(scheme, "Bearer") && strings.HasPrefix(value, httpwire.SecretPrefix) {
		r.Header.Del("Authorization")
		if secret == "" {
			secret = value
		}
	}
	if found, rest := cutParameter(r.URL.RawQuery); found != "" {
		u := *r.URL
		u.RawQuery = rest
		r.URL, r.RequestURI = &u, u.RequestURI()
		if secret == "" {
			secret, inURL = found, true
		}
	}
	return secret, inURL
}

// cutParameter removes our tokens from a query, and leaves the rest as it is.
func cutParameter(query string) (secret, rest string) {
	if !strings.Contains(query, tokenParameter) {
		return "", query
	}
	var kept []string
	for part := range strings.SplitSeq(query, "&") {
		name, value, _ := strings.Cut(part, "=")
		plain, err := url.QueryUnescape(value)
		if name == tokenParameter && err == nil && strings.HasPrefix(plain, httpwire.SecretPrefix) {
			secret = plain
			continue
		}
		kept = append(kept, part)
	}
	return secret, strings.Join(kept, "&")
}

// identify finds out who asks, and returns the request with the caller in its
// context, which ends with the caller's token. It changes r's headers.
func (a *API) identify(r *http.Request) (*http.Request, context.CancelFunc, error) {
	secret, inURL := takeSecret(r)
	ctx := r.Context()
	nothing := func() {}
	if secret == "" {
		if a.whois != nil {
			if c, ok := a.whois(r); ok {
				return r.WithContext(access.With(ctx, c)), nothing, nil
			}
		}
		return r, nothing, errNoToken
	}
	s, err := a.svc.Authenticate(ctx, secret, inURL)
	if err != nil {
		return r, nothing, err
	}
	ctx, cancel := context.WithCancelCause(access.With(ctx, s.Caller))
	ends := []func(){func() { cancel(nil) }}
	if !s.Until.IsZero() {
		timer := time.AfterFunc(time.Until(s.Until), func() { cancel(errRevoked) })
		ends = append(ends, func() { timer.Stop() })
	}
	if s.Gone != nil {
		done := make(chan struct{})
		go func() {
			defer close(done)
			select {
			case <-s.Gone:
				cancel(errRevoked)
			case <-ctx.Done():
			}
		}()
		ends = append(ends, func() { <-done })
	}
	return r.WithContext(ctx), func() {
		for _, end := range ends {
			end()
		}
	}, nil
}

// admit returns r for whom it is from, if that one may do what it asks for.
func (a *API) admit(w http.ResponseWriter, r *http.Request, route string) (*http.Request, context.CancelFunc, error) {
	need := rightOf(route)
	if need.open {
		leaveBody(w, r)
		return r, func() {}, nil
	}
	r, end, err := a.identify(r)
	// Whom a token is to name, it does not let in as the owner if it is mangled.
	if err == nil && route != proxyRoute && strings.HasPrefix(strings.ToLower(r.Header.Get("Authorization")), "bearer ") {
		err = errForeign
	}
	if err == nil {
		err = need.allow(access.From(r.Context()))
	}
	if err != nil {
		leaveBody(w, r)
	}
	return r, end, err
}

// leaveBody bounds how long a stranger may take to send a body that nobody reads: the
// server waits for it before it answers.
func leaveBody(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength != 0 {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(strangerTimeout)) // there is none in tests
	}
}
