package tracing

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// Handler makes a span of each request, below the span of the client if the request names one.
func (t *Tracing) Handler(next http.Handler) http.Handler {
	if t == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := propagator.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
		ctx, span := t.tracer.Start(ctx, r.Method+" "+routeOf(r.URL.Path), trace.WithSpanKind(trace.SpanKindServer))
		defer span.End()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// routeOf returns a path without ids and names, which are at each second place. It leaves out
// the path for a server in a sandbox: it may have secrets.
func routeOf(path string) string {
	parts := strings.Split(path, "/")
	if len(parts) < 2 || parts[1] != "v1" {
		if slices.Contains(plainRoutes, path) {
			return path
		}
		return "/{}"
	}
	for i := 3; i < len(parts); i += 2 {
		parts[i] = "{}"
	}
	most := 7
	if len(parts) > 4 && parts[4] == "ports" {
		most = 6
	}
	return strings.Join(parts[:min(len(parts), most)], "/")
}

var plainRoutes = []string{"/healthz", "/readyz", "/metrics", "/openapi.json"}

// Transport makes a span of each request, below the span of its context, and names it to the
// server. It passes on requests whose contexts have no span.
func Transport(next http.RoundTripper) http.RoundTripper { return transport{next} }

type transport struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	parent := trace.SpanFromContext(r.Context())
	if !parent.IsRecording() {
		return t.next.RoundTrip(r)
	}
	ctx, span := parent.TracerProvider().Tracer(scope).Start(r.Context(), r.Method+" "+routeOf(r.URL.Path), trace.WithSpanKind(trace.SpanKindClient))
	r = r.Clone(ctx)
	propagator.Inject(ctx, propagation.HeaderCarrier(r.Header))
	resp, err := t.next.RoundTrip(r)
	if err != nil {
		span.SetStatus(codes.Error, "no answer")
		span.End()
		return nil, err
	}
	span.SetAttributes(attribute.Int("http.response.status_code", resp.StatusCode))
	if resp.StatusCode >= http.StatusBadRequest {
		span.SetStatus(codes.Error, resp.Status)
	}
	if resp.StatusCode == http.StatusSwitchingProtocols {
		span.End() // the body is a connection, and stays one
		return resp, nil
	}
	resp.Body = &body{ReadCloser: resp.Body, end: sync.OnceFunc(func() { span.End() })}
	return resp, nil
}

// CloseIdleConnections implements the method that http.Client looks for.
func (t transport) CloseIdleConnections() {
	if c, ok := t.next.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// body ends a span with an answer.
type body struct {
	io.ReadCloser
	end func()
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.end()
	}
	return n, err
}

// Close implements io.Closer.
func (b *body) Close() error {
	b.end()
	return b.ReadCloser.Close()
}
