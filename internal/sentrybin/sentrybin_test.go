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
