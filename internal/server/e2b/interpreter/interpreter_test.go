package interpreter

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
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
	New(f).Serve(w, httptest.NewRequest(http.MethodPost, path, strings.NewReader(body)), "sbx", "user")
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
		`{"code":"1","language":"r"}`:                         http.StatusNotImplemented,
		`{"code":"1","language":"bash","env_vars":{"A":"b"}}`: http.StatusNotImplemented,
		`{"code":1}`: http.StatusBadRequest,
		`x`:          http.StatusBadRequest,
	} {
		if code, said := post(f, "/execute", body); code != want {
			t.Errorf("%s: %d %s", body, code, said)
		}
	}
}

// TestTheSandboxEndsMeanwhile: a cell that has written breaks off, and one that has not is answered with the error.
func TestTheSandboxEndsMeanwhile(t *testing.T) {
	for text, breaks := range map[string]bool{"": false, "printed": true} {
		f := &fake{run: func(_ api.RunCodeRequest, streams api.RunIO) (*api.RunResult, error) {
			if text != "" {
				_, _ = io.WriteString(streams.Stdout, text)
			}
			return nil, api.Errorf(api.CodeSandboxDied, "it was destroyed")
		}}
		func() {
			defer func() {
				if v := recover(); (v == http.ErrAbortHandler) != breaks {
					t.Errorf("%q: %v", text, v)
				}
			}()
			if code, body := post(f, "/execute", `{"code":"1"}`); code != http.StatusBadGateway {
				t.Errorf("%d: %s", code, body)
			}
		}()
	}
}

// TestEnvironments are texts in the code, whatever is in them.
func TestEnvironments(t *testing.T) {
	code, err := withEnv("python", map[string]string{"A": "\"'\\\n${x}"}, "x")
	if err != nil || strings.Count(code, "\n") != 1 || !strings.HasSuffix(code, "\nx") {
		t.Errorf("%q, %v", code, err)
	}
}
