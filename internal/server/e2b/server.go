package e2b

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/httpwire"
	"ramet.dev/ramet/internal/peer"
	"ramet.dev/ramet/internal/server/e2b/build"
	"ramet.dev/ramet/internal/server/e2b/envd"
	"ramet.dev/ramet/internal/server/e2b/grant"
	"ramet.dev/ramet/internal/server/e2b/interpreter"
	"ramet.dev/ramet/internal/server/front"
	"ramet.dev/ramet/internal/service"
	"ramet.dev/ramet/internal/service/audit"
)

// Ports of a sandbox that this server answers for.
const (
	agentPort       = 49983
	interpreterPort = 49999
)

// envdVersion is the version of the agent whose interface package envd has.
const envdVersion = "0.6.7"

// Config is the configuration of a Server.
type Config struct {
	Service service.Service
	// Key is secret: access tokens are made with it, see package grant.
	Key []byte
	// Dir is for files that clients upload for builds. It is emptied.
	Dir string
	// Domain is what the hosts of ports end with, as clients are told; empty for none.
	Domain string
	Logger *slog.Logger
}

// Server is the interface of E2B as an http.Handler. It is safe for concurrent use.
type Server struct {
	svc       service.Service
	grants    *grant.Grants
	domain    string
	machine   machine
	mux       *http.ServeMux
	routes    []string // of mux
	inside    *inside
	pauses    *pauses
	templates *templates
	builds    *build.Builds
}

// New returns a Server. Close ends what it does by itself.
func New(cfg Config) (*Server, error) {
	grants := grant.New(cfg.Key, cfg.Service)
	s := &Server{
		svc: cfg.Service, grants: grants, domain: cfg.Domain, mux: http.NewServeMux(),
		inside:    &inside{svc: cfg.Service, grants: grants, log: cfg.Logger, agent: envd.New(cfg.Service), cells: interpreter.New(cfg.Service)},
		templates: &templates{svc: cfg.Service, log: cfg.Logger},
	}
	var err error
	if s.builds, err = build.New(cfg.Service, s.templates.base, cfg.Dir, cfg.Logger); err != nil {
		s.inside.agent.Close()
		return nil, err
	}
	if s.machine, err = measure(cfg.Dir); err != nil {
		s.builds.Close()
		s.inside.agent.Close()
		return nil, err
	}
	s.pauses = newPauses(cfg.Service, cfg.Logger)
	s.routeSandboxes()
	s.routeStates()
	s.routeSnapshots()
	s.routeTemplates()
	s.routeSecrets()
	s.routeVolumes()
	(&builders{svc: cfg.Service, grants: grants, builds: s.builds}).route(s)
	s.route("GET /health", "", func(w http.ResponseWriter, _ *http.Request) error { return reply(w, http.StatusOK, "ok") })
	s.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		envd.WriteError(w, api.NotFound("route", r.Method+" "+r.URL.Path))
	})
	return s, nil
}

// Close ends builds, watchers and the schedule.
func (s *Server) Close() {
	s.builds.Close()
	s.pauses.close()
	s.inside.agent.Close()
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	front.Stranger(w, r)
	defer resetIfBroken(w)
	id, port, err := target(r)
	if err == nil && id == "" && r.URL.Path == "/files" && r.URL.Query().Has("signature") {
		s.inside.serveSigned(w, r)
		return
	}
	if err != nil {
		envd.WriteError(w, err)
		return
	}
	if id == "" {
		s.mux.ServeHTTP(w, r)
		return
	}
	s.inside.serve(w, r, id, port)
}

// resetIfBroken resets the connection of an answer that breaks off, instead of closing it: clients of HTTP/1 know a
// reset as a failure of the connection. HTTP/2 resets the stream by itself.
func resetIfBroken(w http.ResponseWriter) {
	broken := recover()
	if broken == nil {
		return
	}
	if broken == http.ErrAbortHandler {
		if conn, buffered, err := http.NewResponseController(w).Hijack(); err == nil {
			_ = buffered.Flush() // the client may be gone
			peer.Reset(conn)
		}
	}
	panic(broken)
}

// route serves a request about sandboxes as wholes, whose API key must have scope admin for changes. action
// is the name of the change in the audit; empty for none.
func (s *Server) route(pattern, action string, handle func(http.ResponseWriter, *http.Request) error) {
	need := api.ScopeRead
	if action != "" {
		need = api.ScopeAdmin
	}
	s.routeFor(need, pattern, action, handle)
}

// routeFor is route for an API key of a scope.
func (s *Server) routeFor(need api.Scope, pattern, action string, handle func(http.ResponseWriter, *http.Request) error) {
	s.routes = append(s.routes, pattern)
	s.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		session, err := sessionOf(s.svc, r, need)
		if name := r.PathValue("id"); err == nil && strings.Contains(pattern, "/sandboxes/{id}") && !api.IsID(api.KindSandbox, inner(name)) {
			writeError(w, api.NotFound("sandbox", name))
			return
		}
		if err == nil {
			var end context.CancelFunc
			r, end = front.During(r, session)
			defer end()
		}
		ctx := r.Context()
		if err == nil && action != "" {
			err = s.svc.AuditReady()
			if r.Method == http.MethodDelete {
				err = nil // it frees space
			}
		}
		if err != nil {
			envd.WriteError(w, err)
			return
		}
		if action != "" {
			var note *audit.Note
			ctx, note = audit.Begin(ctx, action, "")
			defer func() { s.svc.AppendAudit(note.Entry()) }()
		}
		front.Body(w, r, maxBody)
		if err := handle(w, r.WithContext(ctx)); err != nil {
			audit.Of(ctx).Failed(api.CodeOf(err))
			writeError(w, err)
		}
	})
}

// maxBody bounds a request.
const maxBody = 4 << 20

// Routes returns what the server answers, as METHOD /path: of the service, and of agents and interpreters in sandboxes.
func (s *Server) Routes() (own, inside []string) {
	return slices.Clone(s.routes), slices.Concat(s.inside.agent.Routes(), interpreter.Routes())
}

// sessionOf returns the session of the API key of a request, which must have a scope.
func sessionOf(svc service.Tokens, r *http.Request, need api.Scope) (*service.Session, error) {
	secret, err := secretOf(r)
	if err != nil {
		return nil, err
	}
	session, err := svc.Authenticate(r.Context(), secret, false)
	if err != nil {
		return nil, err
	}
	if !session.Caller.Scope.Covers(need) {
		return nil, api.Errorf(api.CodeForbidden, "the API key has scope %s, and this needs %s", session.Caller.Scope, need)
	}
	return session, nil
}

// secretOf returns the token of Ramet of a request: its API key, in either form.
func secretOf(r *http.Request) (string, error) {
	key := r.Header.Get("X-API-KEY")
	if bearer, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok && key == "" {
		key = bearer
	}
	if key == "" {
		return "", api.Errorf(api.CodeUnknownUser, "no API key was given: set E2B_API_KEY to a token of 'ramet token create --e2b'")
	}
	secret, err := httpwire.SecretOfE2BKey(key)
	if err != nil {
		return "", api.Errorf(api.CodeUnknownUser, "%w", err)
	}
	return secret, nil
}

// reply answers with JSON.
func reply(w http.ResponseWriter, status int, v any) error {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client is gone
	return nil
}

// replyError answers with an error as clients read it.
func replyError(w http.ResponseWriter, status int, message string) error {
	return reply(w, status, map[string]any{"code": status, "message": message})
}

// writeError answers with an error about a sandbox as a whole: one that is not there is 404 here.
func writeError(w http.ResponseWriter, err error) {
	if api.CodeOf(err) == api.CodeNotFound {
		_ = replyError(w, http.StatusNotFound, err.Error())
		return
	}
	envd.WriteError(w, err)
}

// unknown returns the error of a name in a path: one that nothing can have is that of nothing.
func unknown(what, name string, err error) error {
	if api.CodeOf(err) == api.CodeInvalid {
		return api.NotFound(what, name)
	}
	return err
}

// read reads a request, whose body may be empty.
func read(r *http.Request, v any) error {
	err := json.NewDecoder(r.Body).Decode(v)
	if err != nil && !errors.Is(err, io.EOF) {
		return api.Invalid("body", "it is not the JSON that is expected: %v", err)
	}
	return nil
}
