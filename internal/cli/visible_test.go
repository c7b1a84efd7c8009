package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/server/rest/apitest"
)

// TestRunCodeOnTerminal shows control characters that code writes, in streams, results and
// errors; elsewhere they stay as they are. exec passes all on.
func TestRunCodeOnTerminal(t *testing.T) {
	const nasty = "\x1b[2J\x1b]2;title\a\x1b[6n"
	svc := fakeService()
	svc.RunCodeFunc = func(_ context.Context, _ string, _ api.RunCodeRequest, s api.RunIO) (*api.RunResult, error) {
		for _, text := range []string{"ä" + nasty + "\ttab\x7f\n10%\r20%\r", "\nsplit \xe2", "\x82", "\xac \xff\n\u009b2J end\xc3"} {
			if _, err := io.WriteString(s.Stdout, text); err != nil {
				return nil, err
			}
		}
		if _, err := io.WriteString(s.Stderr, "\n"+nasty+"err\n"); err != nil {
			return nil, err
		}
		r := &api.RunResult{Error: &api.RunError{Name: "E", Traceback: nasty + "traceback\n"}}
		r.ExitCode = 1
		return r, s.Result(map[string]json.RawMessage{"text/plain": json.RawMessage(`"\u001b[2Jresult"`)})
	}
	svc.ExecFunc = func(_ context.Context, _ string, _ api.ExecRequest, s api.ExecIO) (*api.ExecResult, error) {
		_, err := io.WriteString(s.Stdout, "gone\x1b[2J\x1b[Hexec\x1b]2;x\a")
		return &api.ExecResult{}, err
	}
	socket := apitest.Serve(t, svc)
	x := startOnTerminal(t, socket, terminalOptions{}, "run-code", "base", "1")
	got := x.ends(1)
	for i, line := range got {
		got[i] = strings.TrimRight(line, " ")
	}
	for _, want := range []string{
		"ä^[[2J^[]2;title^G^[[6n tab^?", "10%", "20%", `split € \xff`, `\u009b2J end`, "^[[2J^[]2;title^G^[[6nerr", "^[[2J^[]2;title^G^[[6ntraceback",
	} {
		if !strings.Contains("\n"+strings.Join(got, "\n")+"\n", "\n"+want) {
			t.Errorf("the screen shows\n%s\nwithout %s", strings.Join(got, "\n"), want)
		}
	}
	if all := strings.Join(got, "\n"); !strings.Contains(all, "^[[2Jresult") {
		t.Errorf("the screen shows\n%s", all)
	}

	var stdout, stderr bytes.Buffer
	startOnTerminal(t, socket, terminalOptions{stdout: &stdout, stderr: &stderr}, "run-code", "base", "1").ends(1)
	if want := "ä" + nasty + "\ttab\x7f\n10%\r20%\r\nsplit € \xff\n\u009b2J end\xc3\x1b[2Jresult\n"; stdout.String() != want {
		t.Errorf("it printed %q, not %q", stdout.String(), want)
	}
	if want := "\n" + nasty + "err\n" + nasty + "traceback\n"; stderr.String() != want {
		t.Errorf("it said %q, not %q", stderr.String(), want)
	}
	wantScreen(t, startOnTerminal(t, socket, terminalOptions{}, "exec", "base", "x").ends(0), `^exec$`)
}
