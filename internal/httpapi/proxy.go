package httpapi

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"time"

	"ramet.dev/ramet/internal/httpwire"
	"ramet.dev/ramet/internal/sandbox"
)

// What is passed on to a web server in a sandbox is read and written anew by
// net/http, so that the server sees exactly one request however a client framed
// it, and has a connection of its own, so that nothing is left over for another.

// proxied says where a request is passed on to.
type proxied struct {
	ref    string
	port   uint16
	prefix string // of the path, which the server does not see
	wait   time.Duration
}

type proxiedKey struct{}

// localSuffix ends host names that always mean this machine (RFC 6761).
const localSuffix = ".localhost"

// proxyTarget returns where r is to be passed on to, or nil if it is for this
// interface. Paths are compared as they were sent: a server in a sandbox may
// have any, and none is cleaned on the way.
func proxyTarget(r *http.Request) (*proxied, error) {
	host := r.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	if label, ok := strings.CutSuffix(strings.ToLower(host), localSuffix); ok {
		if port, ref, ok := strings.Cut(label, "-"); ok {
			return newProxied(r, ref, port, "")
		}
	}
	parts := strings.SplitN(r.URL.EscapedPath(), "/", 7)
	if len(parts) < 7 || parts[1] != "v1" || parts[2] != "sandboxes" || parts[4] != "ports" {
		return nil, nil
	}
	ref, err := url.PathUnescape(parts[3])
	if err != nil {
		return nil, sandbox.Invalid("id", "%q is not an id or name", parts[3])
	}
	return newProxied(r, ref, parts[5], strings.Join(parts[:6], "/"))
}

func newProxied(r *http.Request, ref, port, prefix string) (*proxied, error) {
	n, err := parsePort(port)
	if err != nil {
		return nil, err
	}
	if id := strings.Replace(ref, "-", "_", 1); prefix == "" && sandbox.IsID(sandbox.KindSandbox, id) {
		ref = id // names of hosts have no underscores
	}
	if err := validSandbox(ref); err != nil {
		return nil, err
	}
	wait, err := parseWait(r.Header.Get(httpwire.WaitHeader))
	return &proxied{ref: ref, port: n, prefix: prefix, wait: wait}, err
}

// newProxy returns what passes requests on.
func (a *API) newProxy() *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Rewrite: rewrite,
		Transport: &http.Transport{
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				p := ctx.Value(proxiedKey{}).(*proxied)
				return a.svc.DialPort(ctx, p.ref, p.port, p.wait)
			},
			DisableKeepAlives:      true,
			DisableCompression:     true,
			MaxResponseHeaderBytes: 1 << 20,
		},
		FlushInterval: -1, // streams are streams
		ModifyResponse: func(resp *http.Response) error {
			resp.Header.Del(httpwire.RequestIDHeader) // ours is there already
			return nil
		},
		ErrorLog: slog.NewLogLogger(a.log.Handler(), slog.LevelDebug),
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if code := sandbox.CodeOf(err); code == sandbox.CodeInternal {
				err = sandbox.Errorf(sandbox.CodeUnavailable, "the server in the sandbox did not answer as HTTP does: %w", err)
			}
			a.writeProblem(w, r, err)
		},
	}
}

func rewrite(pr *httputil.ProxyRequest) {
	p := pr.In.Context().Value(proxiedKey{}).(*proxied)
	host := "localhost:" + strconv.Itoa(int(p.port)) // what the server thinks that it is
	pr.Out.URL.Scheme, pr.Out.URL.Host, pr.Out.Host = "http", host, host
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
	pr.Out.URL.RawQuery = pr.In.URL.RawQuery // as it is, for the server to judge
	pr.Out.Header.Del(httpwire.WaitHeader)
	pr.SetXForwarded()
}

// proxy passes a request on.
func (a *API) proxy(w http.ResponseWriter, r *http.Request, p *proxied) {
	if timed, ok := r.Body.(*timedBody); ok {
		r.Body = timed.ReadCloser // as long as the server wants
	}
	a.reverse.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), proxiedKey{}, p)))
}
