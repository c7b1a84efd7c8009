package e2b

import (
	"log/slog"
	"os"
	"regexp"
	"slices"
	"testing"

	"ramet.dev/ramet/internal/server/rest/apitest"
)

// TestDocumentHasTheRoutes: docs/e2b.md lists what is answered, and nothing else.
func TestDocumentHasTheRoutes(t *testing.T) {
	s, err := New(Config{Service: &apitest.Service{}, Dir: t.TempDir(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	text, err := os.ReadFile("../../../docs/e2b.md")
	if err != nil {
		t.Fatal(err)
	}
	var listed []string
	for _, m := range regexp.MustCompile("`((?:GET|POST|PUT|PATCH|DELETE) /[^` ]*)`").FindAllStringSubmatch(string(text), -1) {
		listed = append(listed, m[1])
	}
	own, within := s.Routes()
	routes := slices.Concat(own, within)
	for _, r := range routes {
		if !slices.Contains(listed, r) {
			t.Errorf("docs/e2b.md does not list %s", r)
		}
	}
	for _, r := range listed {
		if !slices.Contains(routes, r) {
			t.Errorf("docs/e2b.md lists %s, which is not answered", r)
		}
	}
}
