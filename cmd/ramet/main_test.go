package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/client"
	"ramet.dev/ramet/internal/cli"
	"ramet.dev/ramet/internal/doctor"
	"ramet.dev/ramet/internal/server/rest/apitest"
)

// envMain makes the test binary be ramet.
const envMain = "RAMET_TEST_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(envMain) != "" {
		main()
	}
	os.Exit(m.Run())
}

func ramet(tb testing.TB, args ...string) *exec.Cmd {
	tb.Helper()
	exe, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	cmd := exec.Command(exe, args...)
	cmd.Env = append(os.Environ(), envMain+"=1")
	return cmd
}

func TestVersion(t *testing.T) {
	out, err := ramet(t, "version", "--json").Output()
	var v cli.Version
	if err == nil {
		err = json.Unmarshal(out, &v)
	}
	if err != nil || v.Version == "" || v.Go == "" {
		t.Errorf("version: %v: %s", err, out)
	}
}

func TestDoctor(t *testing.T) {
	out, err := ramet(t, "doctor", "--json").Output()
	var r report
	if jerr := json.Unmarshal(out, &r); jerr != nil || len(r.Findings) == 0 {
		t.Fatalf("doctor: %v, %v: %s", err, jerr, out)
	}
	if name, err := os.Hostname(); err != nil || r.Machine != name {
		t.Errorf("it looked at %q, this is %q, %v", r.Machine, name, err)
	}
	failed := false
	for _, f := range r.Findings {
		if f.Name == "daemon" {
			t.Errorf("nobody pointed it at a daemon: %+v", f)
		}
		failed = failed || f.Status == "fail"
	}
	if failed != (err != nil) {
		t.Errorf("exit: %v, failed findings: %t", err, failed)
	}
}

// TestDoctorElsewhere points doctor at daemons: it must say of each whether it answers,
// and that the rest is about this machine.
func TestDoctorElsewhere(t *testing.T) {
	ask := func(host string) doctor.Finding {
		return probeDaemon(context.Background(), cli.HookOptions{Host: host, Reach: func(ctx context.Context) (*client.Client, api.Health, error) {
			c, err := client.New(host)
			if err != nil {
				return nil, api.Health{}, err
			}
			h, err := c.Health(ctx)
			return c, h, err
		}})
	}
	serve := func(err error) string {
		return "unix:" + apitest.Serve(t, &apitest.Service{ListFunc: func(context.Context, api.ListFilter) ([]api.Sandbox, error) { return nil, err }})
	}
	there := serve(nil)
	if f := ask(there); f.Status != doctor.StatusOK || !strings.HasPrefix(f.Detail, there+": version ") {
		t.Errorf("a daemon: %+v", f)
	}
	if f := ask(serve(api.Errorf(api.CodeUnknownUser, "the token is not valid"))); f.Status != doctor.StatusFail || !strings.Contains(f.Detail, "token is not valid") || f.Remedy == "" {
		t.Errorf("a token that is not valid: %+v", f)
	}
	if f := ask("unix:" + filepath.Join(t.TempDir(), "socket")); f.Status != doctor.StatusFail || f.Remedy == "" {
		t.Errorf("no daemon: %+v", f)
	}

	cmd := ramet(t, "doctor")
	cmd.Env = append(cmd.Env, "RAMET_HOST="+there)
	out, _ := cmd.Output() // whether this machine is fit is not the question
	first, rest, _ := strings.Cut(string(out), "\n")
	if !strings.HasPrefix(first, "checks of this machine, ") || !strings.Contains(first, there) || !strings.HasPrefix(strings.Join(strings.Fields(rest), " "), "ok daemon "+there) {
		t.Errorf("doctor:\n%s", out)
	}
}

func TestRevision(t *testing.T) {
	for want, settings := range map[string][]debug.BuildSetting{
		"":                   nil,
		"0123456789ab":       {{Key: "vcs.revision", Value: "0123456789abcdef"}, {Key: "vcs.modified", Value: "false"}},
		"0123456789ab-dirty": {{Key: "vcs.modified", Value: "true"}, {Key: "vcs.revision", Value: "0123456789abcdef"}},
	} {
		if got := revision(settings); got != want {
			t.Errorf("revision = %q, want %q", got, want)
		}
	}
}

// BenchmarkVersion is the time from the start of the process to its end. It
// bounds what every command, and every sandbox, pays for what is linked in.
func BenchmarkVersion(b *testing.B) {
	for b.Loop() {
		if err := ramet(b, "version").Run(); err != nil {
			b.Fatal(err)
		}
	}
}

func TestNewLogger(t *testing.T) {
	for setting, want := range map[string][2]string{ // of a debug and an info line
		"":           {"", "level=INFO msg=b a=1"},
		"debug":      {"level=DEBUG msg=a", "level=INFO msg=b a=1"},
		"warn":       {"", ""},
		"json":       {"", `"level":"INFO","msg":"b","a":1}`},
		"json,debug": {`"level":"DEBUG","msg":"a"}`, `"level":"INFO","msg":"b","a":1}`},
		"error,text": {"", ""},
	} {
		var debug, info strings.Builder
		for w, line := range map[*strings.Builder]func(*slog.Logger){&debug: func(l *slog.Logger) { l.Debug("a") }, &info: func(l *slog.Logger) { l.Info("b", "a", 1) }} {
			log, err := newLogger(w, setting)
			if err != nil {
				t.Fatal(err)
			}
			line(log)
		}
		for i, got := range []string{debug.String(), info.String()} {
			if (got == "") != (want[i] == "") || !strings.Contains(got, want[i]) {
				t.Errorf("%q: %q, not %q", setting, got, want[i])
			}
		}
	}
	if _, err := newLogger(io.Discard, "loud"); api.CodeOf(err) != api.CodeInvalid {
		t.Errorf("loud: %v", err)
	}
}

// TestIdlePollSetting gives the daemon a setting that is none.
func TestIdlePollSetting(t *testing.T) {
	cmd := ramet(t, "serve")
	cmd.Env = append(cmd.Env, pollVariable+"=yes")
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 2 || !strings.Contains(string(out), pollVariable+`: "yes" is not auto, on or off`) {
		t.Errorf("%v: %s", err, out)
	}
}

// TestStatusAndStop starts a daemon by a command, and ends it.
func TestStatusAndStop(t *testing.T) {
	dir := t.TempDir()
	run := func(want int, args ...string) string {
		t.Helper()
		cmd := ramet(t, args...)
		cmd.Env = append(cmd.Environ(), "RAMET_RUNTIME_DIR="+filepath.Join(dir, "r"), "RAMET_DATA_DIR="+filepath.Join(dir, "d"))
		out, _ := cmd.CombinedOutput() // the exit code says it
		if got := cmd.ProcessState.ExitCode(); got != want {
			t.Fatalf("%q: exit code %d, not %d: %s", args, got, want, out)
		}
		return string(out)
	}
	run(3, "status")
	run(0, "stop")
	run(0, "ls")
	var st struct {
		Running bool
		PID     int
	}
	if err := json.Unmarshal([]byte(run(0, "status", "--json")), &st); err != nil || !st.Running || st.PID <= 1 {
		t.Fatalf("%+v, %v", st, err)
	}
	run(0, "stop")
	if _, err := os.Stat(fmt.Sprintf("/proc/%d", st.PID)); err == nil {
		t.Errorf("the daemon of process %d runs on", st.PID)
	}
	run(3, "status")
	run(2, "stop", "--host", "https://example.org")
}
