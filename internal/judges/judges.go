// Package judges installs programs of others that judge ours in tests, with npm or pip, into the cache of
// the repository. Where they cannot be had, a test is skipped and says why.
//
// The package must never know what is judged.
package judges

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// envBuild lets tests download what they need.
const envBuild = "RAMET_TEST_BUILD"

// timeout bounds an installation.
const timeout = 4 * time.Minute

// MayDownload skips a test that may not download what it needs.
func MayDownload(t *testing.T) {
	t.Helper()
	if os.Getenv(envBuild) == "" {
		t.Skipf("%s is not set", envBuild)
	}
}

// Need skips a test on a machine that lacks a program.
func Need(t *testing.T, programs ...string) {
	t.Helper()
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			t.Skipf("%s is not installed", p)
		}
	}
}

// NPM returns the directory node_modules of what package-lock.json in a directory names.
func NPM(t *testing.T, from string) string {
	t.Helper()
	Need(t, "node", "npm")
	dir := installed(t, "node", filepath.Join(from, "package-lock.json"), func(ctx context.Context, dir string) *exec.Cmd {
		for _, name := range []string{"package.json", "package-lock.json"} {
			b, err := os.ReadFile(filepath.Join(from, name))
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, name), b, 0o644)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		return exec.CommandContext(ctx, "npm", "ci", "--prefix", dir, "--ignore-scripts", "--no-audit", "--no-fund", "--fetch-retries=1")
	})
	return filepath.Join(dir, "node_modules")
}

// Pip returns the directory with the programs of what a list of requirements names.
func Pip(t *testing.T, requirements string) string {
	t.Helper()
	Need(t, "python3")
	dir := installed(t, "python", requirements, func(ctx context.Context, dir string) *exec.Cmd {
		return exec.CommandContext(ctx, "sh", "-ec", `python3 -m venv "$1"; "$1/bin/pip" install --disable-pip-version-check --retries 1 -q -r "$2"`, "sh", dir, requirements)
	})
	return filepath.Join(dir, "bin")
}

// installed returns a directory of the cache in which install has put what a file lists, now or before.
func installed(t *testing.T, kind, list string, install func(ctx context.Context, dir string) *exec.Cmd) string {
	t.Helper()
	versions, err := os.ReadFile(list)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(cache(t), fmt.Sprintf("%s-%x", kind, sha256.Sum256(versions))[:len(kind)+13])
	complete := filepath.Join(dir, "complete")
	if _, err := os.Stat(complete); err == nil {
		return dir
	}
	if os.Getenv(envBuild) == "" {
		t.Skipf("the programs that judge this are not in %s, and %s is not set", dir, envBuild)
	}
	if err := os.RemoveAll(dir); err != nil { // what is left of an attempt that was broken off
		t.Fatal(err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	if out, err := install(ctx, dir).CombinedOutput(); err != nil {
		t.Skipf("%s packages cannot be installed: %v: %s", kind, err, LastLine(out))
	}
	if err := os.WriteFile(complete, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

// cache returns the directory in the cache of the repository: below the directory with go.mod.
func cache(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	for ; err == nil; dir = filepath.Dir(dir) {
		_, found := os.Stat(filepath.Join(dir, "go.mod"))
		if found == nil {
			return filepath.Join(dir, ".cache", "judges")
		}
		if dir == filepath.Dir(dir) {
			err = errors.New("there is no go.mod")
		}
	}
	t.Fatal(err)
	return ""
}

// LastLine returns the last line of what a program wrote.
func LastLine(out []byte) string {
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return lines[len(lines)-1]
}
