package rest

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"

	"ramet.dev/ramet/internal/server/rest/answer"
	"ramet.dev/ramet/internal/server/rest/auth"
	"ramet.dev/ramet/internal/server/rest/dataplane"
	"ramet.dev/ramet/internal/server/rest/route"
	"ramet.dev/ramet/internal/server/rest/stream"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/httpwire"
	"ramet.dev/ramet/internal/server/front"
	"ramet.dev/ramet/internal/server/portproxy"
	"ramet.dev/ramet/internal/service"
)

// Requests for a web server in a sandbox are parsed and written anew by net/http, so that the
// server sees exactly one request however a client framed it. Each has a connection of its
// own, so that no bytes are left over for another request.

// proxied is the target that a request is passed on to.
type proxied struct {
	portproxy.Target
	// prefix is the beginning of the path, which the server does not see. It is empty if
	// the host of the request is that of the port.
	prefix string
	page   string // host of the server's pages, if they have one of their own
	wait   time.Duration
}

// server returns the host and port that the server in the sandbox sees as its own.
func (p *proxied) server() string { return "localhost:" + strconv.Itoa(int(p.Port)) }

type proxiedKey struct{}

// target returns the port that r is for, or nil if r is for this interface. Paths are
// compared as they were sent, and are not cleaned: a server in a sandbox may have any path.
func (x *portProxy) target(r *http.Request) (*proxied, error) {
	t, err := x.browsers.Hosts.Parse(r.Host)
	if err != nil {
		return nil, err
	}
	p := &proxied{}
	if t != nil {
		p.Target, p.page = *t, r.Host
	} else {
		parts := strings.SplitN(r.URL.EscapedPath(), "/", 7)
		if len(parts) < 7 || parts[1] != "v1" || parts[2] != "sandboxes" || parts[4] != "ports" || parts[5] == "published" {
			return nil, nil
		}
		if p.Ref, err = url.PathUnescape(parts[3]); err != nil {
			return nil, api.Invalid("id", "%q is not an id or name", parts[3])
		}
		if err := route.ValidSandbox(p.Ref); err != nil {
			return nil, err
		}
		if p.Port, err = portproxy.ParsePort(parts[5]); err != nil {
			return nil, err
		}
		p.prefix = strings.Join(parts[:6], "/")
	}
	p.wait, err = dataplane.ParseWait(r.Header.Get(httpwire.WaitHeader))
	return p, err
}

// portProxy passes requests on to web servers in sandboxes.
type portProxy struct {
	*answer.Reporter
	svc      service.Ports
	auth     *auth.Authenticator
	browsers *dataplane.Browsers
	reverse  *httputil.ReverseProxy
}

func newPortProxy(p *answer.Reporter, svc service.Ports, auth *auth.Authenticator, browsers *dataplane.Browsers) *portProxy {
	x := &portProxy{Reporter: p, svc: svc, auth: auth, browsers: browsers}
	x.reverse = x.newReverse()
	return x
}

// newReverse returns the proxy that passes requests on.
func (x *portProxy) newReverse() *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Rewrite: rewrite,
		Transport: &http.Transport{
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				p := ctx.Value(proxiedKey{}).(*proxied)
				return x.svc.DialPort(ctx, p.Ref, p.Port, p.wait)
			},
			DisableKeepAlives:      true,
			DisableCompression:     true,
			MaxResponseHeaderBytes: 1 << 20,
		},
		FlushInterval: -1, // streams are streams
		ModifyResponse: func(resp *http.Response) error {
			p := resp.Request.Context().Value(proxiedKey{}).(*proxied)
			for _, own := range []string{httpwire.RequestIDHeader, httpwire.InterfaceHeader} { // the daemon's own are there already
				resp.Header.Del(own)
			}
			portproxy.CleanResponse(resp.Header, p.prefix, p.page, p.server())
			return nil
		},
		ErrorLog: slog.NewLogLogger(x.Log.Handler(), slog.LevelDebug),
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			switch {
			case api.CodeOf(err) != api.CodeInternal:
			case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET):
				err = api.Errorf(api.CodeUnavailable, "the connection ended before the server in the sandbox had answered: the server or the sandbox ended")
			default:
				err = api.Errorf(api.CodeUnavailable, "the server in the sandbox did not answer as HTTP does: %w", err)
			}
			x.WriteProblem(w, r, err)
		},
	}
}

func rewrite(pr *httputil.ProxyRequest) {
	p := pr.In.Context().Value(proxiedKey{}).(*proxied)
	pr.Out.URL.Scheme, pr.Out.URL.Host, pr.Out.Host = "http", p.server(), p.server()
	portproxy.CleanRequest(pr.Out.Header, p.page, p.server())
	if p.prefix != "" {
		raw := strings.TrimPrefix(pr.In.URL.EscapedPath(), p.prefix)
		plain, err := url.PathUnescape(raw)
		if err != nil {
			plain = raw // it was parsed before
		}
		pr.Out.URL.Path, pr.Out.URL.RawPath = plain, raw
		pr.Out.Header.Set("X-Forwarded-Prefix", p.prefix)
	} else {
		pr.Out.Header.Del("X-Forwarded-Prefix")
	}
	pr.Out.URL.RawQuery = pr.In.URL.RawQuery // unchanged: the server checks it
	pr.SetXForwarded()
}

var (
	errNavigation  = api.Errorf(api.CodeForbidden, "pages of sandboxes are not shown here, where others would be theirs too: open the URL that `ramet port SBX PORT --url` prints, or POST …/port-sessions returns")
	errForeignPage = api.Errorf(api.CodeForbidden, "a page of another host asks for this: only pages of this host may")
	errNoSession   = api.Errorf(api.CodeUnknownUser, "this browser was not let in, or its time is over: open the URL that `ramet port SBX PORT --url` prints, or POST …/port-sessions returns")
)

// serve passes a request on if its caller may reach the port.
func (x *portProxy) serve(w *responseWriter, r *http.Request, p *proxied) {
	code, query := portproxy.CutCode(r.URL.RawQuery)
	if code != "" && p.prefix == "" && r.Method == http.MethodGet {
		x.beginSession(w, r, p, code, query)
		return
	}
	s, err := x.authenticate(r, p)
	if err == nil {
		err = auth.RightOf(auth.ProxyRoute).Allow(s.Caller)
	}
	if err != nil {
		front.Stranger(w, r)
		x.WriteProblem(w, r, err)
		return
	}
	r, end := front.During(r, s)
	defer end()
	stream.UnboundBody(r) // the server in the sandbox decides how long it waits
	x.reverse.ServeHTTP(finalWriter{w, w.Header().Get(httpwire.RequestIDHeader)}, r.WithContext(context.WithValue(r.Context(), proxiedKey{}, p)))
}

// authenticate returns the session of a request for a port: of a program by its token or its
// connection, of a browser by its cookie. A token in the URL is ignored.
func (x *portProxy) authenticate(r *http.Request, p *proxied) (*service.Session, error) {
	secret, inURL := auth.TakeSecret(r)
	if p.prefix != "" {
		if portproxy.Navigates(r) {
			return nil, errNavigation
		}
		return x.auth.Authenticate(r, secret, inURL, false)
	}
	if secret == "" || inURL {
		if s := x.browsers.Sessions.Find(x.browsers.Hosts.Secrets(r), p.Target); s != nil {
			if portproxy.Foreign(r) {
				return nil, errForeignPage
			}
			return &service.Session{Caller: s.Caller, Until: s.Until, Gone: s.Gone}, nil
		}
	}
	s, err := x.auth.Authenticate(r, secret, inURL, false)
	if err == auth.ErrNoToken {
		err = errNoSession
	}
	return s, err
}

// beginSession admits the browser that opens a URL with a code, and redirects it to the page
// without the code, which then is in no history and in no Referer.
func (x *portProxy) beginSession(w http.ResponseWriter, r *http.Request, p *proxied, code, query string) {
	front.Stranger(w, r)
	secret, until, err := x.browsers.Sessions.Redeem(code, p.Target)
	if err != nil {
		x.WriteProblem(w, r, err)
		return
	}
	// Two slashes would begin the name of a host.
	to := "/" + strings.TrimLeft(r.URL.EscapedPath(), "/")
	if query != "" {
		to += "?" + query
	}
	http.SetCookie(w, x.browsers.Hosts.Cookie(secret, int(time.Until(until).Seconds())))
	w.Header().Set("Location", to)
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Referrer-Policy", "no-referrer")
	w.WriteHeader(http.StatusSeeOther)
}

// finalWriter leaves out the informational answers of a server, which may have headers too. The proxy
// clears all headers after one, those of the daemon as well.
type finalWriter struct {
	*responseWriter
	requestID string
}

// WriteHeader shadows that of the responseWriter.
func (w finalWriter) WriteHeader(status int) {
	if status >= http.StatusOK || status == http.StatusSwitchingProtocols {
		w.Header().Set(httpwire.RequestIDHeader, w.requestID)
		w.Header().Set(httpwire.InterfaceHeader, api.InterfaceVersion)
		w.responseWriter.WriteHeader(status)
	}
}
