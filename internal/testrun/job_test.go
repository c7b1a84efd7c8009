package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"ramet.dev/ramet/internal/polltest"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "supervise" {
		os.Exit(supervise(os.Args[2:]))
	}
	goleak.VerifyTestMain(m)
}

// testWorkspace is a workspace whose repository is an empty directory.
func testWorkspace(t *testing.T) *workspace {
	t.Helper()
	return &workspace{top: t.TempDir(), dir: t.TempDir(), began: time.Now()}
}

// shell is a job that runs a script, whose tests are its arguments.
func shell(script string, form form) *job {
	return &job{
		name: "shell", output: form, command: []string{"sh", "-c", script, "sh"},
		choose: func(command, env, tests []string) ([]string, []string) { return append(command, tests...), env },
		again:  func(string) bool { return true },
	}
}

func line(test, action, output string) string {
	return fmt.Sprintf(`{"Action":%q,"Package":"ramet.dev/ramet/x","Test":%q,"Output":%q,"Elapsed":1.5}`, action, test, output)
}

func TestResultsOfEvents(t *testing.T) {
	j := shell("cat <<'END'\n"+strings.Join([]string{
		line("TestGood", "run", ""), line("TestGood", "pass", ""),
		line("TestBad", "run", ""), line("TestBad/part", "output", "why\n"), line("TestBad/part", "fail", ""), line("TestBad", "fail", ""),
		line("TestLater", "run", ""), line("TestLater", "output", "    x_test.go:5: no tool\n"), line("TestLater", "skip", ""),
		line("TestCut", "run", ""),
	}, "\n")+"\nEND\nexit 1", events)
	j.tests = []string{"TestGood", "TestBad", "TestLater", "TestCut", "TestNever"}
	o := j.start(t.Context(), testWorkspace(t), nil)
	want := map[string]testStatus{"TestGood": passed, "TestBad": failed, "TestLater": skipped, "TestCut": failed, "TestNever": failed}
	for name, status := range want {
		if o.tests[name] == nil || o.tests[name].status != status {
			t.Errorf("%s: %+v, not %s", name, o.tests[name], status)
		}
	}
	if len(o.tests) != len(want) {
		t.Errorf("results: %v", sortedTests(o))
	}
	if got := o.tests["TestLater"].reason(); got != "no tool" {
		t.Errorf("the reason of a skip is %q", got)
	}
	if got := o.tests["TestBad"].output; !slices.Equal(got, []string{"why"}) {
		t.Errorf("the output of a subtest is %q", got)
	}
}

func TestResultsOfScripts(t *testing.T) {
	j := shell(`cat <<'END'
skip: pyright: no Node
FAILED tests/test_x.py::test_of[a b] - AssertionError: no
test at build/files.test.js:12:3
--- FAIL: sdk/python: mypy
1 failed, 399 passed, 15 skipped in 392.95s
END
exit 1`, lines)
	o := j.start(t.Context(), testWorkspace(t), nil)
	var names []string
	for _, f := range o.failed() {
		names = append(names, f.name)
	}
	if want := []string{"build/files.test", "sdk/python: mypy", "tests/test_x.py::test_of[a b]"}; !slices.Equal(names, want) {
		t.Errorf("failed: %q", names)
	}
	if p := o.tests["passed"]; p == nil || p.count != 399 {
		t.Errorf("passed: %+v", p)
	}
}

func TestNothingOutlivesAJob(t *testing.T) {
	w := testWorkspace(t)
	pidFile := filepath.Join(w.top, "pid")
	j := shell(`touch "$TMPDIR/file"; setsid sleep 1000 & echo $! > pid`, events)
	o := j.start(t.Context(), w, nil)
	if len(o.left) != 2 || !strings.Contains(o.left[0], "sleep 1000") || !strings.HasSuffix(o.left[1], "/file") {
		t.Errorf("left behind: %q", o.left)
	}
	if o.err == nil || len(o.failed()) != 1 {
		t.Error("a job that leaves something behind passed")
	}
	mustBeGone(t, pidFile)
}

func TestAnEndedRunEndsItsJobs(t *testing.T) {
	w := testWorkspace(t)
	pidFile := filepath.Join(w.top, "pid")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan *outcome)
	go func() {
		ended <- shell(`setsid sleep 1000 & echo $! > new && mv new pid; wait`, events).start(ctx, w, nil)
	}()
	polltest.Eventually(t, time.Minute, "the job runs", func() bool {
		_, err := os.Stat(pidFile)
		return err == nil
	})
	cancel()
	if o := <-ended; o.err == nil {
		t.Error("a job that was ended passed")
	}
	mustBeGone(t, pidFile)
}

func mustBeGone(t *testing.T, pidFile string) {
	t.Helper()
	text, err := os.ReadFile(pidFile)
	if err != nil {
		t.Fatal(err)
	}
	var pid int
	if _, err := fmt.Sscan(string(text), &pid); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, 0); err != syscall.ESRCH {
		t.Errorf("process %d is still there: %v", pid, err)
	}
}

func TestRetry(t *testing.T) {
	// The script fails TestOnce in its first run only, and TestAlways in each run.
	script := `for test; do
	if [ "$test" = TestAlways ] || ! [ -e ran ]; then action=fail; code=1; else action=pass; fi
	echo '{"Action":"run","Package":"ramet.dev/ramet/x","Test":"'$test'"}'
	echo '{"Action":"'$action'","Package":"ramet.dev/ramet/x","Test":"'$test'"}'
done; touch ran; exit $code`
	for _, c := range []struct {
		tests   []string
		passes  bool
		results []string
	}{
		{[]string{"TestOnce"}, true, []string{"FLAKY TestOnce (shell)", "1 passed, 0 failed, 0 skipped"}},
		{[]string{"TestAlways", "TestOnce"}, false, []string{"FLAKY TestOnce (shell)", "FAIL TestAlways (shell)", "1 passed, 1 failed, 0 skipped"}},
	} {
		w := testWorkspace(t)
		var said, log strings.Builder
		r := newReport(&said, &log)
		j := shell(script, events)
		j.tests = c.tests
		outcomes := []*outcome{j.start(t.Context(), w, nil)}
		retry(t.Context(), w, outcomes, r)
		if got := r.close(t.Context(), outcomes, 0); got != c.passes {
			t.Errorf("%v: passed is %t", c.tests, got)
		}
		for _, want := range c.results {
			if !strings.Contains(said.String(), "\n"+want+"\n") {
				t.Errorf("%v: there is no %q in %s", c.tests, want, said.String())
			}
		}
	}
}

func TestFlakyTwiceFails(t *testing.T) {
	w := testWorkspace(t)
	var said strings.Builder
	r := newReport(&said, &said)
	twice := []*outcome{}
	for range 2 {
		o := &outcome{job: &job{name: "x"}, tests: map[string]*testResult{}}
		o.tests["TestX"] = &testResult{name: "TestX", status: failed, flaky: &outcome{job: o.job}}
		twice = append(twice, o)
	}
	if r.close(t.Context(), twice, time.Since(w.began)) || !strings.Contains(said.String(), "FAIL TestX was flaky twice") {
		t.Errorf("a test that is flaky twice passed: %s", said.String())
	}
}
