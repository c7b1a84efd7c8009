package rest

import (
	"context"
	"log/slog"
	"net/http"
	"os"
	"sync"

	"ramet.dev/ramet/internal/server/rest/answer"
	"ramet.dev/ramet/internal/server/rest/auth"
	"ramet.dev/ramet/internal/server/rest/control"
	"ramet.dev/ramet/internal/server/rest/dataplane"
	"ramet.dev/ramet/internal/server/rest/idempotent"
	"ramet.dev/ramet/internal/server/rest/openapi"
	"ramet.dev/ramet/internal/server/rest/route"
	"ramet.dev/ramet/internal/server/rest/stream"

	"github.com/danielgtaylor/huma/v2"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/server/portproxy"
	"ramet.dev/ramet/internal/server/rest/drain"
	"ramet.dev/ramet/internal/service"
)

// Config is the configuration of an API. Logger and Metrics may be nil.
type Config struct {
	Service service.Service
	// Identify may be nil: then every caller needs a token.
	Identify auth.Identify
	Version  string
	Logger   *slog.Logger
	// Metrics serves /metrics.
	Metrics http.Handler
	// PortHosts are the hosts of ports.
	PortHosts portproxy.Hosts
}

// API is the REST interface as an http.Handler.
type API struct {
	*answer.Reporter
	svc     service.Service
	version string
	metrics http.Handler
	router  *route.Router
	auth    *auth.Authenticator
	guard   *idempotent.Guard
	ports   *portProxy
	streams *stream.Streams
	gate    drain.Gate
	drain   context.CancelFunc
}

// New returns the REST interface to cfg.Service.
func New(cfg Config) *API {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	p, svc, browsers := answer.NewReporter(cfg.Logger), cfg.Service, dataplane.NewBrowsers(cfg.PortHosts)
	draining, drain := context.WithCancel(context.Background())
	a := &API{
		Reporter: p, svc: svc, version: cfg.Version, metrics: cfg.Metrics, drain: drain,
		router:  route.New(p, cfg.Version),
		auth:    auth.New(svc, cfg.Identify),
		guard:   idempotent.New(p, svc),
		streams: stream.New(p, draining),
	}
	a.ports = newPortProxy(p, svc, a.auth, browsers)
	a.routeHealth()
	a.routeMetrics()
	control.Register(a.router, a.streams, svc)
	dataplane.Register(a.router, a.streams, svc, browsers)
	a.routeOpenAPI()
	return a
}

// Drain refuses new requests, and makes /readyz answer that the daemon is about to end.
// Requests that are being served go on, except those without an end of their own: a client
// that follows something, or is attached to a process, can ask the next daemon.
func (a *API) Drain() {
	a.gate.Close()
	a.drain()
}

// Wait drains, and blocks until no request is being served, WebSockets included,
// which http.Server.Shutdown does not wait for.
func (a *API) Wait() { a.gate.Wait() }

func (a *API) routeHealth() {
	health := func(w http.ResponseWriter, r *http.Request) {
		h, status := api.Health{Status: "ok", Version: a.version, Interface: api.InterfaceVersion, PID: os.Getpid()}, http.StatusOK
		if a.gate.Closed() && r.URL.Path == "/readyz" {
			h.Status, status = "draining", http.StatusServiceUnavailable
		}
		answer.WriteJSON(w, status, "application/json", h)
	}
	for path, id := range map[string]string{"/healthz": "get-health", "/readyz": "get-readiness"} {
		a.router.Handle(http.MethodGet, path, health)
		a.router.Document(path, http.MethodGet, id, "Is the daemon alive, and does it take requests?", "daemon", route.JSONResponse(a.router, api.Health{}))
	}
}

// routeMetrics serves the metrics of the daemon. They are of all tenants, so only operators may
// read them, see auth.RightOf.
func (a *API) routeMetrics() {
	a.router.Handle(http.MethodGet, "/metrics", func(w http.ResponseWriter, r *http.Request) {
		if a.metrics == nil {
			a.WriteProblem(w, r, api.Errorf(api.CodeUnsupported, "this daemon counts nothing"))
			return
		}
		a.metrics.ServeHTTP(w, r)
	})
	a.router.Document("/metrics", http.MethodGet, "get-metrics", "What the daemon has and how long what took, for Prometheus", "daemon", map[string]*huma.Response{
		"200": {Description: http.StatusText(http.StatusOK), Content: map[string]*huma.MediaType{"text/plain": {Schema: &huma.Schema{Type: huma.TypeString}}}},
	})
}

// routeOpenAPI serves the document. It comes last: the document is of the routes that there
// are. It is rendered once, when somebody asks for it: few do, and it would be most of the
// time that New takes.
func (a *API) routeOpenAPI() {
	a.router.Document("/openapi.json", http.MethodGet, "get-openapi", "This document", "daemon", map[string]*huma.Response{
		"200": {Description: http.StatusText(http.StatusOK), Content: map[string]*huma.MediaType{
			"application/openapi+json": {Schema: &huma.Schema{Type: huma.TypeObject, AdditionalProperties: true}},
		}},
	})
	a.router.Complete()
	openapi.Complete(a.router)
	doc := sync.OnceValue(a.router.Render)
	a.router.Handle(http.MethodGet, "/openapi.json", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/openapi+json")
		_, _ = w.Write(doc())
	})
}

// Document returns the OpenAPI document of the interface, as JSON, for a daemon of this
// version.
func Document(version string) []byte {
	return New(Config{Service: unserved{}, Version: version}).router.Render()
}

// unserved stands for a service where none is called.
type unserved struct{ service.Service }
