package restapi

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"ramet.dev/ramet/internal/judges"
)

// node returns the directory with the programs that package.json names.
func node(t *testing.T) string { return filepath.Join(judges.NPM(t, "testdata"), ".bin") }

// python returns the directory with the programs of requirements.txt.
func python(t *testing.T) string { return judges.Pip(t, testdata(t, "requirements.txt")) }

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
