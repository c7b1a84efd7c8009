package dataplane

import (
	"cmp"
	"context"
	"io"
	"net/http"
	"strings"
	"time"

	"ramet.dev/ramet/internal/server/front"
	"ramet.dev/ramet/internal/server/rest/answer"
	"ramet.dev/ramet/internal/server/rest/route"

	"github.com/danielgtaylor/huma/v2"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/httpwire"
	"ramet.dev/ramet/internal/server/portproxy"
	"ramet.dev/ramet/internal/service"
	"ramet.dev/ramet/internal/service/access"
	"ramet.dev/ramet/internal/tunnel"
)

// ports serves the TCP ports of sandboxes.
type ports struct {
	*answer.Reporter
	svc      portService
	browsers *Browsers
}

type portService interface {
	service.Ports
	service.PublishedPorts
	Get(ctx context.Context, ref string) (*api.Sandbox, error)
}

// maxPortWait bounds how long a request waits for a listener.
const maxPortWait = 10 * time.Minute

func (h *ports) routePorts(r *route.Router) {
	const tag, ports = "ports", "/v1/sandboxes/{id}/ports"
	route.Register(r, route.Operation(http.MethodGet, ports, "list-ports", tag, "List the ports that processes in a sandbox listen on", route.StatusNotFound, route.StatusConflict), h.listPorts)
	r.Handle(http.MethodGet, ports+"/{port}", h.onePort)
	param := func(name, in, doc string, schema *huma.Schema) *huma.Param {
		return &huma.Param{Name: name, In: in, Required: in == "path", Description: doc, Schema: schema}
	}
	route.Register(r, route.WithStatus(route.Operation(http.MethodPost, "/v1/sandboxes/{id}/port-sessions", "open-port-session", tag, "Let a browser reach a port",
		route.StatusNotFound, route.StatusTooLarge, route.StatusUnsupported), http.StatusCreated), h.openPortSession)
	const published = ports + "/published"
	route.Register(r, route.Operation(http.MethodGet, published, "list-published-ports", tag, "List the ports of the host that lead to a sandbox", route.StatusNotFound), h.listPublished)
	route.Register(r, route.WithStatus(route.Operation(http.MethodPost, published, "publish-port", tag, "Listen on a port of the host that leads to a port of a sandbox",
		route.StatusNotFound, route.StatusTooLarge, route.StatusUnsupported, route.StatusTooMany), http.StatusCreated), h.publishPort)
	route.Register(r, route.Operation(http.MethodDelete, published+"/{hostport}", "unpublish-port", tag, "End a published port, with its connections", route.StatusNotFound), h.unpublishPort)
	id := param("id", "path", "id or name", &huma.Schema{Type: huma.TypeString})
	lowest, highest := 1.0, 65535.0
	port := param("port", "path", "TCP port", &huma.Schema{Type: huma.TypeInteger, Minimum: &lowest, Maximum: &highest})
	responses := route.JSONResponse(r, api.Port{})
	responses["101"] = &huma.Response{Description: http.StatusText(http.StatusSwitchingProtocols)}
	r.Document(ports+"/{port}", http.MethodGet, "reach-port", "Wait for a port, or connect to it", tag, responses, id, port,
		param("wait", "query", "how long to wait, such as 10s; at most 10m, and not at all if absent", &huma.Schema{Type: huma.TypeString}))
	r.Document(ports+"/{port}/{path}", http.MethodGet, "proxy-port", "Pass a request on to a web server in a sandbox", tag,
		map[string]*huma.Response{"200": {Description: "The answer of the server in the sandbox, with its status", Content: route.BytesOf("*/*")}},
		id, port, param("path", "path", "path for the server; may have slashes", &huma.Schema{Type: huma.TypeString}),
		param(httpwire.WaitHeader, "header", "how long to wait until somebody listens, as above", &huma.Schema{Type: huma.TypeString}))
}

func (h *ports) listPorts(ctx context.Context, in *route.IDInput) (*route.Out[httpwire.List[api.Port]], error) {
	if err := route.ValidSandbox(in.ID); err != nil {
		return nil, err
	}
	l, err := h.svc.Ports(ctx, in.ID)
	return route.AnswerList(l, err)
}

func ParseWait(s string) (time.Duration, error) {
	if s == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 || d > maxPortWait {
		return 0, api.Invalid("wait", "%q is not a time of 0s to 10m", s)
	}
	return d, nil
}

// onePort waits for a port, or becomes a connection to it.
func (h *ports) onePort(w http.ResponseWriter, r *http.Request) {
	ref := r.PathValue("id")
	port, err := portproxy.ParsePort(r.PathValue("port"))
	if err == nil {
		err = route.ValidSandbox(ref)
	}
	var wait time.Duration
	if err == nil {
		wait, err = ParseWait(r.URL.Query().Get("wait"))
	}
	if err != nil {
		h.WriteProblem(w, r, err)
		return
	}
	upgrade := strings.EqualFold(r.Header.Get("Upgrade"), "tcp")
	conn, err := h.svc.DialPort(r.Context(), ref, port, wait)
	if err != nil {
		h.WriteProblem(w, r, err)
		return
	}
	defer conn.Close()
	if upgrade {
		h.tunnel(w, r, conn)
		return
	}
	ports, err := h.svc.Ports(r.Context(), ref)
	if err != nil {
		h.WriteProblem(w, r, err)
		return
	}
	found := api.Port{Port: int(port), Protocol: "tcp"}
	for _, p := range ports {
		if p.Port == found.Port && p.Protocol == found.Protocol {
			found = p
			break
		}
	}
	answer.WriteJSON(w, http.StatusOK, "application/json", found)
}

func (h *ports) listPublished(ctx context.Context, in *route.IDInput) (*route.Out[httpwire.List[api.PublishedPort]], error) {
	if err := route.ValidSandbox(in.ID); err != nil {
		return nil, err
	}
	l, err := h.svc.PublishedPorts(ctx, in.ID)
	return route.AnswerList(l, err)
}

type publishInput struct {
	ID   string `path:"id" doc:"id or name"`
	Body api.PublishRequest
}

func (h *ports) publishPort(ctx context.Context, in *publishInput) (*route.Out[*api.PublishedPort], error) {
	if err := route.ValidSandbox(in.ID); err != nil {
		return nil, err
	}
	p, err := h.svc.PublishPort(ctx, in.ID, in.Body)
	return route.Answer(p, err)
}

type unpublishInput struct {
	ID       string `path:"id" doc:"id or name"`
	HostPort int    `path:"hostport" minimum:"1" maximum:"65535" doc:"port of the host"`
}

func (h *ports) unpublishPort(ctx context.Context, in *unpublishInput) (*struct{}, error) {
	if err := route.ValidSandbox(in.ID); err != nil {
		return nil, err
	}
	return nil, h.svc.UnpublishPort(ctx, in.ID, in.HostPort)
}

type portSessionInput struct {
	ID   string `path:"id" doc:"id or name"`
	Body api.PortSessionRequest
}

func (h *ports) openPortSession(ctx context.Context, in *portSessionInput) (*route.Out[api.PortSession], error) {
	if err := route.ValidSandbox(in.ID); err != nil {
		return nil, err
	}
	path, err := portproxy.ParsePath(cmp.Or(in.Body.Path, "/"))
	if err != nil {
		return nil, err
	}
	s, err := h.svc.Get(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	if !h.browsers.Hosts.ForBrowsers() {
		return nil, api.Errorf(api.CodeUnsupported, "browsers cannot reach this daemon: let it listen for them, as in 'ramet serve --listen 127.0.0.1:7300', or with --tls-cert, --tls-key and --port-domain for those on other machines. 'ramet port SBX PORT' forwards a local port without that")
	}
	port := uint16(in.Body.Port) // its range was checked
	code, until := h.browsers.Sessions.Issue(portSession(ctx, s.ID, port))
	return route.Answer(api.PortSession{URL: h.browsers.Hosts.URL(s.ID, port, path, code), ExpiresAt: until.UTC()}, nil)
}

// portSession returns a session for a port, which ends with that of the caller.
func portSession(ctx context.Context, id string, port uint16) portproxy.Session {
	by := front.SessionOf(ctx)
	c := by.Caller
	return portproxy.Session{
		Sandbox: id, Port: port, Until: by.Until, Gone: by.Gone,
		Caller: access.Caller{Tenant: c.Tenant, Scope: api.ScopeExec, Sandbox: id, UID: c.UID, Token: c.Token},
	}
}

// Browsers lets browsers reach ports at hosts of their own, once they are admitted.
type Browsers struct {
	Hosts    portproxy.Hosts
	Sessions *portproxy.Sessions
}

func NewBrowsers(hosts portproxy.Hosts) *Browsers {
	return &Browsers{hosts, portproxy.NewSessions()}
}

// tunnel joins the connection of a request with one to a port until both
// directions have ended, the client is gone, or the daemon ends.
func (h *ports) tunnel(w http.ResponseWriter, r *http.Request, port service.PortConn) {
	client, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		h.WriteProblem(w, r, err)
		return
	}
	defer client.Close()
	defer context.AfterFunc(r.Context(), func() {
		client.Close()
		port.Close()
	})()
	answer := "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n" + httpwire.RequestIDHeader + ": " + answer.RequestID(r.Context()) + "\r\n\r\n"
	if _, err := io.WriteString(client, answer); err != nil {
		return // the client is gone
	}
	early, err := buffered.Reader.Peek(buffered.Reader.Buffered())
	if err != nil {
		return
	}
	tunnel.Join(client, early, port, tunnel.Linger)
}
