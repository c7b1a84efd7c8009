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
	"strconv"
	"strings"
	"syscall"
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

// pageSize is the largest page the daemon gives.
const pageSize = 1000

// connection is a pool of connections to one daemon, with the credentials that requests
// carry.
type connection struct {
	config Config
	http   *http.Client
	base   string
	socket string // path; empty if the daemon is reached by a URL
	creds  *credentials
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

// send makes one request. The body is sent as JSON unless it is a []byte. header may be nil.
// The caller closes the body of the response, whose status is one of success.
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
	if err := checkInterface(resp.Header); err != nil {
		resp.Body.Close()
		return nil, err
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
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE),
		strings.Contains(err.Error(), "server closed idle connection"): // net/http has no value for it
		return api.Errorf(api.CodeUnavailable, "call daemon: it ended before it had answered, and what it was doing for this call may have ended with it (%w)", err)
	}
	return api.Errorf(api.CodeUnavailable, "call daemon: %w", err)
}

// problemOf returns the problem document in resp. A response of failure without one was not
// sent by a daemon.
func problemOf(resp *http.Response) error {
	mediaType, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	var p httpwire.Problem
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxProblem))
	if err == nil {
		err = json.Unmarshal(body, &p)
	}
	if err != nil || mediaType != httpwire.ProblemType || p.Code == "" {
		if resp.StatusCode == http.StatusBadRequest && bytes.Contains(body, []byte("HTTPS")) { // the answer of a TLS server to a request without TLS
			return api.Errorf(api.CodeUnavailable, "call daemon: there is TLS at that port: try https instead of http")
		}
		return api.Errorf(api.CodeUnavailable, "call daemon: the answer %q is not one of a Ramet daemon", resp.Status)
	}
	explainSkew(&p, resp.Header)
	return &p
}

// on makes a request that concerns one resource.
func on[T any](ctx context.Context, c *connection, method, kind, ref, rest string, query url.Values, body any) (T, error) {
	p, err := path(kind, ref, rest)
	if err != nil {
		var zero T
		return zero, err
	}
	return call[T](ctx, c, method, p, query, body)
}

// all collects the pages of a list.
func all[T any](ctx context.Context, c *connection, path string, query url.Values) ([]T, error) {
	query.Set("limit", strconv.Itoa(pageSize))
	items := []T{}
	for {
		page, err := get[httpwire.List[T]](ctx, c, path, query)
		if err != nil {
			return nil, err
		}
		items = append(items, page.Items...)
		if page.NextPageToken == "" {
			return items, nil
		}
		query.Set("page_token", page.NextPageToken)
	}
}

// events makes a request and hands the events of the answer to each, until it
// reports the last one. It also gets unknown events, but not
// the daemon's error event.
func (c *connection) events(ctx context.Context, method, path string, query url.Values, body any, each func(httpwire.Event) (done bool, err error)) error {
	resp, err := c.send(ctx, method, path, query, body, httpwire.EventType, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	in := httpwire.NewEventReader(resp.Body)
	for {
		ev, err := in.Next()
		if err == io.EOF {
			err = io.ErrUnexpectedEOF // the last event was not seen
		}
		if err != nil {
			return connectionError(ctx, err)
		}
		if ev.Name == httpwire.EventError {
			var p httpwire.Problem
			if err := json.Unmarshal(ev.Data, &p); err != nil {
				return connectionError(ctx, err)
			}
			return &p
		}
		done, err := each(ev)
		if err != nil {
			return err
		}
		if done {
			// Reading to the end gives the connection back to the pool.
			_, _ = io.Copy(io.Discard, resp.Body)
			return nil
		}
	}
}
