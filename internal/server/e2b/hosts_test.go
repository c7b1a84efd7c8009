package e2b

import (
	"net/http/httptest"
	"testing"

	"ramet.dev/ramet/api"
)

// TestTargets: the sandbox and the port of a request are in its headers, or else in the name of its host.
func TestTargets(t *testing.T) {
	id := outer(boxID)
	for _, c := range []struct {
		host, sandbox, port string
		id                  string
		at                  int
		code                api.Code
	}{
		{host: "127.0.0.1:3000"}, {host: "api.example.org"}, {host: "10-host.example.org"}, {host: "8000-" + id}, {host: "x8000-" + id + ".example.org"},
		{host: "8000-" + id + ".example.org", id: boxID, at: 8000},
		{host: "8000-" + id + ".localhost:3000", id: boxID, at: 8000},
		{host: "8000-AAAAAAAAAAAAAAAA.Example.ORG", id: boxID, at: 8000},
		{host: "99999-" + id + ".example.org", code: api.CodeInvalid}, {host: "0-" + id + ".example.org", code: api.CodeInvalid},
		{host: "8000-" + id + ".example.org", sandbox: id, port: "49999", id: boxID, at: 49999},
		{host: "127.0.0.1", sandbox: id, id: boxID, at: agentPort}, {host: "127.0.0.1", sandbox: "x", code: api.CodeNotFound},
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Host = c.host
		if c.sandbox != "" {
			r.Header.Set("E2b-Sandbox-Id", c.sandbox)
		}
		if c.port != "" {
			r.Header.Set("E2b-Sandbox-Port", c.port)
		}
		got, port, err := target(r)
		if api.CodeOf(err) != c.code || got != c.id || port != c.at {
			t.Errorf("%+v: %s at %d, %v", c, got, port, err)
		}
	}
}
