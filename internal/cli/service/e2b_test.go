package service

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"ramet.dev/ramet/api"
)

// TestUseOfATemplate starts a sandbox and ends it, and reports what the server says.
func TestUseOfATemplate(t *testing.T) {
	var asked []string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Method+" "+r.URL.Path+" "+r.Header.Get("X-API-Key"))
		var body struct {
			TemplateID string `json:"templateID"`
		}
		_ = json.NewDecoder(r.Body).Decode(&body)
		switch {
		case r.Method == http.MethodDelete:
			w.WriteHeader(http.StatusNoContent)
		case body.TemplateID == "base":
			w.WriteHeader(http.StatusCreated)
			_, _ = w.Write([]byte(`{"sandboxID":"x1"}`))
		default:
			w.WriteHeader(http.StatusBadRequest)
			_, _ = w.Write([]byte(`{"code":400,"message":"no mirror answers"}`))
		}
	}))
	defer srv.Close()
	base, err := url.Parse(srv.URL + "/e2b")
	if err != nil {
		t.Fatal(err)
	}
	s := e2bServer{base, "key", srv.Client()}
	if err := s.use(t.Context(), "base"); err != nil {
		t.Error(err)
	}
	if want := []string{"POST /e2b/sandboxes key", "DELETE /e2b/sandboxes/x1 key"}; !slices.Equal(asked, want) {
		t.Errorf("it asks for %q", asked)
	}
	if err := s.use(t.Context(), "other"); err == nil || !strings.Contains(err.Error(), "no mirror answers") {
		t.Errorf("a failure is %v", err)
	}
	srv.Close()
	if err := s.use(t.Context(), "base"); api.CodeOf(err) != api.CodeUnavailable || !strings.Contains(err.Error(), "ramet serve --e2b") {
		t.Errorf("without a server: %v", err)
	}
}
