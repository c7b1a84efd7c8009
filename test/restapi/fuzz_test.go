package restapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// envSoak is how long requests are generated for each scope, instead of the few seconds of
// an ordinary run.
const envSoak = "RAMET_SOAK"

// Generated requests, valid and not, get answers that the document describes, never a
// failure of ours, and none that the scope of their token does not allow. It takes a minute: the generator works for
// its whole budget with each of three scopes.
func TestGeneratedRequests(t *testing.T) {
	bin := python(t)
	d := theDaemon(t)
	doc := d.document(t)
	budget, examples := 15*time.Second, 25
	if s := os.Getenv(envSoak); s != "" {
		var err error
		if budget, err = time.ParseDuration(s); err != nil {
			t.Fatalf("%s: %v", envSoak, err)
		}
		examples = 1000
	}
	// A tenant of its own, with so little that a request for a thousand children is refused.
	must := func(args ...string) {
		t.Helper()
		if _, err := d.ramet(args...); err != nil {
			t.Fatal(err)
		}
	}
	must("tenant", "quota", "fuzz", "--sandboxes", "8", "--memory", "4G")
	must("tenant", "give", "fuzz", "box")
	admin := d.token(t, "--scope", "admin", "--tenant", "fuzz")
	names := []string{"one", "two", "three"}
	for _, name := range names {
		d.ask(t, admin, http.MethodPost, "/v1/sandboxes", fmt.Sprintf(`{"image":"box","name":%q}`, name))
	}
	before := d.ask(t, admin, http.MethodGet, "/v1/tree", "")
	for seed, scope := range []string{"read", "exec", "admin"} {
		t.Run(scope, func(t *testing.T) {
			secret := admin
			if scope != "admin" {
				secret = d.token(t, "--scope", scope, "--tenant", "fuzz")
			}
			args := []string{"run", doc, "--url", d.url, "-H", "Authorization: Bearer " + secret, "--no-color", "--workers", "1",
				"--phases", "coverage,fuzzing", "--mode", "all", "--max-examples", fmt.Sprint(examples), "--max-time", fmt.Sprint(int(budget.Seconds())),
				"--request-timeout", "30", "--generation-database", "none", "--no-shrink", "--suppress-health-check", "all", "--continue-on-failure", "--warnings", "off",
				"--checks", "no_defect,status_code_conformance,content_type_conformance,response_schema_conformance,negative_data_rejection,unsupported_method,ignored_auth,missing_required_header,no_scope_does_more",
				// These go on for as long as their client wants.
				"--exclude-operation-id", "watch-files",
				// Pages of servers in sandboxes are not described here.
				"--exclude-operation-id", "proxy-port",
			}
			if os.Getenv(envSoak) == "" {
				// Each scope has requests of its own, the same in each run.
				args = append(args, "--seed", fmt.Sprint(seed+1))
			}
			if scope == "admin" {
				// An image may come from anywhere in the world, and from any file of the host. So may a snapshot, and go there.
				for _, id := range []string{"create-image", "pull-snapshot", "push-snapshot"} {
					args = append(args, "--exclude-operation-id", id)
				}
			}
			env := []string{"SCHEMATHESIS_HOOKS=hooks", "PYTHONPATH=" + testdata(t, ""), "PYTHONDONTWRITEBYTECODE=1", "RAMET_FUZZ_SCOPE=" + scope, "RAMET_FUZZ_SANDBOXES=" + strings.Join(names, ",")}
			run(t, filepath.Dir(doc), env, filepath.Join(bin, "schemathesis"), args...)
			if scope == "read" {
				if after := d.ask(t, admin, http.MethodGet, "/v1/tree", ""); after != before {
					t.Errorf("a token that may only read changed the sandboxes from\n%s to\n%s", before, after)
				}
			}
		})
	}
}

// ask makes a request that must succeed, and returns the body of its answer.
func (d *daemon) ask(t *testing.T, secret, method, path, body string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, d.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+secret)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var answer json.RawMessage
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil || resp.StatusCode >= 300 {
		t.Fatalf("%s %s: status %d, %v: %s", method, path, resp.StatusCode, err, answer)
	}
	return string(answer)
}
