package registry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/google/go-containerregistry/pkg/v1/remote"

	"ramet.dev/ramet/api"
)

// maxResumes is how often one download goes on after its connection broke.
const maxResumes = 5

// resuming goes on with a blob whose connection breaks in the middle, with a request for
// the bytes that are missing. It gives a code to errors of a connection that stays broken. Other
// errors while an answer is read are then due to its contents.
type resuming struct{ http.RoundTripper }

// Transport returns the transport of clients of registries.
func Transport() http.RoundTripper { return resuming{remote.DefaultTransport} }

// RoundTrip implements http.RoundTripper.
func (t resuming) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.RoundTripper.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	b := &body{ReadCloser: resp.Body}
	if req.Method == http.MethodGet && req.Header.Get("Range") == "" && resp.StatusCode == http.StatusOK && resp.ContentLength > 0 && !resp.Uncompressed {
		b.resume = &resume{transport: t.RoundTripper, req: req, size: resp.ContentLength}
	}
	resp.Body = b
	return resp, nil
}

// body is the body of an answer of a registry.
type body struct {
	io.ReadCloser
	resume *resume // nil if the rest of it cannot be asked for
	read   int64   // in bytes
}

func (b *body) Read(p []byte) (int, error) {
	for {
		n, err := b.ReadCloser.Read(p)
		b.read += int64(n)
		if err == nil || err == io.EOF || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
			return n, err
		}
		rest := b.resume.after(b.read)
		if rest == nil {
			return n, api.Errorf(api.CodeUnavailable, "connection to the registry broke: %w", err)
		}
		b.ReadCloser.Close()
		b.ReadCloser = rest
		if n > 0 {
			return n, nil
		}
	}
}

// resume asks for the rest of an answer.
type resume struct {
	transport http.RoundTripper
	req       *http.Request
	size      int64 // of the whole, in bytes
	tried     int
}

// after returns the bytes from offset on, or nil if the server does not send exactly these. What
// the bytes are is checked against the digest of the whole blob.
func (r *resume) after(offset int64) io.ReadCloser {
	for r != nil && offset < r.size && r.tried < maxResumes && r.req.Context().Err() == nil {
		r.tried++
		req := r.req.Clone(r.req.Context())
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-", offset))
		resp, err := r.transport.RoundTrip(req)
		if err != nil {
			continue
		}
		begins, _, _ := strings.Cut(strings.TrimPrefix(resp.Header.Get("Content-Range"), "bytes "), "-")
		from, err := strconv.ParseInt(begins, 10, 64)
		if resp.StatusCode == http.StatusPartialContent && err == nil && from == offset {
			return resp.Body
		}
		resp.Body.Close()
		if resp.StatusCode < http.StatusInternalServerError {
			return nil // it has no ranges, or refuses
		}
	}
	return nil
}
