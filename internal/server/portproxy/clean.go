package portproxy

import (
	"net/http"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"

	"ramet.dev/ramet/internal/httpwire"
)

const (
	// TokenParameter is the parameter with a token, for browsers, which cannot set headers.
	TokenParameter = "access_token"
	// codeParameter is the parameter with the code that admits a browser.
	codeParameter = "ramet_code"
	// PublishedCookie begins the names of the cookies of ports that are published on the host
	// with a token. The port of the host follows, because browsers send the cookies of one
	// port to all ports of a host.
	PublishedCookie = "ramet_port_"
)

// token is the secret of a token wherever it stands, in either of its forms.
var token = regexp.MustCompile(regexp.QuoteMeta(httpwire.SecretPrefix) + `[a-z2-7]{52}|` + regexp.QuoteMeta(httpwire.E2BPrefix) + `[0-9a-fA-F]{64}`)

// CutAuthorization removes all values of Authorization that have a token of Ramet, and
// returns the first bearer token of them.
func CutAuthorization(h http.Header) (secret string) {
	h["Authorization"] = slices.DeleteFunc(h["Authorization"], func(v string) bool {
		scheme, value, _ := strings.Cut(v, " ")
		value = strings.TrimSpace(value)
		if !strings.EqualFold(scheme, "Bearer") || !strings.HasPrefix(value, httpwire.SecretPrefix) {
			return token.MatchString(v)
		}
		if secret == "" {
			secret = value
		}
		return true
	})
	if len(h["Authorization"]) == 0 {
		delete(h, "Authorization")
	}
	return secret
}

// CutParameter removes the parameters of a query that are called name and for which take
// returns true, and leaves the rest as it is. It returns the value of the last of them.
func CutParameter(query, name string, take func(value string) bool) (taken, rest string) {
	var kept []string
	for part := range strings.SplitSeq(query, "&") {
		key, value, _ := strings.Cut(part, "=")
		plainKey, kerr := url.QueryUnescape(key)
		plain, verr := url.QueryUnescape(value)
		if kerr == nil && verr == nil && plainKey == name && take(plain) {
			taken = plain
			continue
		}
		kept = append(kept, part)
	}
	return taken, strings.Join(kept, "&")
}

// CutToken removes tokens of Ramet from a query.
func CutToken(query string) (secret, rest string) {
	return CutParameter(query, TokenParameter, func(v string) bool { return strings.HasPrefix(v, httpwire.SecretPrefix) })
}

// CutCode removes codes of Ramet from a query.
func CutCode(query string) (code, rest string) {
	return CutParameter(query, codeParameter, func(string) bool { return true })
}

// CleanRequest removes from the header of a request the fields that are for the daemon. host
// is the host of the page, if requests of the page itself reach the server: they are
// rewritten, so that the server, whose host is another, takes them for its own.
func CleanRequest(h http.Header, host, server string) {
	CutAuthorization(h)
	h.Del(httpwire.TokenHeader)
	h.Del(httpwire.WaitHeader)
	cookies := h["Cookie"]
	h.Del("Cookie")
	for _, line := range cookies {
		if line = cleanCookies(line); line != "" {
			h.Add("Cookie", line)
		}
	}
	referer := h.Get("Referer")
	h.Del("Referer")
	if referer = cleanURL(referer, host, server); referer != "" {
		h.Set("Referer", referer)
	}
	if origin, err := url.Parse(h.Get("Origin")); err == nil && host != "" && origin.Host == host {
		h.Set("Origin", "http://"+server)
	}
	for name, values := range h {
		if h[name] = slices.DeleteFunc(values, token.MatchString); len(h[name]) == 0 {
			delete(h, name)
		}
	}
}

// cleanCookies removes Ramet's cookies from a line of cookies.
func cleanCookies(line string) string {
	var kept []string
	for part := range strings.SplitSeq(line, ";") {
		part = strings.TrimSpace(part)
		if name, _, _ := strings.Cut(part, "="); part == "" || isOurCookie(strings.TrimSpace(name)) || token.MatchString(part) {
			continue
		}
		kept = append(kept, part)
	}
	return strings.Join(kept, "; ")
}

func isOurCookie(name string) bool {
	return name == plainCookie || name == secureCookie || strings.HasPrefix(name, PublishedCookie)
}

// cleanURL removes tokens and codes from the URL of a page, and makes the host of a page
// that of its server. It returns "" for an invalid URL.
func cleanURL(text, host, server string) string {
	u, err := url.Parse(text)
	if err != nil || text == "" {
		return ""
	}
	_, u.RawQuery = CutToken(u.RawQuery)
	_, u.RawQuery = CutCode(u.RawQuery)
	if host != "" && u.Host == host {
		u.Scheme, u.Host = "http", server
	}
	return u.String()
}

// wide are headers that affect a whole origin in a browser, or more: all hosts of a domain,
// or requests to come. A server in a sandbox must not set them.
var wide = []string{
	"Accept-Ch", "Alt-Svc", "Clear-Site-Data", "Critical-Ch", "Expect-Ct", "Nel", "Origin-Agent-Cluster", "Public-Key-Pins", "Public-Key-Pins-Report-Only",
	"Report-To", "Reporting-Endpoints", "Sec-Session-Registration", "Secure-Session-Registration", "Set-Login", "Strict-Transport-Security", "Use-As-Dictionary",
	// These have a web server before the daemon send files of its own.
	"X-Accel-Redirect", "X-Lighttpd-Send-File", "X-Sendfile",
}

// CleanResponse removes from the header of a server's answer the fields that affect more than
// its own pages. Below a prefix, the origin is shared with other servers: more fields are
// removed, and nothing there may run as a page. host is that of the page, as in CleanRequest.
func CleanResponse(h http.Header, prefix, host, server string) {
	for _, name := range wide {
		h.Del(name)
	}
	cookies := (&http.Response{Header: h}).Cookies()
	h.Del("Set-Cookie")
	for _, c := range cookies {
		if c = cleanCookie(c, prefix); c != nil {
			h.Add("Set-Cookie", c.String())
		}
	}
	if prefix == "" {
		h.Set("Origin-Agent-Cluster", "?1") // else pages of two hosts may agree to be one origin
		if u, err := url.Parse(h.Get("Location")); err == nil && u.Host == server {
			u.Scheme, u.User, u.Host = "", nil, host
			h.Set("Location", u.String())
		}
		return
	}
	h.Del("Service-Worker-Allowed")
	h.Add("Content-Security-Policy", "sandbox")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
}

// cleanCookie returns a cookie of a server as it may be set: for its own host only, and
// below the prefix, which is where the server's root is. It returns nil if it may not be
// set.
func cleanCookie(c *http.Cookie, prefix string) *http.Cookie {
	if isOurCookie(c.Name) {
		return nil
	}
	c.Domain = ""
	if prefix == "" {
		return c
	}
	if strings.HasPrefix(strings.ToLower(c.Name), "__host-") {
		return nil // it would be valid for a whole origin
	}
	p := c.Path
	if !strings.HasPrefix(p, "/") {
		p = "/"
	}
	end := ""
	if strings.HasSuffix(p, "/") {
		end = "/"
	}
	if c.Path = prefix + strings.TrimSuffix(path.Clean(p), "/") + end; c.Valid() != nil {
		return nil
	}
	return c
}

// Navigates reports whether a browser would show the answer to r, or run it: as a page, in
// a frame, as a script or worker.
func Navigates(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Dest") {
	case "", "empty", "websocket":
	default:
		return true
	}
	return r.Header.Get("Sec-Fetch-Mode") == "navigate" || r.Header.Get("Service-Worker") != ""
}

// Foreign reports whether a browser sends r for a page of another host, which could cause
// changes in the server, or read from its WebSockets. Links to a page are followed. The rules
// of cookies do not prevent that: the hosts of a domain are the same site to them.
func Foreign(r *http.Request) bool {
	looks := r.Method == http.MethodGet || r.Method == http.MethodHead
	switch r.Header.Get("Sec-Fetch-Site") {
	case "same-origin", "none":
		return false
	case "": // an old browser
		if origin := r.Header.Get("Origin"); origin != "" {
			u, err := url.Parse(origin)
			return err != nil || !strings.EqualFold(u.Host, r.Host)
		}
		return !looks
	}
	return !looks || r.Header.Get("Sec-Fetch-Mode") != "navigate" || r.Header.Get("Sec-Fetch-Dest") != "document"
}

// Final returns w without informational answers, other than one that switches protocols: they may have headers that
// CleanResponse has not seen.
func Final(w http.ResponseWriter) http.ResponseWriter { return finalWriter{w} }

type finalWriter struct{ http.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (w finalWriter) WriteHeader(status int) {
	if status >= http.StatusOK || status == http.StatusSwitchingProtocols {
		w.ResponseWriter.WriteHeader(status)
	}
}

// Unwrap lets http.ResponseController reach the server's own writer.
func (w finalWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
