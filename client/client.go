package client

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"

	"ramet.dev/ramet/api"
)

// Client talks to one daemon over a pool of connections. All methods, those of its
// services included, may be called concurrently. They block until the daemon answers or
// ctx ends.
type Client struct {
	Sandboxes    *Sandboxes
	Processes    *Processes
	Contexts     *Contexts
	Files        *Files
	Ports        *Ports
	Networks     *Networks
	Secrets      *Secrets
	Held         *Held
	Volumes      *Volumes
	Snapshots    *Snapshots
	Images       *Images
	Tokens       *Tokens
	Tenants      *Tenants
	Audit        *Audit
	Explorations *Explorations

	conn *connection
}

// newClient returns a client whose services share a connection.
func newClient(conn *connection) *Client {
	return &Client{
		Sandboxes:    &Sandboxes{conn},
		Processes:    &Processes{conn},
		Contexts:     &Contexts{conn},
		Files:        &Files{conn},
		Ports:        &Ports{conn},
		Networks:     &Networks{conn},
		Secrets:      &Secrets{conn},
		Held:         &Held{conn},
		Volumes:      &Volumes{conn},
		Snapshots:    &Snapshots{conn},
		Images:       &Images{conn},
		Tokens:       &Tokens{conn},
		Tenants:      &Tenants{conn},
		Audit:        &Audit{conn},
		Explorations: &Explorations{conn},
		conn:         conn,
	}
}

// Close ends the idle connections.
func (c *Client) Close() { c.conn.http.CloseIdleConnections() }

// Around replaces the transport of c by wrap of it. It must be called before any request.
func (c *Client) Around(wrap func(http.RoundTripper) http.RoundTripper) {
	c.conn.http.Transport = wrap(c.conn.http.Transport)
}

// Health returns the state and the version of the daemon.
func (c *Client) Health(ctx context.Context) (api.Health, error) {
	return get[api.Health](ctx, c.conn, "/healthz", nil)
}

// Metrics returns what the daemon has, and how long what took, in the text format of Prometheus.
func (c *Client) Metrics(ctx context.Context) (string, error) {
	resp, err := c.conn.send(ctx, http.MethodGet, "/metrics", nil, nil, "text/plain", nil)
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		return "", connectionError(ctx, err)
	}
	return string(text), nil
}

// Raw makes any request of the REST interface, with the credentials of the client, and returns
// the response whatever its status is. path begins with a slash and may have a query;
// body may be nil. The caller closes the body of the response.
func (c *Client) Raw(ctx context.Context, method, path string, header http.Header, body io.Reader) (*http.Response, error) {
	if !strings.HasPrefix(path, "/") {
		return nil, api.Invalid("path", "%q does not begin with a slash", path)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.conn.base+path, body)
	if err != nil {
		return nil, api.Errorf(api.CodeInvalid, "make request: %w", err)
	}
	for name, values := range header {
		req.Header[name] = values
	}
	resp, err := c.conn.http.Do(req)
	if err != nil {
		return nil, connectionError(ctx, err)
	}
	resp.Body = &answer{ReadCloser: resp.Body, ctx: ctx}
	return resp, nil
}

// answer is the body of a response, whose errors are those of other calls.
type answer struct {
	io.ReadCloser
	ctx context.Context
}

// Read implements io.Reader.
func (a *answer) Read(p []byte) (int, error) {
	n, err := a.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		err = connectionError(a.ctx, err)
	}
	return n, err
}
