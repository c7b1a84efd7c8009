package portproxy

import (
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"ramet.dev/ramet/api"
)

// localDomain always means this machine, with all names below it (RFC 6761).
const localDomain = "localhost"

// Hosts names the hosts of ports: PORT-SANDBOX.DOMAIN. The `_` of an id is
// written `-` there, because host names have no `_`. The zero value has the domain
// localhost, and browsers cannot reach its hosts.
type Hosts struct {
	domain string // "" is localDomain
	scheme string // of URLs; "" if browsers cannot reach them
	port   string // of URLs; "" is that of the scheme
}

// domainPattern is wide enough for each domain that a certificate can be for.
var domainPattern = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$`)

// maxDomain leaves room for a label before the domain.
const maxDomain = 200

// ParseHosts reads DOMAIN or DOMAIN:PORT. A server listens on the port listening, with a
// certificate if secure is set. Below a domain other than localhost, pages need TLS: without
// a certificate here, a proxy in front of the server must have one.
func ParseHosts(domain string, secure bool, listening string) (Hosts, error) {
	name, port, err := ParseDomain("port-domain", domain)
	if err != nil {
		return Hosts{}, err
	}
	h := Hosts{domain: name, scheme: "https", port: listening}
	if !secure {
		if name == localDomain || strings.HasSuffix(name, "."+localDomain) {
			h.scheme = "http"
		} else {
			h.port = "" // that of the proxy
		}
	}
	if port != "" {
		h.port = port
	}
	if h.scheme == "https" && h.port == "443" || h.scheme == "http" && h.port == "80" {
		h.port = ""
	}
	return h, nil
}

// ParseDomain reads DOMAIN or DOMAIN:PORT. port is empty if there is none.
func ParseDomain(field, domain string) (name, port string, err error) {
	name, port, given := strings.Cut(strings.ToLower(domain), ":")
	if len(name) > maxDomain || !domainPattern.MatchString(name) || net.ParseIP(name) != nil {
		return "", "", api.Invalid(field, "%q is not DOMAIN or DOMAIN:PORT, such as ports.example.com", domain)
	}
	if given {
		if _, err := ParsePort(port); err != nil {
			return "", "", api.Invalid(field, "%q does not end with a port from 1 to 65535", domain)
		}
	}
	return name, port, nil
}

// Domain returns the common end of all hosts, after a dot.
func (h Hosts) Domain() string {
	if h.domain == "" {
		return localDomain
	}
	return h.domain
}

// ForBrowsers reports whether browsers can reach the hosts.
func (h Hosts) ForBrowsers() bool { return h.scheme != "" }

// Target is a port of a sandbox.
type Target struct {
	Ref  string // id or name
	Port uint16
}

// hostLabel begins the name of a host of a port.
var hostLabel = regexp.MustCompile(`^([0-9]+)-(.*)$`)

// Parse returns the port that the Host of a request names, nil if it names none, and a
// CodeInvalid error if it is below the domain and names no possible port.
func (h Hosts) Parse(host string) (*Target, error) {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	label, below := strings.CutSuffix(strings.ToLower(host), "."+h.Domain())
	parts := hostLabel.FindStringSubmatch(label)
	if !below || parts == nil {
		return nil, nil
	}
	port, err := ParsePort(parts[1])
	if err != nil {
		return nil, err
	}
	ref := parts[2]
	if id := strings.Replace(ref, "-", "_", 1); api.IsID(api.KindSandbox, id) {
		ref = id
	}
	if strings.Contains(ref, ".") {
		return nil, api.Invalid("host", "%q has more than one label before %s", host, h.Domain())
	}
	if err := api.ValidRef(api.KindSandbox, "id", ref); err != nil {
		return nil, err
	}
	return &Target{Ref: ref, Port: port}, nil
}

// URL returns where a browser finds path, which begins with a slash, of a port of the
// sandbox with an id. The code is one of Sessions.Issue.
func (h Hosts) URL(id string, port uint16, path *url.URL, code string) string {
	host := strconv.Itoa(int(port)) + "-" + strings.Replace(id, "_", "-", 1) + "." + h.Domain()
	if h.port != "" {
		host = net.JoinHostPort(host, h.port)
	}
	u := url.URL{Scheme: h.scheme, Host: host, Path: path.Path, RawPath: path.RawPath, RawQuery: path.RawQuery, Fragment: path.Fragment}
	if u.RawQuery != "" {
		u.RawQuery += "&"
	}
	u.RawQuery += codeParameter + "=" + code
	return u.String()
}

// ParsePath reads the path and the query of a page to open.
func ParsePath(path string) (*url.URL, error) {
	u, err := url.Parse(path)
	if err != nil || u.Scheme != "" || u.Host != "" || u.User != nil || !strings.HasPrefix(u.Path, "/") || strings.HasPrefix(path, "//") {
		return nil, api.Invalid("path", "%q is not the path of a page, such as /lab?x=1", path)
	}
	return u, nil
}

// The names of the cookie that admits a browser. Browsers accept a cookie with the prefix
// __Host- only from the host itself, over TLS.
const (
	plainCookie  = "ramet-port"
	secureCookie = "__Host-ramet-port"
)

// Cookie returns the cookie that admits a browser at the host that sets it.
func (h Hosts) Cookie(secret string, seconds int) *http.Cookie {
	c := &http.Cookie{Name: h.cookieName(), Value: secret, Path: "/", MaxAge: seconds, HttpOnly: true, SameSite: http.SameSiteLaxMode}
	c.Secure = h.scheme == "https"
	return c
}

func (h Hosts) cookieName() string {
	if h.scheme == "https" {
		return secureCookie
	}
	return plainCookie
}

// Secrets returns the secrets of the cookies of a browser.
func (h Hosts) Secrets(r *http.Request) []string {
	var secrets []string
	for _, c := range r.CookiesNamed(h.cookieName()) {
		secrets = append(secrets, c.Value)
	}
	return secrets
}

// ParsePort reads the number of a port, without signs or leading zeros.
func ParsePort(s string) (uint16, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || n == 0 || strconv.FormatUint(n, 10) != s {
		return 0, api.Invalid("port", "%q is not a port: 1 to 65535", s)
	}
	return uint16(n), nil
}
