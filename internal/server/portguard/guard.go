package portguard

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/httpwire"
	"ramet.dev/ramet/internal/server/front"
	"ramet.dev/ramet/internal/server/portproxy"
)

// tokenParameter is the parameter with the token, for browsers, which cannot set headers.
const tokenParameter = "token"

// guard is the handler of one published port.
type guard struct {
	isToken  func(text string) bool
	refused  func()
	hostPort uint16
	cookie   string // value of the cookie of admitted browsers
	proxy    *httputil.ReverseProxy
}

// New returns the handler of a port that is published on a port of the host. isToken compares a
// text with the token in constant time, refused is called for each request without it, and dial connects
// to the sandbox.
func New(isToken func(text string) bool, refused func(), hostPort uint16, dial func(ctx context.Context) (net.Conn, error), log *slog.Logger) http.Handler {
	g := &guard{isToken: isToken, refused: refused, hostPort: hostPort, cookie: rand.Text() + rand.Text()}
	g.proxy = &httputil.ReverseProxy{
		Rewrite: func(pr *httputil.ProxyRequest) {
			pr.Out.URL.Scheme, pr.Out.URL.Host = "http", "sandbox" // dial connects to no other
			pr.Out.Host = pr.In.Host
			pr.Out.URL.RawQuery = pr.In.URL.RawQuery // as it was sent
			pr.SetXForwarded()
		},
		Transport: &http.Transport{
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) },
			// Each request has a connection of its own, so that no bytes are left over for
			// the next.
			DisableKeepAlives:      true,
			DisableCompression:     true,
			MaxResponseHeaderBytes: 1 << 20,
		},
		FlushInterval: -1, // streams are streams
		ModifyResponse: func(resp *http.Response) error {
			portproxy.CleanResponse(resp.Header, "", resp.Request.Host, resp.Request.Host)
			return nil
		},
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			log.Debug("pass a request on to a published port", "port", hostPort, "error", err)
			status, text := http.StatusBadGateway, "the server in the sandbox did not answer as HTTP does"
			if api.CodeOf(err) == api.CodeUnavailable {
				status, text = http.StatusServiceUnavailable, "no process in the sandbox listens on this port"
			}
			http.Error(w, text, status)
		},
	}
	return g
}

// ServeHTTP implements http.Handler.
func (g *guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch how := g.admit(r); {
	case how == refused:
		g.refused()
		front.Stranger(w, r)
		w.Header().Set("WWW-Authenticate", `Bearer realm="ramet"`)
		http.Error(w, "this port needs its token: Authorization: Bearer TOKEN, or ?token=TOKEN in a browser", http.StatusUnauthorized)
	case how == byCookie && portproxy.Foreign(r):
		http.Error(w, "a page of another host asks for this: only pages of this host may", http.StatusForbidden)
	case how == byQuery && r.Method == http.MethodGet && strings.Contains(r.Header.Get("Accept"), "text/html"):
		g.beginSession(w, r)
	default:
		g.clean(r)
		g.proxy.ServeHTTP(portproxy.Final(w), r)
	}
}

// admission is how a request carries the token.
type admission int

const (
	refused admission = iota
	byHeader
	byQuery
	byCookie
)

// admit looks for the token in a request, and removes it.
func (g *guard) admit(r *http.Request) admission {
	how := refused
	if g.isToken(r.Header.Get(httpwire.TokenHeader)) {
		how = byHeader
	}
	r.Header.Del(httpwire.TokenHeader)
	scheme, value, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if strings.EqualFold(scheme, "Bearer") && g.isToken(strings.TrimSpace(value)) {
		r.Header.Del("Authorization")
		how = byHeader
	}
	token, query := portproxy.CutParameter(r.URL.RawQuery, tokenParameter, g.isToken)
	r.URL.RawQuery = query
	if how == refused && token != "" {
		how = byQuery
	}
	if c, err := r.Cookie(g.cookieName()); how == refused && err == nil && subtle.ConstantTimeCompare([]byte(c.Value), []byte(g.cookie)) == 1 {
		how = byCookie
	}
	return how
}

func (g *guard) cookieName() string {
	return portproxy.PublishedCookie + strconv.Itoa(int(g.hostPort))
}

// beginSession admits the browser that opens a URL with the token, and redirects it to the
// page without the token, which then is in no history and in no Referer.
func (g *guard) beginSession(w http.ResponseWriter, r *http.Request) {
	// Two slashes would begin the name of a host.
	to := "/" + strings.TrimLeft(r.URL.EscapedPath(), "/")
	if r.URL.RawQuery != "" {
		to += "?" + r.URL.RawQuery
	}
	http.SetCookie(w, &http.Cookie{Name: g.cookieName(), Value: g.cookie, Path: "/", HttpOnly: true, SameSite: http.SameSiteLaxMode})
	w.Header().Set("Location", to)
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Referrer-Policy", "no-referrer")
	w.WriteHeader(http.StatusSeeOther)
}

// clean removes from a request the fields that are for the daemon: tokens, also in the address
// of the page that the request is from, and cookies.
func (g *guard) clean(r *http.Request) {
	portproxy.CleanRequest(r.Header, "", "")
	if from, err := url.Parse(r.Header.Get("Referer")); err == nil && from.RawQuery != "" {
		_, from.RawQuery = portproxy.CutParameter(from.RawQuery, tokenParameter, g.isToken)
		r.Header.Set("Referer", from.String())
	}
}
