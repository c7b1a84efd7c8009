package interp_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ramet.dev/ramet/internal/engine/interp"
)

const (
	// envPython names a Python that has the libraries of TestPythonLibraries.
	envPython = "RAMET_TEST_PYTHON"
	// envBuild has them installed if there is none, with pip, for this test alone.
	envBuild = "RAMET_TEST_BUILD"
	// installPatience bounds that.
	installPatience = 3 * time.Minute
)

var libraries = []string{"matplotlib", "numpy", "pandas", "pillow", "sympy"}

// withLibraries returns a Python that has the libraries. They are kept in the user's
// cache, in a directory that is named by the Python and by what they are.
func withLibraries(t *testing.T) *exec.Cmd {
	t.Helper()
	program, _ := interp.ProgramOf(interp.Python)
	if path := os.Getenv(envPython); path != "" {
		return exec.Command(path, program.Args...)
	}
	all := interpreters(t, interp.Python)
	path := all[len(all)-1]
	version, err := exec.Command(path, "-c", "import sys; print(sys.version)").Output()
	if err != nil {
		t.Fatal(err)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Skipf("nowhere to keep libraries: %v", err)
	}
	cache = filepath.Join(cache, "ramet-test")
	dir := filepath.Join(cache, fmt.Sprintf("python-%.6x", sha256.Sum256(fmt.Appendf(version, "%q", libraries))))
	if _, err := os.Stat(dir); err != nil {
		if os.Getenv(envBuild) == "" {
			t.Skipf("with %s=1 %s are installed for this test, from this machine's package index, and kept; or %s names a Python that has them", envBuild, strings.Join(libraries, ", "), envPython)
		}
		if err := install(path, cache, dir); err != nil {
			t.Skipf("the libraries cannot be installed: %v", err)
		}
	}
	cmd := exec.Command(path, program.Args...)
	cmd.Env = append(os.Environ(), "PYTHONPATH="+dir)
	return cmd
}

// install installs the libraries in a directory below cache, or nothing.
func install(python, cache, dir string) error {
	if err := os.MkdirAll(cache, 0o700); err != nil {
		return err
	}
	half, err := os.MkdirTemp(cache, "python-*.half")
	if err != nil {
		return err
	}
	defer os.RemoveAll(half)
	ctx, cancel := context.WithTimeout(context.Background(), installPatience)
	defer cancel()
	args := []string{"-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check", "--retries=1", "--no-compile", "--only-binary=:all:", "--target", half}
	if out, err := exec.CommandContext(ctx, python, append(args, libraries...)...).CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, bytes.TrimSpace(out[max(0, len(out)-500):]))
	}
	return os.Rename(half, dir)
}

func TestPythonLibraries(t *testing.T) {
	program, _ := interp.ProgramOf(interp.Python)
	h := startCommand(t, program.Text, withLibraries(t))
	has := func(code string, want ...string) {
		t.Helper()
		a := h.cell(code)
		if a.Error != nil || len(a.results) != len(want) {
			t.Fatalf("%s\n%d results, %+v", code, len(a.results), a.Error)
		}
		for i, mime := range want {
			if _, ok := a.results[i][mime]; !ok {
				t.Errorf("%s\nresult %d is not %s", code, i, mime)
			}
		}
	}
	has("import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()\nplt.plot([2, 1]);", "image/png", "image/png")
	has("plt.get_fignums()", "text/plain")
	has("fig, ax = plt.subplots()\nax.plot([1])\nfig", "image/png")
	has("import pandas as pd, numpy as np\ndf = pd.DataFrame({'a': [1, 2]})\ndf", "text/html")
	has("from PIL import Image\nImage.new('RGB', (2, 2))", "image/png")
	has("import sympy\nsympy.Symbol('x') ** 2", "text/latex")
	h.want("np.random.seed(1)\na = np.random.rand()\nnp.random.seed(1)\narr = np.arange(10)\nsame = df.copy()", "")
	h.begin(interp.KindSeed, strings.Repeat("0123456789abcdef", 4))
	if got := strings.Join(h.end().Reseeded, " "); !strings.Contains(got, "numpy.random") {
		t.Errorf("reseeded %s", got)
	}
	h.want("bool(a == np.random.rand())", "False")
	v := h.variables()
	if v["df"].Digest != v["same"].Digest || v["df"].Opaque || v["arr"].Size != 80 || v["arr"].Type != "numpy.ndarray" {
		t.Errorf("%+v %+v %+v", v["df"], v["same"], v["arr"])
	}
	h.want("arr[3] = 0\ndf.loc[0, 'a'] = 9", "")
	after := h.variables()
	if after["arr"].Digest == v["arr"].Digest || after["df"].Digest == v["df"].Digest || after["same"].Digest != v["same"].Digest {
		t.Error("digests do not follow the values")
	}
}
