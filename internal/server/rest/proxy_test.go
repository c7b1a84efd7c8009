package rest

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"ramet.dev/ramet/internal/server/rest/dataplane"

	"ramet.dev/ramet/api"
)

const someID = "sbx_aaaaaaaaaaaaaaaa"

func TestProxyTarget(t *testing.T) {
	for _, c := range []struct {
		host, path  string
		ref, prefix string // empty if the request is for this interface
		port        uint16
		code        api.Code
	}{
		{"ramet", "/v1/sandboxes", "", "", 0, ""},
		{"ramet", "/v1/sandboxes/a/ports", "", "", 0, ""},
		{"ramet", "/v1/sandboxes/a/ports/80", "", "", 0, ""},
		{"ramet", "/v1/sandboxes/a/ports/80/", "a", "/v1/sandboxes/a/ports/80", 80, ""},
		{"ramet", "/v1/sandboxes/a/ports/80//x/..", "a", "/v1/sandboxes/a/ports/80", 80, ""},
		{"ramet", "/v1/sandboxes/a/ports/65535/x", "a", "/v1/sandboxes/a/ports/65535", 65535, ""},
		{"ramet", "/v1/sandboxes/a/ports/65536/x", "", "", 0, api.CodeInvalid},
		{"ramet", "/v1/sandboxes/a%2fb/ports/80/x", "", "", 0, api.CodeInvalid},
		{"ramet", "/v1/sandboxes//ports/80/x", "", "", 0, api.CodeInvalid},
		{"ramet", "/x/sandboxes/a/ports/80/x", "", "", 0, ""},
		{"80-a.localhost", "/v1/sandboxes", "a", "", 80, ""},
		{"80-A.LocalHost:99", "/", "a", "", 80, ""},
		{"80-a-b.localhost", "/", "a-b", "", 80, ""},
		{"80-sbx-aaaaaaaaaaaaaaaa.localhost", "/", someID, "", 80, ""},
		{"80-" + someID + ".localhost", "/", someID, "", 80, ""},
		{"0-a.localhost", "/", "", "", 0, api.CodeInvalid},
		{"x-a.localhost", "/", "", "", 0, ""},
		{"80-a.b.localhost", "/", "", "", 0, api.CodeInvalid},
		{"80-.localhost", "/", "", "", 0, api.CodeInvalid},
		{"80-..localhost", "/", "", "", 0, api.CodeInvalid},
		{"080-a.localhost", "/", "", "", 0, api.CodeInvalid},
		{"80-a.localhost.", "/v1/sandboxes", "", "", 0, ""},
		{"localhost", "/v1/sandboxes", "", "", 0, ""},
		{"80-a.localhost.example.com", "/v1/sandboxes", "", "", 0, ""},
	} {
		u, err := url.ParseRequestURI(c.path)
		if err != nil {
			t.Fatal(err)
		}
		p, err := (&portProxy{browsers: &dataplane.Browsers{}}).target(&http.Request{Host: c.host, URL: u, Header: http.Header{}})
		if api.CodeOf(err) != c.code {
			t.Errorf("%s %s: %v", c.host, c.path, err)
			continue
		}
		if err == nil && (p == nil) != (c.ref == "") || err == nil && p != nil && (p.Ref != c.ref || p.Port != c.port || p.prefix != c.prefix) {
			t.Errorf("%s %s: %+v", c.host, c.path, p)
		}
	}
}

func FuzzProxyTarget(f *testing.F) {
	f.Add("ramet", "/v1/sandboxes/a/ports/80/x?y")
	f.Add("80-a.localhost:1", "/%2e%2e/")
	f.Fuzz(func(t *testing.T, host, uri string) {
		u, err := url.ParseRequestURI(uri)
		if err != nil {
			return
		}
		p, err := (&portProxy{browsers: &dataplane.Browsers{}}).target(&http.Request{Host: host, URL: u, Header: http.Header{}})
		if err != nil || p == nil {
			return
		}
		if p.Port == 0 || api.ValidRef(api.KindSandbox, "id", p.Ref) != nil || !strings.HasPrefix(u.EscapedPath(), p.prefix) {
			t.Errorf("%q %q leads to %+v", host, uri, p)
		}
	})
}
