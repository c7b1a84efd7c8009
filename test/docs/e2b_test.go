package docs

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/judges"
)

// TestClientsOfE2B has the unmodified packages of E2B drive a daemon.
func TestClientsOfE2B(t *testing.T) {
	d := newDaemon(t, "--e2b=127.0.0.1:0")
	url := "http://" + d.logged(regexp.MustCompile(`interface=e2b address=(\S+)`))
	made, err := d.client().Tokens.Create(t.Context(), api.TokenRequest{Scope: api.ScopeAdmin})
	if err != nil {
		t.Fatal(err)
	}
	run := func(t *testing.T, name string, args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Env = append(os.Environ(), "E2B_API_KEY="+made.Secret, "E2B_API_URL="+url, "E2B_SANDBOX_URL="+url)
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.HasSuffix(string(out), "done\n") {
			log, _ := os.ReadFile(filepath.Join(d.dir, "log"))
			t.Errorf("%v:\n%s\nthe daemon says:\n%s", err, out, log)
		}
	}
	const dir = "testdata/e2b"
	t.Run("python", func(t *testing.T) {
		bin := judges.Pip(t, filepath.Join(dir, "requirements.txt"))
		run(t, filepath.Join(bin, "python"), filepath.Join(dir, "scenario.py"), "python")
	})
	t.Run("javascript", func(t *testing.T) {
		modules := judges.NPM(t, dir)
		// Modules are found from where a script is.
		script := filepath.Join(filepath.Dir(modules), "scenario.mjs")
		b, err := os.ReadFile(filepath.Join(dir, "scenario.mjs"))
		if err == nil {
			err = os.WriteFile(script, b, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
		run(t, "node", script, "python")
	})
}

// logged returns what a line of the daemon's log says.
func (d *daemon) logged(line *regexp.Regexp) string {
	d.t.Helper()
	f, err := os.Open(filepath.Join(d.dir, "log"))
	if err != nil {
		d.t.Fatal(err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if m := line.FindStringSubmatch(lines.Text()); m != nil {
			return m[1]
		}
	}
	d.t.Fatalf("the daemon has not logged %v", line)
	return ""
}
