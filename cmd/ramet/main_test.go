package main

import (
	"encoding/json"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"runtime/debug"
	"strings"
	"testing"

	"ramet.dev/ramet/internal/cli"
	"ramet.dev/ramet/internal/sandbox"
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
	failed := false
	for _, f := range r.Findings {
		failed = failed || f.Status == "fail"
	}
	if failed != (err != nil) {
		t.Errorf("exit: %v, failed findings: %t", err, failed)
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
	if _, err := newLogger(io.Discard, "loud"); sandbox.CodeOf(err) != sandbox.CodeInvalid {
		t.Errorf("loud: %v", err)
	}
}
