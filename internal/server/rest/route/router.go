package route

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"ramet.dev/ramet/internal/server/rest/answer"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"ramet.dev/ramet/internal/httpwire"
)

// The bounds of a body.
const (
	maxBody  = 1 << 20
	MaxStdin = 8 << 20
	// MaxExecBody has room for MaxStdin bytes of text with the escapes of JSON.
	MaxExecBody = 2*MaxStdin + maxBody
)

// Router has the routes of the interface, and the document that describes them.
type Router struct {
	*answer.Reporter
	mux  *http.ServeMux
	huma huma.API
	// Operations are the routes as the document describes them, by "METHOD /path". They are
	// complete once Complete was called.
	Operations map[string]*huma.Operation
}

// New returns a router without routes, for a daemon of this version.
func New(p *answer.Reporter, version string) *Router {
	mux := http.NewServeMux()
	r := &Router{Reporter: p, mux: mux, huma: humago.New(slashMux{mux}, humaConfig(version))}
	registerForms(r.huma.OpenAPI().Components.Schemas)
	return r
}

// Handle adds a route that the framework does not serve. Document describes it.
func (r *Router) Handle(method, path string, handler http.HandlerFunc) {
	r.mux.HandleFunc(method+" "+path, handler)
}

// ServeHTTP implements http.Handler. The request must have a route, see Match.
func (r *Router) ServeHTTP(w http.ResponseWriter, req *http.Request) { r.mux.ServeHTTP(w, req) }

// Complete ends the registration of routes: Operations has all of them.
func (r *Router) Complete() {
	r.Operations = map[string]*huma.Operation{}
	for path, item := range r.huma.OpenAPI().Paths {
		for method, op := range map[string]*huma.Operation{"GET": item.Get, "PUT": item.Put, "POST": item.Post, "DELETE": item.Delete, "PATCH": item.Patch, "HEAD": item.Head} {
			if op != nil {
				r.Operations[method+" "+path] = op
			}
		}
	}
}

// OpenAPI returns the document that the routes add to.
func (r *Router) OpenAPI() *huma.OpenAPI { return r.huma.OpenAPI() }

// Render returns the document as JSON.
func (r *Router) Render() []byte {
	doc, err := json.Marshal(r.huma.OpenAPI())
	if err != nil {
		panic("render OpenAPI document: " + err.Error()) // the types of the interface cannot be described: a defect
	}
	return doc
}

// Match returns the handler of a request, and the pattern of its route as the document
// writes it. The pattern is empty, and the handler says which methods there are, if the
// request has no route.
func (r *Router) Match(req *http.Request) (handler http.Handler, route string) {
	handler, pattern := r.mux.Handler(req)
	if prefix, ok := strings.CutSuffix(pattern, "/{ref...}"); ok && prefix == req.Method+" "+req.URL.Path {
		return r.otherMethods(req.URL.Path), "" // the mux would redirect to the path with a slash
	}
	return handler, documentedRoute(pattern)
}

// otherMethods answers as the mux does where a path has other methods than that of the
// request.
func (r *Router) otherMethods(path string) http.Handler {
	var allow []string
	for _, op := range r.Operations {
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

// slashMux lets the parameter of an image route span slashes. The mux has a notation for that
// which OpenAPI does not have.
type slashMux struct{ *http.ServeMux }

// HandleFunc shadows that of the mux.
func (r slashMux) HandleFunc(pattern string, handler func(http.ResponseWriter, *http.Request)) {
	if prefix, ok := strings.CutSuffix(pattern, "{ref}"); ok {
		pattern = prefix + "{ref...}"
	}
	r.ServeMux.HandleFunc(pattern, handler)
}

// humaConfig turns off the parts of the framework that are not in the interface: its
// documentation pages and the $schema member of bodies.
func humaConfig(version string) huma.Config {
	cfg := huma.DefaultConfig("Ramet", version)
	cfg.OpenAPIPath, cfg.DocsPath, cfg.SchemasPath = "", "", ""
	cfg.CreateHooks = nil
	cfg.Formats = map[string]huma.Format{"application/json": textFormat, "json": textFormat}
	cfg.Components.SecuritySchemes = securitySchemes()
	cfg.Info.Description = "Ramet forks live sandboxes. Errors are RFC 9457 problem documents, whose member `code` is for programs."
	return cfg
}

// textFormat is the framework's JSON format. It refuses bodies that are not UTF-8.
var textFormat = huma.Format{
	Marshal: huma.DefaultJSONFormat.Marshal,
	Unmarshal: func(data []byte, v any) error {
		if err := httpwire.CheckText(data); err != nil {
			return err
		}
		return huma.DefaultJSONFormat.Unmarshal(data, v)
	},
}
