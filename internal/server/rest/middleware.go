package rest

import (
	"bufio"
	"errors"
	"log/slog"
	"mime"
	"net"
	"net/http"
	"path"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"ramet.dev/ramet/internal/server/rest/answer"
	"ramet.dev/ramet/internal/server/rest/stream"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/httpwire"
)

// ServeHTTP implements http.Handler.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	r, id := answer.WithRequestID(r)
	r, failure := answer.WithFailure(r)
	w.Header().Set(httpwire.RequestIDHeader, id)
	w.Header().Set(httpwire.InterfaceHeader, api.InterfaceVersion)
	rw := &responseWriter{ResponseWriter: w}
	defer a.logRequest(rw, r, time.Now(), failure)
	defer a.recoverPanic(rw, r)
	// Probes of health are answered until the end.
	if r.URL.Path != "/healthz" && r.URL.Path != "/readyz" {
		if !a.gate.Enter() {
			w.Header().Set("Retry-After", "1")
			w.Header().Set("Connection", "close")
			a.WriteProblem(rw, r, api.Errorf(api.CodeUnavailable, "the daemon is about to end, and takes no new requests: ask again"))
			return
		}
		defer a.gate.Leave()
	}
	stream.BoundBody(w, r)
	a.route(rw, r)
}

// logRequest logs a request that has ended, at level warning if the daemon is at fault. It
// leaves out queries, and paths for servers in sandboxes: they may have secrets.
func (a *API) logRequest(w *responseWriter, r *http.Request, began time.Time, failure func() api.Code) {
	level := slog.LevelDebug
	if w.status >= http.StatusInternalServerError {
		level = slog.LevelWarn
	}
	if !a.Log.Enabled(r.Context(), level) {
		return
	}
	path := r.URL.Path
	if p, err := a.ports.target(r); p != nil || err != nil {
		path = "(a port)"
	}
	attrs := []slog.Attr{slog.String("request", answer.RequestID(r.Context())), slog.String("method", r.Method),
		slog.String("path", path), slog.Int("status", w.status), slog.Duration("took", time.Since(began))}
	if code := failure(); code != "" {
		attrs = append(attrs, slog.String("code", string(code)))
	}
	a.Log.LogAttrs(r.Context(), level, "request", attrs...)
}

// route serves a request. It answers requests without a route itself: the mux would answer
// in plain text, and redirect unclean paths.
func (a *API) route(w *responseWriter, r *http.Request) {
	if p, err := a.ports.target(r); p != nil || err != nil {
		if err != nil {
			a.WriteProblem(w, r, err)
			return
		}
		a.ports.serve(w, r, p)
		return
	}
	if p := r.URL.EscapedPath(); p != path.Clean(p) {
		a.WriteProblem(w, r, noRoute(r))
		return
	}
	h, pattern := a.router.Match(r)
	// A request without a route needs a known caller too.
	r, end, err := a.auth.Admit(w, r, pattern)
	defer end()
	if err != nil && pattern != "" || api.CodeOf(err) == api.CodeUnknownUser {
		if api.CodeOf(err) == api.CodeForbidden { // refused callers have no entries: they could fill the disk
			a.written(w, r, pattern, func(w *responseWriter, r *http.Request) { a.WriteProblem(w, r, err) })
			return
		}
		a.WriteProblem(w, r, err)
		return
	}
	if pattern != "" {
		a.written(w, r, pattern, func(w *responseWriter, r *http.Request) {
			if err := a.router.CheckQuery(pattern, r.URL.RawQuery); err != nil {
				a.WriteProblem(w, r, err)
				return
			}
			plainMediaType(r.Header)
			a.guard.Once(w, r, pattern, a.router.ServeHTTP)
		})
		return
	}
	probe := &probeWriter{header: http.Header{}}
	h.ServeHTTP(probe, r)
	if probe.status != http.StatusMethodNotAllowed {
		a.WriteProblem(w, r, noRoute(r))
		return
	}
	allow := probe.header.Get("Allow")
	w.Header().Set("Allow", allow)
	a.WriteProblem(w, r, httpwire.NewStatusProblem(probe.status, "%s is not possible here: use %s", r.Method, allow))
}

// plainMediaType writes the media type of a body as the framework compares it: in lower
// case, and without parameters. JSON has none, and is always UTF-8.
func plainMediaType(h http.Header) {
	mediaType, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	if err == nil || errors.Is(err, mime.ErrInvalidMediaParameter) {
		h.Set("Content-Type", mediaType)
	}
}

func noRoute(r *http.Request) error {
	err := api.NotFound("route", r.Method+" "+r.URL.Path)
	version, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/v"), "/")
	if n, notNumber := strconv.ParseUint(version, 10, 16); notNumber == nil && strconv.FormatUint(n, 10) != api.InterfaceMajor(api.InterfaceVersion) {
		return api.Errorf(api.CodeNotFound, "%w: this daemon has version %s of the interface, and not %d: use a client of the release of the daemon, or another daemon", err, api.InterfaceVersion, n)
	}
	return err
}

// recoverPanic answers with a problem, or ends the connection if the answer has
// begun: a client must not take a part of an answer for the whole.
func (a *API) recoverPanic(w *responseWriter, r *http.Request) {
	v := recover()
	if v == nil {
		return
	}
	if v != http.ErrAbortHandler && r.Context().Err() == nil {
		a.Log.Error("request panicked", "request", answer.RequestID(r.Context()), "method", r.Method, "path", r.URL.Path, "panic", v, "stack", string(debug.Stack()))
	}
	if w.begun {
		panic(http.ErrAbortHandler)
	}
	a.WriteProblem(w, r, api.Errorf(api.CodeInternal, "a defect in Ramet; the daemon's log tells more"))
}

// responseWriter remembers whether an answer has begun, and the connection of a
// WebSocket.
type responseWriter struct {
	http.ResponseWriter
	begun  bool
	status int // 0 before it has begun
	conn   net.Conn
}

// WriteHeader implements http.ResponseWriter. It drops a second status: the framework sets
// one when the client goes away during the answer, and a proxy sets one when a hijacked
// connection breaks.
func (w *responseWriter) WriteHeader(status int) {
	if w.status == http.StatusSwitchingProtocols || w.status >= http.StatusOK { // informational statuses come before the final one
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

// Conn returns the connection of a WebSocket.
func (w *responseWriter) Conn() net.Conn { return w.conn }

// probeWriter keeps the status and headers of an answer and drops the rest.
type probeWriter struct {
	header http.Header
	status int
}

func (w *probeWriter) Header() http.Header { return w.header }

func (w *probeWriter) WriteHeader(status int) { w.status = status }

func (w *probeWriter) Write(p []byte) (int, error) { return len(p), nil }
