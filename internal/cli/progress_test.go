package cli_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/server/rest/apitest"
)

// terminalWidths are narrow, usual and wide ones.
var terminalWidths = []uint16{40, 80, 120, 200}

// fullBar is the last state of a phase.
func fullBar(phase string) string { return `^` + phase + ` +\[=+\] 100%( .*)?$` }

// wantScreen compares the lines of a screen with patterns, one each.
func wantScreen(t *testing.T, got []string, want ...string) {
	t.Helper()
	ok := len(got) == len(want)
	for i := 0; ok && i < len(want); i++ {
		ok = regexp.MustCompile(want[i]).MatchString(got[i])
	}
	if !ok {
		t.Errorf("the screen shows\n%s\nand not\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestProgressOfCopies copies a file, whose size is known, and a directory, whose size is not,
// both ways.
func TestProgressOfCopies(t *testing.T) {
	socket := apitest.Serve(t, fakeService())
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "large"), make([]byte, 20_000_000), 0o644); err != nil {
		t.Fatal(err)
	}
	copies := func(cols uint16, from, to, said string) {
		t.Helper()
		lines := startOnTerminal(t, socket, terminalOptions{cols: cols, rows: 30}, "cp", from, to).ends(0)
		if len(lines) > 2 { // the last one is longer than the terminal is wide
			lines = append(lines[:1], strings.Join(lines[1:], ""))
		}
		wantScreen(t, lines, fullBar("copy"), said)
	}
	for _, cols := range terminalWidths {
		copies(cols, filepath.Join(dir, "large"), "base:/large", `^copied 19\.1 MiB in 1 file to base:/large$`)
	}
	copies(80, "base:/large", filepath.Join(t.TempDir(), "x"), `^copied 19\.1 MiB in 1 file to `)
	copies(80, dir, "base:/dir", `^copied 19\.1 MiB in 1 file and 1 director`)
}

// imagePhases are what a build reports: two phases by turns, one that nobody knows the size of,
// and one whose size grows.
func imagePhases(report func(api.Progress)) {
	const packages = 40
	for i := range packages {
		name := fmt.Sprintf("a-package-with-a-name-that-is-longer-than-terminals-are-wide-%d_all.deb", i)
		report(api.Progress{Phase: "download", Done: int64(i + 1), Total: packages, Detail: name})
		report(api.Progress{Phase: "unpack", Done: int64(i), Total: int64(i + 2), Detail: "\x1b[2J" + name})
	}
	report(api.Progress{Phase: "configure", Done: 7})
	report(api.Progress{Phase: "seal", Detail: "empty"})
}

// TestProgressOfImages has one bar for each phase of a build, whether it succeeds or fails.
func TestProgressOfImages(t *testing.T) {
	svc := fakeService()
	svc.CreateImageFunc = func(_ context.Context, req api.ImageRequest, report func(api.Progress)) (*api.Image, error) {
		imagePhases(report)
		if req.Name == "bad" {
			return nil, api.Errorf(api.CodeHostile, "path leaves the root")
		}
		return &api.Image{ID: imgID}, nil
	}
	socket := apitest.Serve(t, svc)
	for _, cols := range terminalWidths {
		x := startOnTerminal(t, socket, terminalOptions{cols: cols, rows: 30}, "image", "build", "py", "--include", "python3")
		wantScreen(t, x.ends(0), fullBar("download"), fullBar("unpack"), fullBar("configure"), fullBar("seal"), "^"+imgID+"$")

		x = startOnTerminal(t, socket, terminalOptions{cols: cols, rows: 30}, "image", "build", "bad", "--include", "python3")
		wantScreen(t, x.ends(int(api.CodeHostile.ExitCode())), `^download +\[=+\] 100%`, `^unpack +\[[=>-]+\]  ?9\d%`, `^configure +\[-+\]`, `^seal +\[-+\]`, `^ramet: path leaves the root$`)
	}
}

// TestProgressElsewhere shows nothing of progress where it cannot be redrawn, and no control
// sequences.
func TestProgressElsewhere(t *testing.T) {
	svc := fakeService()
	svc.CreateImageFunc = func(_ context.Context, _ api.ImageRequest, report func(api.Progress)) (*api.Image, error) {
		imagePhases(report)
		return &api.Image{ID: imgID}, nil
	}
	socket := apitest.Serve(t, svc)
	build := []string{"image", "build", "py", "--include", "python3"}
	var stdout, stderr bytes.Buffer
	x := startOnTerminal(t, socket, terminalOptions{stderr: &stderr}, build...)
	wantScreen(t, x.ends(0), "^"+imgID+"$")
	if stderr.Len() > 0 {
		t.Errorf("it wrote %q", stderr.String())
	}
	x = startOnTerminal(t, socket, terminalOptions{env: []string{"TERM=dumb"}}, build...)
	wantScreen(t, x.ends(0), "^"+imgID+"$")
	x = startOnTerminal(t, socket, terminalOptions{stdout: &stdout}, build...)
	wantScreen(t, x.ends(0), fullBar("download"), fullBar("unpack"), fullBar("configure"), fullBar("seal"))
	if stdout.String() != imgID+"\n" {
		t.Errorf("it printed %q", stdout.String())
	}
}

// TestProgressInterrupted types Ctrl-C while bars are drawn: the command ends at once, with its
// exit code, and what it was at is gone.
func TestProgressInterrupted(t *testing.T) {
	svc := fakeService()
	interrupted := make(chan struct{}, 1)
	svc.CreateImageFunc = func(ctx context.Context, _ api.ImageRequest, report func(api.Progress)) (*api.Image, error) {
		imagePhases(report)
		<-ctx.Done()
		interrupted <- struct{}{}
		return nil, ctx.Err()
	}
	svc.ExportFunc = func(ctx context.Context, _ string, _ api.ExportRequest, w io.Writer) error {
		if _, err := w.Write(make([]byte, 1<<20)); err != nil {
			return err
		}
		<-ctx.Done()
		return ctx.Err()
	}
	socket := apitest.Serve(t, svc)
	for _, cols := range terminalWidths {
		x := startOnTerminal(t, socket, terminalOptions{cols: cols, rows: 30}, "image", "build", "py", "--include", "python3")
		x.sees(`^seal +\[`)
		x.types("\x03")
		wantScreen(t, x.ends(130), `^download +\[`, `^unpack +\[`, `^configure +\[`, `^seal +\[`, `^ramet: interrupted$`)
		<-interrupted
	}
	dir := t.TempDir()
	x := startOnTerminal(t, socket, terminalOptions{}, "export", "base", "-o", filepath.Join(dir, "out.tar"))
	x.sees(`^export +\[.*1\.0 MiB`)
	x.types("\x03")
	lines := x.ends(130)
	wantScreen(t, lines[len(lines)-1:], `^ramet: interrupted$`)
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("it left %v, %v", left, err)
	}
}
