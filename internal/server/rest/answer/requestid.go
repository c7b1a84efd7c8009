package answer

import (
	"context"
	"crypto/rand"
	"net/http"
	"regexp"

	"ramet.dev/ramet/internal/httpwire"
)

// maxRequestID bounds an id that a client chose.
const maxRequestID = 64

var requestIDPattern = regexp.MustCompile(`^[A-Za-z0-9._-]+$`)

type requestIDKey struct{}

// WithRequestID returns r with an id in its context: the id that the client chose, if it is
// well-formed, else a new one.
func WithRequestID(r *http.Request) (*http.Request, string) {
	id := r.Header.Get(httpwire.RequestIDHeader)
	if len(id) > maxRequestID || !requestIDPattern.MatchString(id) {
		id = "req_" + rand.Text()
	}
	return r.WithContext(context.WithValue(r.Context(), requestIDKey{}, id)), id
}

// RequestID returns the id of a request, or "" outside of one.
func RequestID(ctx context.Context) string {
	id, _ := ctx.Value(requestIDKey{}).(string)
	return id
}
