package rest_test

import (
	"strings"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/httpwire"
	"ramet.dev/ramet/internal/server/rest"
	"ramet.dev/ramet/internal/server/rest/apitest"
)

// Each answer tells the version of the interface, also one to a client of another version.
func TestInterfaceVersion(t *testing.T) {
	server := rest.New(rest.Config{Identify: apitest.Owner, Service: &apitest.Service{}})
	for path, said := range map[string]string{
		"/healthz":      `"interface":"` + api.InterfaceVersion + `"`,
		"/v1/none":      `no route \"GET /v1/none\""`,
		"/v2/sandboxes": "version " + api.InterfaceVersion + " of the interface, and not 2",
		"/v1x/none":     `no route \"GET /v1x/none\""`,
	} {
		w := do(server, "GET", path)
		if got := w.Header().Get(httpwire.InterfaceHeader); got != api.InterfaceVersion {
			t.Errorf("%s: the version is %q", path, got)
		}
		if !strings.Contains(w.Body.String(), said) {
			t.Errorf("%s: %s does not contain %s", path, w.Body, said)
		}
	}
}
