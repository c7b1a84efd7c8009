package rest

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"os"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/httpwire"
	"ramet.dev/ramet/internal/server/portproxy"
	"ramet.dev/ramet/internal/server/rest/drain"
	"ramet.dev/ramet/internal/service"
)

// The bounds of a request.
const (
	maxBody  = 1 << 20
	maxStdin = 8 << 20
	// maxExecBody leaves room for what JSON escapes in text of maxStdin bytes.
	maxExecBody = 2*maxStdin + maxBody
	// bodyTimeout is how long a client may take to send a body.
	bodyTimeout = 30 * time.Second
)

// Config says what an API serves. Logger and Metrics may be nil.
type Config struct {
	Service service.Service
	// Identify may be nil: then everybody needs a token.
	Identify Identify
	Version  string
	Logger   *slog.Logger
	// Metrics serves /metrics.
	Metrics http.Handler
	// PortHosts are the hosts of ports.
	PortHosts portproxy.Hosts
}

// API is the REST interface as an http.Handler.
type API struct {
	svc     service.Service
	whois   Identify
	version string
	metrics http.Handler
	log     *slog.Logger
	mux     *http.ServeMux
	huma    huma.API
	reverse *httputil.ReverseProxy
	hosts   portproxy.Hosts
	browses *portproxy.Sessions
	// readTimeout is shorter in tests.
	readTimeout time.Duration
	gate        drain.Gate
	flights     flights
	// draining ends with Drain, and what only follows something ends with it.
	draining context.Context
	drain    context.CancelFunc
	// operations are the routes as the document describes them.
	operations map[string]*huma.Operation
	// rendered is the document as JSON.
	rendered []byte
}

// New returns the REST interface to cfg.Service.
func New(cfg Config) *API {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	a := &API{svc: cfg.Service, whois: cfg.Identify, version: cfg.Version, metrics: cfg.Metrics, log: cfg.Logger, mux: http.NewServeMux(), hosts: cfg.PortHosts, browses: portproxy.NewSessions(), readTimeout: readTimeout}
	a.draining, a.drain = context.WithCancel(context.Background())
	a.reverse = a.newProxy()
	a.huma = humago.New(router{a.mux}, humaConfig(cfg.Version))
	a.routeHealth()
	a.routeMetrics()
	a.routeImages()
	a.routeSandboxes()
	a.routeExec()
	a.routeFiles()
	a.routeEvents()
	a.routeProcesses()
	a.routePorts()
	a.routeContexts()
	a.routeForks()
	a.routeSnapshots()
	a.routeTimeline()
	a.routeExports()
	a.routeTokens()
	a.routeAudit()
	a.routeTenants()
	a.routeOpenAPI()
	return a
}

// Drain refuses new requests, and makes /readyz say that the daemon is about to end.
// Those that are being served go on, but for those that have no end of their own: who
// follows something, or is attached to a process, may ask the next daemon.
func (a *API) Drain() {
	a.gate.Close()
	a.drain()
}

// Wait drains, and blocks until no request is being served, WebSockets included,
// which http.Server.Shutdown does not wait for.
func (a *API) Wait() { a.gate.Wait() }

// router lets the parameter of an image route span slashes, which the mux
// writes in a way that OpenAPI does not know.
type router struct{ *http.ServeMux }

// HandleFunc shadows that of the mux.
func (r router) HandleFunc(pattern string, handler func(http.ResponseWriter, *http.Request)) {
	if prefix, ok := strings.CutSuffix(pattern, "{ref}"); ok {
		pattern = prefix + "{ref...}"
	}
	r.ServeMux.HandleFunc(pattern, handler)
}

// humaConfig turns off everything of the framework that is not in our
// interface: its documentation pages and the $schema member of bodies.
func humaConfig(version string) huma.Config {
	cfg := huma.DefaultConfig("Ramet", version)
	cfg.OpenAPIPath, cfg.DocsPath, cfg.SchemasPath = "", "", ""
	cfg.CreateHooks = nil
	cfg.Formats = map[string]huma.Format{"application/json": textFormat, "json": textFormat}
	cfg.Components.SecuritySchemes = securitySchemes()
	cfg.Info.Description = "Ramet forks live sandboxes. Errors are RFC 9457 problem documents whose member `code` programs may decide on."
	return cfg
}

// textFormat is the framework's JSON, which refuses bodies that are no text.
var textFormat = huma.Format{
	Marshal: huma.DefaultJSONFormat.Marshal,
	Unmarshal: func(data []byte, v any) error {
		if err := httpwire.CheckText(data); err != nil {
			return err
		}
		return huma.DefaultJSONFormat.Unmarshal(data, v)
	},
}

func (a *API) routeHealth() {
	health := func(w http.ResponseWriter, r *http.Request) {
		h, status := api.Health{Status: "ok", Version: a.version, PID: os.Getpid()}, http.StatusOK
		if a.gate.Closed() && r.URL.Path == "/readyz" {
			h.Status, status = "draining", http.StatusServiceUnavailable
		}
		writeJSON(w, status, "application/json", h)
	}
	for path, id := range map[string]string{"/healthz": "get-health", "/readyz": "get-readiness"} {
		a.mux.HandleFunc("GET "+path, health)
		a.document(path, http.MethodGet, id, "Is the daemon alive, and does it take requests?", "daemon", jsonResponse(a, api.Health{}))
	}
}

// routeMetrics serves what the daemon counts: of all tenants, so it is not for each of
// them, see rightOf.
func (a *API) routeMetrics() {
	a.mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		if a.metrics == nil {
			a.writeProblem(w, r, api.Errorf(api.CodeUnsupported, "this daemon counts nothing"))
			return
		}
		a.metrics.ServeHTTP(w, r)
	})
	a.document("/metrics", http.MethodGet, "get-metrics", "What the daemon has and how long what took, for Prometheus", "daemon", map[string]*huma.Response{
		"200": {Description: http.StatusText(http.StatusOK), Content: map[string]*huma.MediaType{"text/plain": {Schema: &huma.Schema{Type: huma.TypeString}}}},
	})
}
