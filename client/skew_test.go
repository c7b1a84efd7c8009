package client_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/httpwire"
)

// Daemons of other versions of the interface, and what a call of the client is then.
func TestVersionSkew(t *testing.T) {
	const noRoute = `{"status":404,"code":"not_found","detail":"no route \"GET /v1/x\""}`
	for _, tt := range []struct {
		name, version, problem string
		code                   api.Code
		detail                 string
	}{
		{"the same", api.InterfaceVersion, "", "", ""},
		{"a newer one", "1.99", "", "", ""},
		{"one from before versions", "", "", "", ""},
		{"another interface", "2.0", "", api.CodeUnsupported, `"2.0"`},
		{"an older one that lacks a route", "0.9", noRoute, api.CodeUnsupported, "0.9"},
		{"one from before versions that lacks a route", "", noRoute, api.CodeNotFound, "does not know it"},
		{"one from before versions that lacks a member", "", `{"status":400,"code":"invalid_argument","detail":"body.x: unexpected property"}`, api.CodeInvalid, "does not know it"},
		{"the same without a route", api.InterfaceVersion, noRoute, api.CodeNotFound, ""},
		{"another interface that has another form of errors", "2.0", `{}`, api.CodeUnsupported, `"2.0"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			daemon := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if tt.version != "" {
					w.Header().Set(httpwire.InterfaceHeader, tt.version)
				}
				if tt.problem == "" {
					fmt.Fprint(w, `{"id":"sbx_aaaaaaaaaaaaaaaa","novelty":[1]}`)
					return
				}
				w.Header().Set("Content-Type", httpwire.ProblemType)
				w.WriteHeader(http.StatusNotFound)
				fmt.Fprint(w, tt.problem)
			}))
			defer daemon.Close()
			_, err := connectTo(t, daemon.URL).Sandboxes.Get(t.Context(), "x")
			if api.CodeOf(err) != tt.code || !strings.Contains(fmt.Sprint(err), tt.detail) {
				t.Fatalf("the call = %v", err)
			}
		})
	}
}
