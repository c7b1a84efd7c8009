package rest

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"maps"
	"mime"
	"net"
	"net/http"
	"path"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/httpwire"
	"ramet.dev/ramet/internal/server/audit"
)

// maxRequestID bounds an id that a client chose.
const maxRequestID = 64

var requestIDPattern = regexp.MustCompile(`^[A-Za-z0-9._-]+$`)

type requestIDKey struct{}

// ServeHTTP implements http.Handler.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id := r.Header.Get(httpwire.RequestIDHeader)
	if len(id) > maxRequestID || !requestIDPattern.MatchString(id) {
		id = "req_" + rand.Text()
	}
	w.Header().Set(httpwire.RequestIDHeader, id)
	rw := &responseWriter{ResponseWriter: w}
	r = r.WithContext(context.WithValue(r.Context(), requestIDKey{}, id))
	defer a.logRequest(rw, r, time.Now())
	defer a.recoverPanic(rw, r)
	// Who looks whether the daemon is well is answered to the end.
	if r.URL.Path != "/healthz" && r.URL.Path != "/readyz" {
		if !a.gate.Enter() {
			w.Header().Set("Retry-After", "1")
			w.Header().Set("Connection", "close")
			a.writeProblem(rw, r, api.Errorf(api.CodeUnavailable, "the daemon is about to end, and takes no new requests: ask again"))
			return
		}
		defer a.gate.Leave()
	}
	r.Body = &timedBody{ReadCloser: r.Body, conn: http.NewResponseController(w)}
	a.route(rw, r)
}

// logRequest writes down a request that is over: one that failed through our fault as
// a warning. Paths for servers in sandboxes, and queries, may have secrets.
func (a *API) logRequest(w *responseWriter, r *http.Request, began time.Time) {
	level := slog.LevelDebug
	if w.status >= http.StatusInternalServerError {
		level = slog.LevelWarn
	}
	if !a.log.Enabled(r.Context(), level) {
		return
	}
	path := r.URL.Path
	if p, err := a.proxyTarget(r); p != nil || err != nil {
		path = "(a port)"
	}
	a.log.LogAttrs(r.Context(), level, "request", slog.String("request", requestID(r.Context())), slog.String("method", r.Method),
		slog.String("path", path), slog.Int("status", w.status), slog.Duration("took", time.Since(began)))
}

func requestID(ctx context.Context) string {
	id, _ := ctx.Value(requestIDKey{}).(string)
	return id
}

// route answers what no route matches itself: the mux would say so in plain
// text, and redirect unclean paths.
func (a *API) route(w *responseWriter, r *http.Request) {
	if p, err := a.proxyTarget(r); p != nil || err != nil {
		if err != nil {
			a.writeProblem(w, r, err)
			return
		}
		a.proxy(w, r, p)
		return
	}
	if p := r.URL.EscapedPath(); p != path.Clean(p) {
		a.writeProblem(w, r, noRoute(r))
		return
	}
	h, pattern := a.mux.Handler(r)
	if prefix, ok := strings.CutSuffix(pattern, "/{ref...}"); ok && prefix == r.Method+" "+r.URL.Path {
		pattern, h = "", a.otherMethods(r.URL.Path) // the mux would redirect to the path with a slash
	}
	// Who asks for what is not there has to say who it is, too.
	r, end, err := a.admit(w, r, pattern)
	defer end()
	if err != nil && pattern != "" || api.CodeOf(err) == api.CodeUnknownUser {
		if api.CodeOf(err) == api.CodeForbidden { // what strangers try is not written down: they could go on for ever
			a.written(w, r, pattern, func(w *responseWriter, r *http.Request) { a.writeProblem(w, r, err) })
			return
		}
		a.writeProblem(w, r, err)
		return
	}
	if pattern != "" {
		a.written(w, r, pattern, func(w *responseWriter, r *http.Request) {
			if err := a.checkQuery(pattern, r.URL.RawQuery); err != nil {
				a.writeProblem(w, r, err)
				return
			}
			plainMediaType(r.Header)
			a.once(w, r, pattern, a.mux.ServeHTTP)
		})
		return
	}
	probe := &probeWriter{header: http.Header{}}
	h.ServeHTTP(probe, r)
	if probe.status != http.StatusMethodNotAllowed {
		a.writeProblem(w, r, noRoute(r))
		return
	}
	allow := probe.header.Get("Allow")
	w.Header().Set("Allow", allow)
	a.writeProblem(w, r, httpwire.NewStatusProblem(probe.status, "%s is not possible here: use %s", r.Method, allow))
}

// plainMediaType writes the media type of a body as the framework compares it: in lower
// case, and without parameters. JSON has none, and is always UTF-8.
func plainMediaType(h http.Header) {
	mediaType, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	if err == nil || errors.Is(err, mime.ErrInvalidMediaParameter) {
		h.Set("Content-Type", mediaType)
	}
}

// otherMethods answers as the mux does where a path has other methods than that of the
// request.
func (a *API) otherMethods(path string) http.Handler {
	var allow []string
	for _, op := range a.operations {
		if op.Path == path {
			allow = append(allow, op.Method)
		}
	}
	slices.Sort(allow)
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Allow", strings.Join(allow, ", "))
		w.WriteHeader(http.StatusMethodNotAllowed)
	})
}

func noRoute(r *http.Request) error {
	return api.NotFound("route", r.Method+" "+r.URL.Path)
}

// recoverPanic answers with a problem, or ends the connection if the answer has
// begun: a client must not take half an answer for a whole one.
func (a *API) recoverPanic(w *responseWriter, r *http.Request) {
	v := recover()
	if v == nil {
		return
	}
	if v != http.ErrAbortHandler && r.Context().Err() == nil {
		a.log.Error("request panicked", "request", requestID(r.Context()), "method", r.Method, "path", r.URL.Path, "panic", v, "stack", string(debug.Stack()))
	}
	if w.begun {
		panic(http.ErrAbortHandler)
	}
	a.writeProblem(w, r, api.Errorf(api.CodeInternal, "a defect in Ramet; the daemon's log tells more"))
}

// writeProblem answers a request that the framework has no part in.
func (a *API) writeProblem(w http.ResponseWriter, r *http.Request, err error) {
	p := a.problem(r.Context(), err)
	if p.Status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Bearer realm="ramet"`)
	}
	maps.Copy(w.Header(), p.GetHeaders())
	writeJSON(w, p.Status, httpwire.ProblemType, p)
}

// problem returns the document for err, with the request's id, and writes
// defects of ours to the log.
func (a *API) problem(ctx context.Context, err error) *httpwire.Problem {
	p := *httpwire.NewProblem(err)
	p.RequestID = requestID(ctx)
	audit.Of(ctx).Failed(p.Code)
	if p.Code == api.CodeInternal {
		a.log.Error("request failed", "request", p.RequestID, "error", err)
	}
	return &p
}

// writeJSON writes v as the whole answer. A failed write has no one to be told.
func writeJSON(w http.ResponseWriter, status int, mediaType string, v any) {
	w.Header().Set("Content-Type", mediaType)
	w.WriteHeader(status)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v)
}

// responseWriter remembers whether an answer has begun, and the connection of a
// WebSocket.
type responseWriter struct {
	http.ResponseWriter
	begun  bool
	status int // 0 before it has begun
	conn   net.Conn
}

// WriteHeader implements http.ResponseWriter. A status after the one of the answer is
// dropped: the framework sets one when the client went away while it was answered, and
// proxies one when a connection that was taken over breaks.
func (w *responseWriter) WriteHeader(status int) {
	if w.status == http.StatusSwitchingProtocols || w.status >= http.StatusOK { // others come before the one that counts
		return
	}
	w.status, w.begun = status, true
	w.ResponseWriter.WriteHeader(status)
}

func (w *responseWriter) Write(p []byte) (int, error) {
	if w.status < http.StatusOK {
		w.status = http.StatusOK
	}
	w.begun = true
	return w.ResponseWriter.Write(p)
}

// Unwrap lets http.ResponseController reach the server's own writer.
func (w *responseWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Hijack implements http.Hijacker.
func (w *responseWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err == nil {
		w.begun, w.status, w.conn = true, http.StatusSwitchingProtocols, conn
	}
	return conn, rw, err
}

// probeWriter keeps the status and headers of an answer and drops the rest.
type probeWriter struct {
	header http.Header
	status int
}

func (w *probeWriter) Header() http.Header { return w.header }

func (w *probeWriter) WriteHeader(status int) { w.status = status }

func (w *probeWriter) Write(p []byte) (int, error) { return len(p), nil }

// timedBody bounds how long the body takes to arrive. The deadline must go
// before the handler runs, else the server would take it for a lost client.
type timedBody struct {
	io.ReadCloser
	conn  *http.ResponseController
	armed bool
}

// bodyError marks an error of reading a request's body: the client's fault.
type bodyError struct{ error }

func (e *bodyError) Unwrap() error { return e.error }

func (b *timedBody) Read(p []byte) (int, error) {
	if !b.armed {
		b.armed = b.conn.SetReadDeadline(time.Now().Add(bodyTimeout)) == nil
	}
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.disarm()
	}
	if err != nil && err != io.EOF {
		err = &bodyError{err}
	}
	return n, err
}

func (b *timedBody) Close() error {
	b.disarm()
	return b.ReadCloser.Close()
}

func (b *timedBody) disarm() {
	if b.armed {
		b.armed = b.conn.SetReadDeadline(time.Time{}) != nil
	}
}
