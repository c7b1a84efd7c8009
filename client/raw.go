package client

import (
	"context"
	"io"
	"net/http"
	"strings"

	"ramet.dev/ramet/api"
)

// Raw makes one request of the REST API as it is given, with the client's credentials, and
// returns the answer, whatever its status is. path begins with a slash and may have a query;
// body may be nil. The caller closes the body of the answer.
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

// answer is the body of an answer, whose errors are those of calls.
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
