package sentrybin

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
)

func TestProgramRuns(t *testing.T) {
	p, err := Open()
	if errors.Is(err, ErrMissing) {
		t.Skip("make build was not run")
	}
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if !strings.HasPrefix(p.Engine, "gvisor v") {
		t.Errorf("engine %q", p.Engine)
	}
	// Descriptors of the child take the lowest numbers before the execution.
	cmd := exec.Command(p.Path())
	for range 8 {
		cmd.ExtraFiles = append(cmd.ExtraFiles, os.Stdin)
	}
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 2 || !strings.Contains(string(out), "ramet only") {
		t.Errorf("the program printed %q and ended with %v", out, err)
	}
	if err := os.WriteFile(p.Path(), nil, 0); err == nil {
		t.Error("the program can be written to")
	}
}

func TestCommandRuns(t *testing.T) {
	f, err := OpenCommand()
	if errors.Is(err, ErrMissing) {
		t.Skip("make build was not run")
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	cmd := exec.Command("/proc/self/fd/3", "nonsense")
	cmd.ExtraFiles = []*os.File{f}
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 2 || !strings.Contains(string(out), "unknown command nonsense") {
		t.Errorf("the command printed %q and ended with %v", out, err)
	}
	if _, err := f.WriteAt([]byte{0}, 0); err == nil {
		t.Error("the command can be written to")
	}
	const most = 3 << 20 // it is written to each sandbox that may use it
	if st, err := f.Stat(); err != nil || st.Size() > most {
		t.Errorf("the command has %d bytes (%v), more than %d", st.Size(), err, most)
	}
}

func TestGatewayRuns(t *testing.T) {
	p, err := OpenGateway()
	if errors.Is(err, ErrMissing) {
		t.Skip("make build was not run")
	}
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if len(p.Build) != 32 {
		t.Errorf("build %q", p.Build)
	}
	out, err := exec.Command(p.Path()).CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 2 || !strings.Contains(string(out), "ramet only") {
		t.Errorf("the program printed %q and ended with %v", out, err)
	}
}
