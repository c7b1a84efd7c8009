package dataplane

import (
	"cmp"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"ramet.dev/ramet/internal/server/rest/answer"
	"ramet.dev/ramet/internal/server/rest/auth"
	"ramet.dev/ramet/internal/server/rest/route"

	"github.com/danielgtaylor/huma/v2"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/httpwire"
	"ramet.dev/ramet/internal/peer"
	"ramet.dev/ramet/internal/server/portproxy"
	"ramet.dev/ramet/internal/service"
	"ramet.dev/ramet/internal/service/access"
)

// ports serves the TCP ports of sandboxes.
type ports struct {
	*answer.Reporter
	svc      portService
	browsers *Browsers
}

type portService interface {
	service.Ports
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
	by := auth.SessionOf(ctx)
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

// halfCloser is implemented by the connections of requests.
type halfCloser interface{ CloseWrite() error }

// portLinger is how long a server in a sandbox may take to answer a client that
// will not hear it.
const portLinger = time.Minute

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
	join(client, early, port, portLinger)
}

// join passes early, and then the bytes from client, to port, and the bytes from port to
// client.
func join(client net.Conn, early []byte, port service.PortConn, linger time.Duration) {
	peer.KeepAlive(client)
	var wg sync.WaitGroup
	wg.Go(func() {
		_, err := port.Write(early)
		if err == nil {
			_, err = copyAll(port, client)
		}
		if err == nil {
			err = port.CloseWrite()
		}
		if err != nil { // one side is broken: the other must not wait
			client.Close()
			port.Close()
		}
	})
	// A client that only ends its direction waits for an answer. A reader cannot tell it
	// from a client that is gone.
	defer peer.WhenGone(client, linger, func() { port.Close() })()
	_, err := copyAll(client, port)
	half, ok := client.(halfCloser)
	if err == nil && ok {
		err = half.CloseWrite()
	}
	if err != nil || !ok {
		peer.Reset(client)
		port.Close()
	}
	wg.Wait()
}

// tunnelBuffer is the size of a copy, in bytes.
const tunnelBuffer = 64 << 10

// copyAll copies with a buffer of tunnelBuffer bytes.
func copyAll(to io.Writer, from io.Reader) (int64, error) {
	return io.CopyBuffer(struct{ io.Writer }{to}, struct{ io.Reader }{from}, make([]byte, tunnelBuffer))
}
