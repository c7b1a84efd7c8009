package mcp

import (
	"context"
	"errors"
	"net/http"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/client"
)

// Handler serves the protocol over HTTP. Each request has a token of the daemon, whose rights it has: daemon
// returns a client for it. There are no sessions.
func Handler(version string, daemon func(token string) (*client.Client, error)) http.Handler {
	guarded := served(func(r *http.Request) *sdk.Server {
		c, _ := r.Context().Value(clientKey{}).(*client.Client)
		return NewServer(version, c, nil)
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := clientOf(r, daemon)
		if err != nil {
			refuse(w, err)
			return
		}
		defer c.Close()
		guarded.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), clientKey{}, c)))
	})
}

// served serves servers, of which each request has its own.
func served(server func(*http.Request) *sdk.Server) http.Handler {
	h := sdk.NewStreamableHTTPHandler(server, &sdk.StreamableHTTPOptions{Stateless: true, PropagateRequestCancellation: true})
	// A page in a browser of the user's machine has no business here, whichever name it has for this address.
	return http.NewCrossOriginProtection().Handler(h)
}

type clientKey struct{}

var errNoToken = api.Errorf(api.CodeUnknownUser, "send a token as Authorization: Bearer; 'ramet token create' makes one")

// clientOf returns a client with the token of a request, which the daemon knows.
func clientOf(r *http.Request, daemon func(token string) (*client.Client, error)) (*client.Client, error) {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") || token == "" {
		return nil, errNoToken
	}
	c, err := daemon(strings.TrimSpace(token))
	if err != nil {
		return nil, err
	}
	// What a token may do is decided call by call; this one is any that needs a token.
	if _, err := c.Snapshots.List(r.Context()); err != nil && api.CodeOf(err) != api.CodeForbidden {
		c.Close()
		return nil, err
	}
	return c, nil
}

func refuse(w http.ResponseWriter, err error) {
	var e *api.Error
	if !errors.As(err, &e) {
		e = api.AsError(err)
	}
	if e.Code == api.CodeUnknownUser {
		w.Header().Set("WWW-Authenticate", `Bearer realm="ramet"`)
	}
	http.Error(w, e.Error(), e.Code.HTTPStatus())
}
