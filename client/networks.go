package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/httpwire"
)

// Networks says what sandboxes may reach.
type Networks struct{ conn *connection }

// Get returns the network of a sandbox.
func (n *Networks) Get(ctx context.Context, ref string) (*api.SandboxNetwork, error) {
	return on[*api.SandboxNetwork](ctx, n.conn, http.MethodGet, "sandboxes", ref, "/network", nil, nil)
}

// Set replaces the network of a sandbox. Connections that the new one does not allow are cut when it
// returns.
func (n *Networks) Set(ctx context.Context, ref string, req api.NetworkRequest) (*api.SandboxNetwork, error) {
	return on[*api.SandboxNetwork](ctx, n.conn, http.MethodPut, "sandboxes", ref, "/network", nil, req)
}

// Test returns whether a sandbox may connect, and which rule decides. It does not connect.
func (n *Networks) Test(ctx context.Context, ref string, test api.NetworkTest) (*api.NetworkTestResult, error) {
	return on[*api.NetworkTestResult](ctx, n.conn, http.MethodPost, "sandboxes", ref, "/network/test", nil, test)
}

// Log calls each with the decisions about connections of a sandbox: those that are kept, and with
// follow those to come, until ctx ends, the sandbox is destroyed or each fails.
func (n *Networks) Log(ctx context.Context, ref string, follow bool, each func(api.NetworkLogEntry) error) error {
	p, err := path("sandboxes", ref, "/network/log")
	if err != nil {
		return err
	}
	return eachEvent(ctx, n.conn, p, url.Values{"follow": {strconv.FormatBool(follow)}}, "network log", each)
}

// Profiles returns the profiles that networks may name.
func (n *Networks) Profiles(ctx context.Context) ([]api.NetworkProfile, error) {
	l, err := get[httpwire.List[api.NetworkProfile]](ctx, n.conn, "/v1/network/profiles", nil)
	return l.Items, err
}
