package docs

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/httpwire"
	"ramet.dev/ramet/internal/judges"
)

// e2bDir has what clients of E2B do.
const e2bDir = "testdata/e2b"

// e2bClient runs a client of E2B with an environment. It must succeed, and say at its end that it is done.
func (d *daemon) e2bClient(t *testing.T, env []string, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		log, _ := os.ReadFile(filepath.Join(d.dir, "log"))
		t.Errorf("%v:\n%s\nthe daemon says:\n%s", err, out, log)
	}
	return string(out)
}

// TestClientsOfE2B has the unmodified packages of E2B drive a daemon. It takes a minute: two versions of the Python
// package, the JavaScript package and the command line are installed, and each does the whole scenario.
func TestClientsOfE2B(t *testing.T) {
	d := newDaemon(t, "--e2b=127.0.0.1:0")
	url := "http://" + d.logged(regexp.MustCompile(`interface=e2b address=(\S+)`))
	made, err := d.client().Tokens.Create(t.Context(), api.TokenRequest{Scope: api.ScopeAdmin})
	if err != nil {
		t.Fatal(err)
	}
	env := []string{"E2B_API_KEY=" + httpwire.E2BKey(made.Secret), "E2B_API_URL=" + url, "E2B_SANDBOX_URL=" + url, "E2B_VOLUME_API_URL=" + url}
	run := func(t *testing.T, name string, args ...string) {
		t.Helper()
		if out := d.e2bClient(t, env, name, args...); !strings.HasSuffix(out, "done\n") {
			t.Errorf("it is not done: %s", out)
		}
	}
	for name, requirements := range map[string]string{"python": "requirements.txt", "older python": "older/requirements.txt"} {
		t.Run(name, func(t *testing.T) {
			bin := judges.Pip(t, filepath.Join(e2bDir, requirements))
			run(t, filepath.Join(bin, "python"), filepath.Join(e2bDir, "scenario.py"), "python")
			if os.Getenv("RAMET_SOAK") == "" {
				return // the templates take minutes to install
			}
			for _, template := range []string{"base", "code-interpreter-v1"} {
				run(t, filepath.Join(bin, "python"), filepath.Join(e2bDir, "scenario.py"), template)
			}
		})
	}
	t.Run("javascript", func(t *testing.T) { run(t, "node", e2bScript(t, "scenario.mjs"), "python") })
	t.Run("command line", func(t *testing.T) {
		bin := filepath.Join(judges.NPM(t, filepath.Join(e2bDir, "cli")), ".bin", "e2b")
		sb, err := d.client().Sandboxes.Create(t.Context(), api.CreateRequest{Image: "python"})
		if err != nil {
			t.Fatal(err)
		}
		id := strings.TrimPrefix(sb.ID, "sbx_")
		for _, c := range []struct{ args, want string }{
			{"sandbox list", id}, {"sandbox info " + id, "State: running"}, {"sandbox exec " + id + " echo hello", "hello\n"}, {"sandbox metrics " + id, "CPU"},
			{"sandbox pause " + id, "paused"}, {"sandbox resume " + id, "resumed"}, {"template list", "code-interpreter-v1"}, {"sandbox kill " + id, "killed"},
		} {
			if out := d.e2bClient(t, env, bin, strings.Fields(c.args)...); !strings.Contains(out, c.want) {
				t.Errorf("e2b %s says nothing of %q:\n%s", c.args, c.want, out)
			}
		}
		if _, err := d.client().Sandboxes.Get(t.Context(), sb.ID); api.CodeOf(err) != api.CodeNotFound {
			t.Errorf("after it was killed: %v", err)
		}
	})
}

// e2bScript returns a script beside the packages of JavaScript: modules are found from where it is.
func e2bScript(t *testing.T, name string) string {
	t.Helper()
	script := filepath.Join(filepath.Dir(judges.NPM(t, e2bDir)), name)
	b, err := os.ReadFile(filepath.Join(e2bDir, name))
	if err == nil {
		err = os.WriteFile(script, b, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	return script
}

// TestClientsOfE2BOverTLS have nothing but a domain, whose names a proxy of theirs leads to the daemon.
func TestClientsOfE2BOverTLS(t *testing.T) {
	d := newDaemon(t, "--e2b=127.0.0.1:0", "--e2b-domain=sandboxes.example.org")
	address := d.logged(regexp.MustCompile(`interface=e2b address=(\S+)`))
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	made, err := d.client().Tokens.Create(t.Context(), api.TokenRequest{Scope: api.ScopeAdmin})
	if err != nil {
		t.Fatal(err)
	}
	authority := filepath.Join(d.dir, "data", "ramet", "e2b-ca.crt")
	env := []string{
		"E2B_API_KEY=" + made.Secret, "E2B_DOMAIN=sandboxes.example.org:" + port, "HTTPS_PROXY=" + namesLeadTo(t, address),
		"SSL_CERT_FILE=" + authority, "NODE_EXTRA_CA_CERTS=" + authority,
	}
	t.Run("python", func(t *testing.T) {
		bin := judges.Pip(t, filepath.Join(e2bDir, "requirements.txt"))
		if out := d.e2bClient(t, env, filepath.Join(bin, "python"), filepath.Join(e2bDir, "tls.py"), "python"); !strings.HasSuffix(out, "done\n") {
			t.Errorf("it is not done: %s", out)
		}
	})
	t.Run("javascript", func(t *testing.T) {
		if out := d.e2bClient(t, env, "node", e2bScript(t, "tls.mjs"), "python"); !strings.HasSuffix(out, "done\n") {
			t.Errorf("it is not done: %s", out)
		}
	})
}

// namesLeadTo returns the URL of a proxy that connects everything to one address.
func namesLeadTo(t *testing.T, address string) string {
	t.Helper()
	var tunnels sync.WaitGroup
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodConnect {
			http.Error(w, "not a tunnel", http.StatusMethodNotAllowed)
			return
		}
		there, err := net.Dial("tcp", address)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		defer there.Close()
		here, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer here.Close()
		tunnels.Add(1)
		defer tunnels.Done()
		_, _ = io.WriteString(here, "HTTP/1.1 200 OK\r\n\r\n")
		back := make(chan struct{})
		go func() {
			defer close(back)
			_, _ = io.Copy(here, there)
			here.Close()
		}()
		_, _ = io.Copy(there, buffered)
		there.Close()
		<-back
	}))
	t.Cleanup(func() {
		proxy.Close()
		tunnels.Wait()
	})
	return proxy.URL
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
