package answer

import (
	"context"
	"crypto/rand"
	"net/http"
	"regexp"
	"sync/atomic"

	"ramet.dev/ramet/api"
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

type failureKey struct{}

// WithFailure returns r with a place in its context for the code of its failure, and a function
// that returns that code: that of the last problem, or "" if there was none.
func WithFailure(r *http.Request) (*http.Request, func() api.Code) {
	code := new(atomic.Value)
	return r.WithContext(context.WithValue(r.Context(), failureKey{}, code)), func() api.Code {
		c, _ := code.Load().(api.Code)
		return c
	}
}

// noteFailure keeps the code of a failure of a request, if somebody wants to know it.
func noteFailure(ctx context.Context, c api.Code) {
	if code, ok := ctx.Value(failureKey{}).(*atomic.Value); ok {
		code.Store(c)
	}
}
