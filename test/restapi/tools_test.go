package restapi

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// envBuild lets tests download what they need, as of the other tests.
const envBuild = "RAMET_TEST_BUILD"

// installTimeout bounds a download.
const installTimeout = 4 * time.Minute

// installed returns a directory of the repository's cache in which install has put what
// the file in testdata lists, now or before. It skips the test where that is not possible.
func installed(t *testing.T, kind, list string, install func(ctx context.Context, dir string) *exec.Cmd) string {
	t.Helper()
	versions, err := os.ReadFile(filepath.Join("testdata", list))
	if err != nil {
		t.Fatal(err)
	}
	cache, err := filepath.Abs("../../.cache/restapi")
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(cache, fmt.Sprintf("%s-%x", kind, sha256.Sum256(versions))[:len(kind)+13])
	complete := filepath.Join(dir, "complete")
	if _, err := os.Stat(complete); err == nil {
		return dir
	}
	if os.Getenv(envBuild) == "" {
		t.Skipf("the programs that judge the interface are not in %s, and %s is not set", dir, envBuild)
	}
	if err := os.RemoveAll(dir); err != nil { // what is left of an attempt that was broken off
		t.Fatal(err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), installTimeout)
	defer cancel()
	if out, err := install(ctx, dir).CombinedOutput(); err != nil {
		t.Skipf("%s packages cannot be installed: %v: %s", kind, err, lastLine(out))
	}
	if err := os.WriteFile(complete, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

// node returns the directory with the programs that package.json names.
func node(t *testing.T) string {
	t.Helper()
	need(t, "node", "npm")
	dir := installed(t, "node", "package-lock.json", func(ctx context.Context, dir string) *exec.Cmd {
		for _, name := range []string{"package.json", "package-lock.json"} {
			b, err := os.ReadFile(filepath.Join("testdata", name))
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, name), b, 0o644)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		return exec.CommandContext(ctx, "npm", "ci", "--prefix", dir, "--ignore-scripts", "--no-audit", "--no-fund", "--fetch-retries=1")
	})
	return filepath.Join(dir, "node_modules", ".bin")
}

// python returns the directory with the programs of requirements.txt.
func python(t *testing.T) string {
	t.Helper()
	need(t, "python3")
	dir := installed(t, "python", "requirements.txt", func(ctx context.Context, dir string) *exec.Cmd {
		return exec.CommandContext(ctx, "sh", "-ec", `python3 -m venv "$1"; "$1/bin/pip" install --disable-pip-version-check --retries 1 -q -r testdata/requirements.txt`, "sh", dir)
	})
	return filepath.Join(dir, "bin")
}

func need(t *testing.T, programs ...string) {
	t.Helper()
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			t.Skipf("%s is not installed", p)
		}
	}
}

// run runs a program, which must succeed, and returns what it wrote.
func run(t *testing.T, dir string, env []string, program string, args ...string) string {
	t.Helper()
	out, err := try(t, dir, env, program, args...)
	if err != nil {
		t.Fatalf("%s: %v\n%s", filepath.Base(program), err, out)
	}
	return string(out)
}

// try runs a program and returns what it wrote.
func try(t *testing.T, dir string, env []string, program string, args ...string) ([]byte, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	return cmd.CombinedOutput()
}

func lastLine(out []byte) string {
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return lines[len(lines)-1]
}

// testdata returns the absolute path of a file.
func testdata(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// copyTo copies a file of testdata into a directory.
func copyTo(t *testing.T, dir, name, as string) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, as), b, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}
