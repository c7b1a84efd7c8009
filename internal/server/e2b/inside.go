package e2b

import (
	"cmp"
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/server/e2b/egress"
	"ramet.dev/ramet/internal/server/e2b/envd"
	"ramet.dev/ramet/internal/server/e2b/grant"
	"ramet.dev/ramet/internal/server/e2b/interpreter"
	"ramet.dev/ramet/internal/server/front"
	"ramet.dev/ramet/internal/server/portproxy"
	"ramet.dev/ramet/internal/service"
	"ramet.dev/ramet/internal/service/access"
	"ramet.dev/ramet/internal/service/audit"
)

// inside is what is in sandboxes: the agent, the interpreter, and servers at ports.
type inside struct {
	svc    service.Service
	grants *grant.Grants
	log    *slog.Logger
	agent  *envd.Agent
	cells  *interpreter.Interpreter
}

var hostPattern = regexp.MustCompile(`^([0-9]{1,5})-([a-z0-9]{16})\.`)

// target returns the sandbox and the port that a request is for; neither if it is for the service. A request says it by
// headers, or by the name of its host, whatever the domain is: also without TLS, as proxies pass it on.
func target(r *http.Request) (id string, port int, err error) {
	name, number := r.Header.Get("E2b-Sandbox-Id"), r.Header.Get("E2b-Sandbox-Port")
	if name == "" {
		m := hostPattern.FindStringSubmatch(strings.ToLower(r.Host))
		if m == nil {
			return "", 0, nil
		}
		name, number = m[2], m[1]
	}
	if number == "" {
		number = strconv.Itoa(agentPort)
	}
	p, err := strconv.ParseUint(number, 10, 16)
	if err != nil || p == 0 {
		return "", 0, api.Invalid("E2b-Sandbox-Port", "%.40q is not a port from 1 to 65535", number)
	}
	id = inner(strings.ToLower(name))
	if !api.IsID(api.KindSandbox, id) {
		return "", 0, api.NotFound("sandbox", name)
	}
	return id, int(p), nil
}

const idPrefix = string(api.KindSandbox) + "_"

// outer and inner turn ids of sandboxes into those that clients have, which can stand in the names of
// hosts, and back.
func outer(id string) string { return strings.TrimPrefix(id, idPrefix) }

func inner(id string) string {
	if strings.HasPrefix(id, idPrefix) {
		return id
	}
	return idPrefix + id
}

// find returns a sandbox without what it uses.
func find(ctx context.Context, svc service.Sandboxes, id string) (*api.Sandbox, error) {
	all, err := svc.List(ctx, api.ListFilter{})
	if err != nil {
		return nil, err
	}
	for i := range all {
		if all[i].ID == id {
			return &all[i], nil
		}
	}
	return nil, api.NotFound("sandbox", outer(id))
}

// serveSigned serves a request for a file whose URL is signed and does not name the sandbox: the signature says which.
func (s *inside) serveSigned(w http.ResponseWriter, r *http.Request) {
	ctx, err := access.WithAllTenants(access.With(r.Context(), access.Owner(0)))
	if err != nil {
		envd.WriteError(w, err)
		return
	}
	all, err := s.svc.List(ctx, api.ListFilter{})
	if err != nil {
		envd.WriteError(w, err)
		return
	}
	among := make([]grant.Sandbox, len(all))
	for i := range all {
		among[i] = grant.Sandbox{Tenant: access.OfRecord(all[i].Tenant), ID: all[i].ID}
	}
	id, session, err := s.grants.Signer(r.Context(), r.URL.Query(), operationOf(r), among, time.Now())
	if err != nil {
		envd.WriteError(w, err)
		return
	}
	s.serveAs(w, r, id, agentPort, session)
}

// operationOf returns what a signature allows, so that r is allowed.
func operationOf(r *http.Request) string {
	if r.Method == http.MethodGet {
		return "read"
	}
	return "write"
}

// insider returns the session by which a request may use a sandbox: that of the key which its access token or its
// signature is derived from, or one of nobody if the port is public.
func (s *inside) insider(r *http.Request, id string, port int) (*service.Session, error) {
	token := r.Header.Get("X-Access-Token")
	if token == "" {
		token = r.Header.Get("E2B-Traffic-Access-Token")
	}
	if token != "" {
		return s.grants.Check(r.Context(), grant.Access, id, token)
	}
	ctx, err := access.WithAllTenants(access.With(r.Context(), access.Owner(0)))
	if err != nil {
		return nil, err
	}
	sb, err := find(ctx, s.svc, id)
	if err != nil {
		return nil, err
	}
	tenant := access.OfRecord(sb.Tenant)
	switch port {
	case agentPort: // a signature is for a file, and not for a server that has the same path
		if r.URL.Path == "/files" && r.URL.Query().Has("signature") {
			_, session, err := s.grants.Signer(r.Context(), r.URL.Query(), operationOf(r), []grant.Sandbox{{Tenant: tenant, ID: id}}, time.Now())
			return session, err
		}
	case interpreterPort:
	default:
		if sb.Labels()[metaPublic] == "true" && r.Header.Get("X-API-KEY") == "" {
			return &service.Session{Caller: access.Caller{Tenant: tenant}}, nil
		}
	}
	return nil, grant.ErrAccess
}

// serve serves a request for the agent, the interpreter or a port of a sandbox. Its caller sees this
// sandbox alone.
func (s *inside) serve(w http.ResponseWriter, r *http.Request, id string, port int) {
	if port == agentPort && r.URL.Path == "/health" && r.Header.Get("X-Access-Token") == "" {
		s.health(w, r, id)
		return
	}
	session, err := s.insider(r, id, port)
	if err != nil {
		envd.WriteError(w, err)
		return
	}
	s.serveAs(w, r, id, port, session)
}

// serveAs serves a request of a session.
func (s *inside) serveAs(w http.ResponseWriter, r *http.Request, id string, port int, session *service.Session) {
	r, end := front.During(r, session.As(access.Caller{Tenant: session.Caller.Tenant, Scope: api.ScopeExec, Sandbox: id, Token: session.Caller.Token}))
	defer end()
	ctx := r.Context()
	if err := s.svc.AuditReady(); err != nil && r.Method != http.MethodGet {
		envd.WriteError(w, err)
		return
	}
	if action := actionOf(r, port); action != "" {
		var note *audit.Note
		ctx, note = audit.Begin(ctx, action, "")
		note.Object(id)
		answer := &statusWriter{ResponseWriter: w}
		w = answer
		defer func() {
			if answer.status >= http.StatusBadRequest {
				note.Failed(api.CodeInvalid) // unless the handler knew it better
			}
			s.svc.AppendAudit(note.Entry())
		}()
	}
	r = r.WithContext(ctx)
	sb, err := find(ctx, s.svc, id)
	if err == nil && !answers(sb) {
		err = api.NotFound("sandbox", outer(id))
	}
	if err != nil {
		audit.Of(ctx).Failed(api.CodeOf(err))
		envd.WriteError(w, err)
		return
	}
	user, dir := worker(sb)
	switch port {
	case agentPort:
		if r.URL.Path == envd.StreamInput {
			front.Unbound(w) // a terminal may be silent
		} else {
			front.Body(w, r, 0) // the agent counts
		}
		s.agent.Serve(w, r, envd.Sandbox{ID: id, Default: user, Dir: dir, Env: map[string]string{"E2B_SANDBOX": "true", "E2B_SANDBOX_ID": outer(id)}})
	case interpreterPort:
		front.Body(w, r, 0) // the interpreter counts
		s.cells.Serve(w, r, id, user, plain(templateOf(sb)) == templateCode)
	default:
		s.proxy(w, r, id, port, egress.Mask(sb.Labels()[metaMask], port))
	}
}

// statusWriter remembers the status of an answer.
type statusWriter struct {
	http.ResponseWriter
	status int
}

func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap lets http.ResponseController reach the server's own writer.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Flush implements http.Flusher, which the library of the Connect protocol asks for.
func (w *statusWriter) Flush() { _ = http.NewResponseController(w.ResponseWriter).Flush() }

// actionOf returns the name of a request in the audit, or nothing if it has no entry, as requests to servers in the
// sandbox have none.
func actionOf(r *http.Request, port int) string {
	path := r.URL.Path
	switch {
	case port == agentPort && path == "/files" && r.Method == http.MethodPost:
		return "write-file"
	case port == interpreterPort && path == "/contexts" && r.Method == http.MethodPost:
		return "create-context"
	case port == interpreterPort && strings.HasPrefix(path, "/contexts/") && r.Method == http.MethodDelete:
		return "delete-context"
	case port == interpreterPort && strings.HasPrefix(path, "/contexts/") && r.Method == http.MethodPost:
		return "restart-context"
	case port == agentPort || port == interpreterPort:
		return actions[path]
	}
	return ""
}

// actions are the names in the audit of what the agent and the interpreter change, which are those of the
// same operations of the REST interface.
var actions = map[string]string{
	"/process.Process/Start": "start-process", "/process.Process/SendSignal": "signal-process",
	"/filesystem.Filesystem/MakeDir": "make-directory", "/filesystem.Filesystem/Move": "move-file", "/filesystem.Filesystem/Remove": "remove-file",
	"/files/compose": "write-file", "/execute": "run-code",
}

// health answers whether a sandbox runs, which needs no token.
func (s *inside) health(w http.ResponseWriter, r *http.Request, id string) {
	ctx, err := access.WithAllTenants(access.With(r.Context(), access.Owner(0)))
	if err == nil {
		var sb *api.Sandbox
		if sb, err = find(ctx, s.svc, id); err == nil && sb.State != api.StateRunning {
			err = api.NotFound("sandbox", outer(id))
		}
	}
	if err != nil {
		envd.WriteError(w, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// ours are the headers of requests that are for this server.
var ours = []string{"X-Access-Token", "X-API-KEY", "E2B-Traffic-Access-Token", "E2b-Sandbox-Id", "E2b-Sandbox-Port"}

// proxy passes a request on to a port of a sandbox: without what is for the daemon, and the answer without headers that
// affect more than the server's own pages. mask is the host that the server sees, empty for the one that was asked for.
func (s *inside) proxy(w http.ResponseWriter, r *http.Request, id string, port int, mask string) {
	front.Unbound(w)                               // the server in the sandbox decides how long it waits
	shared := r.Header.Get("E2b-Sandbox-Id") != "" // the origin, with other sandboxes
	ctx := r.Context()
	transport := &http.Transport{
		DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: 1 << 20,
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			return s.svc.DialPort(ctx, id, uint16(port), 0)
		},
	}
	(&httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(&url.URL{Scheme: "http", Host: "127.0.0.1:" + strconv.Itoa(port)})
			p.Out.Host = cmp.Or(mask, p.In.Host)
			for _, h := range ours {
				p.Out.Header.Del(h)
			}
			portproxy.CleanRequest(p.Out.Header, "", "")
			_, p.Out.URL.RawQuery = portproxy.CutToken(p.In.URL.RawQuery)
			p.SetXForwarded()
		},
		ModifyResponse: func(resp *http.Response) error {
			portproxy.CleanResponse(resp.Header, "", r.Host, r.Host)
			if shared {
				resp.Header.Del("Service-Worker-Allowed")
			}
			return nil
		},
		Transport: transport, FlushInterval: -1, ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			if api.CodeOf(err) == api.CodeUnavailable {
				_ = replyError(w, http.StatusBadGateway, "The sandbox is running but port is not open")
				return
			}
			envd.WriteError(w, err)
		},
	}).ServeHTTP(portproxy.Final(w), r)
}

// answers reports whether requests reach a sandbox: one that is paused is as if it were not there, unless they wake it.
func answers(sb *api.Sandbox) bool {
	switch sb.State {
	case api.StatePaused:
		return false
	case api.StateHibernated:
		return sb.Lifecycle != nil && sb.Lifecycle.AutoWake
	}
	return true
}

// worker returns who works in a sandbox, and where, unless a request says otherwise.
func worker(sb *api.Sandbox) (user, dir string) {
	labels := sb.Labels()
	user, dir = cmp.Or(labels[metaUser], sb.User), labels[metaDir]
	if sb.Cwd != "/" && user == "" {
		dir = cmp.Or(dir, sb.Cwd)
	}
	return user, dir
}
