package answer

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"net/http"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/httpwire"
	"ramet.dev/ramet/internal/service/audit"
)

// Reporter answers requests that fail, and logs defects of the daemon.
type Reporter struct{ Log *slog.Logger }

// NewReporter returns a reporter that logs to log.
func NewReporter(log *slog.Logger) *Reporter { return &Reporter{log} }

// Problem returns the document for err, with the id of the request. It notes the failure in
// the audit entry of the request, and logs a defect of the daemon.
func (p *Reporter) Problem(ctx context.Context, err error) *httpwire.Problem {
	// The cause says more than that a context ended, unless the client has gone.
	if cause := context.Cause(ctx); errors.Is(err, context.Canceled) && cause != nil && !errors.Is(cause, context.Canceled) {
		err = cause
	}
	doc := *httpwire.NewProblem(err)
	doc.RequestID = RequestID(ctx)
	audit.Of(ctx).Failed(doc.Code)
	noteFailure(ctx, doc.Code)
	if doc.Code == api.CodeInternal {
		p.Log.Error("request failed", "request", doc.RequestID, "error", err)
	}
	return &doc
}

// WriteProblem answers a request that failed before its answer began.
func (p *Reporter) WriteProblem(w http.ResponseWriter, r *http.Request, err error) {
	doc := p.Problem(r.Context(), err)
	if doc.Status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Bearer realm="ramet"`)
	}
	maps.Copy(w.Header(), doc.GetHeaders())
	WriteJSON(w, doc.Status, httpwire.ProblemType, doc)
}

// LateProblem is Problem for an answer that has begun with the status of success.
func (p *Reporter) LateProblem(ctx context.Context, err error) *httpwire.Problem {
	if failed, ok := ctx.Value(lateKey{}).(func()); ok {
		failed()
	}
	return p.Problem(ctx, err)
}

type lateKey struct{}

// WithLateFailure returns a context in which LateProblem calls failed.
func WithLateFailure(ctx context.Context, failed func()) context.Context {
	return context.WithValue(ctx, lateKey{}, failed)
}

// WriteJSON writes v as the whole answer. It ignores a failed write: the client is gone.
func WriteJSON(w http.ResponseWriter, status int, mediaType string, v any) {
	w.Header().Set("Content-Type", mediaType)
	w.WriteHeader(status)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v)
}

// BodyError marks an error of reading the body of a request: a fault of the client.
type BodyError struct{ Err error }

func (e *BodyError) Error() string { return e.Err.Error() }

// Unwrap makes errors.Is look into the error of reading.
func (e *BodyError) Unwrap() error { return e.Err }
