package interpreter

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/service"
)

// others are methods that no test calls.
type others = service.Contexts

// fake is a machine whose cells all do the same.
type fake struct {
	others
	run func(api.RunCodeRequest, api.RunIO) (*api.RunResult, error)
}

func (f *fake) Contexts(context.Context, string) ([]api.Context, error) {
	return []api.Context{{Name: "python", Language: "python", Cwd: "/home/user"}}, nil
}

func (f *fake) RunCode(_ context.Context, _ string, req api.RunCodeRequest, streams api.RunIO) (*api.RunResult, error) {
	return f.run(req, streams)
}

func post(f *fake, path, body string) (int, string) {
	w := httptest.NewRecorder()
	New(f).Serve(w, httptest.NewRequest(http.MethodPost, path, strings.NewReader(body)), "sbx", "user", false)
	return w.Code, w.Body.String()
}

// TestExecute tells what a cell prints and shows, in order, and which result is that of the last expression.
func TestExecute(t *testing.T) {
	f := &fake{run: func(req api.RunCodeRequest, streams api.RunIO) (*api.RunResult, error) {
		if req.Language != "python" || req.Code != "code" {
			t.Errorf("%+v", req)
		}
		_, _ = io.WriteString(streams.Stdout, "printed")
		for _, r := range []map[string]json.RawMessage{{"image/png": json.RawMessage(`"AA=="`)}, {"text/plain": json.RawMessage(`"42"`), "application/x-own": json.RawMessage(`{}`)}} {
			if err := streams.Result(r); err != nil {
				return nil, err
			}
		}
		return &api.RunResult{Result: "42", ExecutionCount: 3, Error: &api.RunError{Name: "E", Value: "v", Traceback: "t"}}, nil
	}}
	code, body := post(f, "/execute", `{"code":"code"}`)
	var kinds []string
	var main any
	for line := range strings.Lines(body) {
		var m map[string]any
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatal(err)
		}
		kinds = append(kinds, m["type"].(string))
		if m["text"] == "42" {
			main = m["is_main_result"]
		}
	}
	if code != 200 || main != true || strings.Join(kinds, " ") != "stdout result result error number_of_executions end_of_execution" {
		t.Errorf("%d: %s", code, body)
	}
}

// TestRequests that cannot be done are refused before anything runs.
func TestRequests(t *testing.T) {
	f := &fake{run: func(api.RunCodeRequest, api.RunIO) (*api.RunResult, error) {
		t.Error("a cell runs")
		return nil, api.Errorf(api.CodeInternal, "no")
	}}
	for body, want := range map[string]int{
		`{"code":"1","language":"r"}`:                           http.StatusNotImplemented,
		`{"code":"1","language":"bash","env_vars":{"A;b":"b"}}`: http.StatusBadRequest,
		`{"code":1}`: http.StatusBadRequest,
		`x`:          http.StatusBadRequest,
	} {
		if code, said := post(f, "/execute", body); code != want {
			t.Errorf("%s: %d %s", body, code, said)
		}
	}
}

// TestTheSandboxEndsMeanwhile: the answer breaks off, whether the cell has written or not.
func TestTheSandboxEndsMeanwhile(t *testing.T) {
	for _, text := range []string{"", "printed"} {
		f := &fake{run: func(_ api.RunCodeRequest, streams api.RunIO) (*api.RunResult, error) {
			if text != "" {
				_, _ = io.WriteString(streams.Stdout, text)
			}
			return nil, api.Errorf(api.CodeSandboxDied, "it was destroyed")
		}}
		func() {
			defer func() {
				if v := recover(); v != http.ErrAbortHandler {
					t.Errorf("%q: %v", text, v)
				}
			}()
			post(f, "/execute", `{"code":"1"}`)
		}()
	}
}

// TestEnvironments sets variables of a cell, whatever is in them, and gives them their own values back.
func TestEnvironments(t *testing.T) {
	odd := "\"'\\\n${x}$(exit 1)"
	for lang, c := range map[string]struct {
		argv []string
		show string
	}{
		"bash":   {[]string{"bash", "-c"}, `printf '%s|%s.' "${A-none}" "${B-none}"`},
		"python": {[]string{"python3", "-c"}, "import os; print(os.getenv('A', 'none') + '|' + os.getenv('B', 'none') + '.', end='')"},
		"node":   {[]string{"node", "-e"}, "process.stdout.write(`${process.env.A ?? 'none'}|${process.env.B ?? 'none'}.`)"},
	} {
		if _, err := exec.LookPath(c.argv[0]); err != nil {
			t.Logf("%s is not tried: %v", lang, err)
			continue
		}
		set, restore, err := variables(lang, map[string]string{"A": odd, "B": "new"})
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), c.argv[0], c.argv[1], strings.Join([]string{set, c.show, restore, c.show}, "\n"))
		cmd.Env = []string{"B=old", "PATH=" + os.Getenv("PATH")}
		out, err := cmd.CombinedOutput()
		if want := odd + "|new.none|old."; err != nil || string(out) != want {
			t.Errorf("%s prints %q, %v, and not %q", lang, out, err, want)
		}
	}
}

// TestACellWithVariables runs between two cells that are not counted, also where it fails.
func TestACellWithVariables(t *testing.T) {
	var ran []string
	f := &fake{run: func(req api.RunCodeRequest, _ api.RunIO) (*api.RunResult, error) {
		ran = append(ran, fmt.Sprint(req.Silent))
		if !req.Silent {
			return nil, api.Errorf(api.CodeTimeout, "it took too long")
		}
		return &api.RunResult{}, nil
	}}
	if code, body := post(f, "/execute", `{"code":"1","env_vars":{"A":"b"}}`); code < 400 || strings.Join(ran, " ") != "true false true" {
		t.Errorf("%d %s: %v", code, body, ran)
	}
}
