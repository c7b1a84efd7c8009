package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/httpwire"
)

const (
	// dialTimeout bounds a connection attempt, not the work of a call.
	dialTimeout = 5 * time.Second
	// idleConns is how many connections are kept for calls that run at once.
	idleConns = 128
	// maxProblem bounds an error document.
	maxProblem = 1 << 20
)

// Client talks to one daemon over a pool of connections. All methods, those of its
// services included, may be called concurrently. They block until the daemon answers or
// ctx ends.
type Client struct {
	Sandboxes *Sandboxes
	Processes *Processes
	Contexts  *Contexts
	Files     *Files
	Ports     *Ports
	Snapshots *Snapshots
	Images    *Images
	Tokens    *Tokens
	Tenants   *Tenants
	Audit     *Audit

	conn *connection
}

// newClient returns a client whose services share a connection.
func newClient(conn *connection) *Client {
	return &Client{
		Sandboxes: &Sandboxes{conn},
		Processes: &Processes{conn},
		Contexts:  &Contexts{conn},
		Files:     &Files{conn},
		Ports:     &Ports{conn},
		Snapshots: &Snapshots{conn},
		Images:    &Images{conn},
		Tokens:    &Tokens{conn},
		Tenants:   &Tenants{conn},
		Audit:     &Audit{conn},
		conn:      conn,
	}
}

// connection is a pool of connections to one daemon, with the credentials that requests
// carry.
type connection struct {
	http   *http.Client
	base   string
	socket string // path; empty if the daemon is reached by a URL
	creds  *credentials
}

// Close ends the idle connections.
func (c *Client) Close() { c.conn.http.CloseIdleConnections() }

// Around has wrap stand between c and the daemon. It must come before any call.
func (c *Client) Around(wrap func(http.RoundTripper) http.RoundTripper) {
	c.conn.http.Transport = wrap(c.conn.http.Transport)
}

// Health asks whether the daemon is alive, and which version it is.
func (c *Client) Health(ctx context.Context) (api.Health, error) {
	return get[api.Health](ctx, c.conn, "/healthz", nil)
}

// segment makes a ref one segment of a path. It must not be one that a server
// or proxy would clean away.
func segment(ref string) (string, error) {
	if ref == "" || ref == "." || ref == ".." {
		return "", api.Invalid("id", "%q is not an id or name", ref)
	}
	return url.PathEscape(ref), nil
}

// path returns "/v1/<kind>/<ref><rest>".
func path(kind, ref, rest string) (string, error) {
	seg, err := segment(ref)
	if err != nil {
		return "", err
	}
	return "/v1/" + kind + "/" + seg + rest, nil
}

// send makes one request, whose body is JSON unless it is bytes, with header, which may
// be nil, besides what the body needs. The caller closes the body of the response, whose
// status is one of success.
func (c *connection) send(ctx context.Context, method, path string, query url.Values, body any, accept string, header http.Header) (*http.Response, error) {
	var reader io.Reader
	contentType := "application/json"
	if raw, ok := body.([]byte); ok {
		reader, contentType = bytes.NewReader(raw), "application/octet-stream"
	} else if body != nil {
		doc, err := encode(body)
		if err != nil {
			return nil, err
		}
		reader = bytes.NewReader(doc)
	}
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, reader)
	if err != nil {
		return nil, api.Errorf(api.CodeInvalid, "make request: %w", err)
	}
	maps.Copy(req.Header, header)
	req.Header.Set("Accept", accept)
	if body != nil {
		req.Header.Set("Content-Type", contentType)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, connectionError(ctx, err)
	}
	if resp.StatusCode >= 300 {
		defer resp.Body.Close()
		return nil, problemOf(resp)
	}
	return resp, nil
}

// call makes a request and decodes the answer into a T.
func call[T any](ctx context.Context, c *connection, method, path string, query url.Values, body any) (T, error) {
	var v T
	resp, err := c.send(ctx, method, path, query, body, "application/json", nil)
	if err != nil {
		return v, err
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusNoContent {
		return v, nil
	}
	if err := json.NewDecoder(resp.Body).Decode(&v); err != nil {
		return v, connectionError(ctx, err)
	}
	// Reading to the end gives the connection back to the pool.
	_, err = io.Copy(io.Discard, resp.Body)
	if err != nil {
		return v, connectionError(ctx, err)
	}
	return v, nil
}

func get[T any](ctx context.Context, c *connection, path string, query url.Values) (T, error) {
	return call[T](ctx, c, http.MethodGet, path, query, nil)
}

// connectionError explains a failure below HTTP.
func connectionError(ctx context.Context, err error) error {
	var urlErr *url.Error
	if errors.As(err, &urlErr) {
		err = urlErr.Err // without the made-up URL of a socket
	}
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return api.Errorf(api.CodeCanceled, "call daemon: %w", ctx.Err())
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return api.Errorf(api.CodeTimeout, "call daemon: %w", ctx.Err())
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return api.Errorf(api.CodeUnavailable, "call daemon: it ended before it had answered, and what it was doing for this call may have ended with it (%w)", err)
	}
	return api.Errorf(api.CodeUnavailable, "call daemon: %w", err)
}

// problemOf returns the problem that resp carries. What is not a problem
// document was not sent by a daemon.
func problemOf(resp *http.Response) error {
	mediaType, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	var p httpwire.Problem
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxProblem))
	if err == nil {
		err = json.Unmarshal(body, &p)
	}
	if err != nil || mediaType != httpwire.ProblemType || p.Code == "" {
		if resp.StatusCode == http.StatusBadRequest && bytes.Contains(body, []byte("HTTPS")) { // what servers of TLS say to those who do not speak it
			return api.Errorf(api.CodeUnavailable, "call daemon: there is TLS at that port: try https instead of http")
		}
		return api.Errorf(api.CodeUnavailable, "call daemon: the answer %q is not one of a Ramet daemon", resp.Status)
	}
	return &p
}
