package restapi

import (
	"path/filepath"
	"strings"
	"testing"

	"ramet.dev/ramet/internal/judges"
)

func TestTypeScriptTypesCompile(t *testing.T) {
	bin := node(t)
	doc := theDaemon(t).document(t)
	dir := filepath.Dir(doc)
	run(t, dir, nil, filepath.Join(bin, "openapi-typescript"), doc, "-o", "api.ts")
	copyTo(t, dir, "use.ts", "use.ts")
	run(t, dir, nil, filepath.Join(bin, "tsc"), "--strict", "--noEmit", "use.ts")
}

// A client in Python does what its user wants, with a real daemon.
func TestPythonClientForksASandbox(t *testing.T) {
	bin := python(t)
	d := theDaemon(t)
	doc := d.document(t)
	dir := filepath.Dir(doc)
	run(t, dir, nil, filepath.Join(bin, "openapi-python-client"), "generate", "--path", doc, "--config", testdata(t, "python-client.yaml"),
		"--output-path", filepath.Join(dir, "ramet_api"), "--meta", "none", "--fail-on-warning")
	copyTo(t, dir, "scenario.py", "scenario.py")
	if out := run(t, dir, nil, filepath.Join(bin, "python"), "scenario.py", d.url, d.token(t, "--scope", "admin")); !strings.HasSuffix(out, "done\n") {
		t.Errorf("the client wrote %q", out)
	}
}

// oapiCodegen is no part of our module: it has one of its own, with its dependencies.
const (
	oapiCodegen = "github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen@v2.8.2"
	oapiRuntime = "github.com/oapi-codegen/runtime@v1.8.0"
)

func TestGoClientCompiles(t *testing.T) {
	judges.MayDownload(t)
	doc := theDaemon(t).document(t)
	dir := filepath.Dir(doc)
	env := []string{"GOFLAGS=-mod=mod", "GOWORK=off", "CGO_ENABLED=0"}
	run(t, dir, env, "go", "mod", "init", "generated.example")
	if out, err := try(t, dir, env, "go", "get", oapiRuntime); err != nil {
		t.Skipf("modules cannot be downloaded: %v: %s", err, judges.LastLine(out))
	}
	run(t, dir, env, "go", "run", oapiCodegen, "-generate", "types,client", "-package", "generated", "-o", "api.go", doc)
	copyTo(t, dir, "use.go.txt", "use.go")
	run(t, dir, env, "go", "vet", ".")
}
