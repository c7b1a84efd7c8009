package work

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// output is what the script prints if each piece takes a millisecond; bad is the piece that ends with code.
func output(bad string, code int) string {
	var b strings.Builder
	for _, piece := range Pieces() {
		c := 0
		if piece == bad {
			c = code
		}
		fmt.Fprintf(&b, "%s 1000 %d\n", piece, c)
	}
	return b.String()
}

func prints(text string, err error) func(context.Context, io.Writer) error {
	return func(_ context.Context, w io.Writer) error {
		if _, e := io.WriteString(w, text); e != nil {
			return e
		}
		return err
	}
}

func TestMeasure(t *testing.T) {
	var failed []string
	done := func(piece string, took time.Duration, err error) {
		if took != time.Millisecond {
			t.Errorf("%s took %s", piece, took)
		}
		if err != nil {
			failed = append(failed, piece+": "+err.Error())
		}
	}
	times, err := Measure(t.Context(), prints(output("", 0), nil), done)
	if err != nil || len(times) != len(Pieces())+1 || times[All] != 11*time.Millisecond || times["git"] != time.Millisecond || len(failed) != 0 {
		t.Errorf("%v, %v, %v", times, failed, err)
	}
	for code, want := range map[int]string{124: "git: it was ended after 2m0s", 2: "git: it ended with exit code 2"} {
		failed = nil
		times, err = Measure(t.Context(), prints(output("git", code), nil), done)
		if _, ok := times[All]; ok || err != nil || len(times) != len(Pieces())-1 || len(failed) != 1 || failed[0] != want {
			t.Errorf("%v, %v, %v", times, failed, err)
		}
	}
	broken := errors.New("broken")
	for name, tc := range map[string]struct {
		run  func(context.Context, io.Writer) error
		want string
	}{
		"few":         {prints("cpu 1000 0\n", nil), "printed 1 times"},
		"other text":  {prints("bash: no such file\n", nil), `printed "bash: no such file"`},
		"no number":   {prints("cpu x 0\n", nil), `printed "cpu x 0"`},
		"unknown":     {prints("gpu 1000 0\n", nil), `printed "gpu 1000 0"`},
		"that failed": {prints("cpu 1000 0\n", broken), "broken"},
	} {
		if _, err := Measure(t.Context(), tc.run, done); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestScript: the script is one that bash understands, and has all pieces in their order.
func TestScript(t *testing.T) {
	var names []string
	for line := range strings.Lines(script) {
		if name, ok := strings.CutPrefix(line, "run "); ok {
			names = append(names, name[:strings.IndexByte(name, ' ')])
		}
	}
	if got, want := strings.Join(names, " "), strings.Join(Pieces(), " "); got != want {
		t.Errorf("pieces are %s, not %s", got, want)
	}
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("this machine has no bash")
	}
	if out, err := exec.Command(bash, "-n", "-c", script).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// TestNative: the work has the root directory, and nothing is left of its mounts.
func TestNative(t *testing.T) {
	if reason := CannotRunNatively(); reason != "" {
		t.Skip(reason)
	}
	root := t.TempDir()
	err := Native(t.Context(), root, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "without a sandbox") { // it has no programs
		t.Fatal(err)
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil || strings.Contains(string(mounts), root) {
		t.Errorf("mounts are left, or %v", err)
	}
	if _, err := os.Stat(root + "/dev/null"); err != nil && !strings.Contains(err.Error(), "no such file") {
		t.Error(err)
	}
}
