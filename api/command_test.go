package api

import (
	"errors"
	"strings"
	"testing"
)

// wantField fails the test unless err is CodeInvalid and names field; "" is no error.
func wantField(t *testing.T, what, field string, err error) {
	t.Helper()
	var e *Error
	switch {
	case field == "" && err != nil:
		t.Errorf("%s: %v", what, err)
	case field != "" && (!errors.As(err, &e) || e.Code != CodeInvalid || e.Field != field):
		t.Errorf("%s: %v, not a fault of %s", what, err, field)
	}
}

// TestValidCommand has the cases among others in which REST and the node once disagreed.
func TestValidCommand(t *testing.T) {
	for what, c := range map[string]struct {
		field string
		req   StartRequest
	}{
		"argv":                     {"", StartRequest{Argv: []string{"true", ""}}},
		"shell":                    {"", StartRequest{Shell: "exit 1"}},
		"neither":                  {"argv", StartRequest{}},
		"both":                     {"argv", StartRequest{Argv: []string{"true"}, Shell: "true"}},
		"no program":               {"argv", StartRequest{Argv: []string{"", "x"}}},
		"NUL in an argument":       {"argv", StartRequest{Argv: []string{"a", "b\x00"}}},
		"NUL for the shell":        {"shell", StartRequest{Shell: "a\x00"}},
		"a variable":               {"", StartRequest{Shell: "x", Env: map[string]string{"_a1": "=\n"}}},
		"a variable with a dot":    {"env", StartRequest{Shell: "x", Env: map[string]string{"my.var": "1"}}},
		"a variable with a dash":   {"env", StartRequest{Shell: "x", Env: map[string]string{"my-var": "1"}}},
		"a variable with a space":  {"env", StartRequest{Shell: "x", Env: map[string]string{"a b": "1"}}},
		"a variable with a line":   {"env", StartRequest{Shell: "x", Env: map[string]string{"a\n": "1"}}},
		"a variable like a number": {"env", StartRequest{Shell: "x", Env: map[string]string{"1a": "1"}}},
		"a variable without name":  {"env", StartRequest{Shell: "x", Env: map[string]string{"": "1"}}},
		"a variable with =":        {"env", StartRequest{Shell: "x", Env: map[string]string{"a=b": "1"}}},
		"a value with NUL":         {"env", StartRequest{Shell: "x", Env: map[string]string{"a": "b\x00"}}},
		"a directory":              {"", StartRequest{Shell: "x", Cwd: "/a/../b"}},
		"a relative directory":     {"cwd", StartRequest{Shell: "x", Cwd: "a"}},
		"a directory with NUL":     {"cwd", StartRequest{Shell: "x", Cwd: "/a\x00"}},
		"a user with NUL":          {"user", StartRequest{Shell: "x", User: "a\x00"}},
		"the longest timeout":      {"", StartRequest{Shell: "x", TimeoutMS: MaxTimeoutMS, IdleTimeoutMS: MaxTimeoutMS}},
		"a longer timeout":         {"timeout_ms", StartRequest{Shell: "x", TimeoutMS: MaxTimeoutMS + 1}},
		"a negative timeout":       {"timeout_ms", StartRequest{Shell: "x", TimeoutMS: -1}},
		"a longer idle timeout":    {"idle_timeout_ms", StartRequest{Shell: "x", IdleTimeoutMS: MaxTimeoutMS + 1}},
		"a terminal":               {"", StartRequest{Shell: "x", Terminal: &TerminalSize{Cols: 1, Rows: 1}}},
		"a terminal without size":  {"terminal", StartRequest{Shell: "x", Terminal: &TerminalSize{Cols: 80}}},
		"a terminal with input":    {"stdin", StartRequest{Shell: "x", Stdin: true, Terminal: &TerminalSize{Cols: 80, Rows: 24}}},
	} {
		wantField(t, what, c.field, c.req.Valid())
		if c.req.IdleTimeoutMS != 0 || c.req.Terminal != nil {
			continue
		}
		exec := ExecRequest{Argv: c.req.Argv, Shell: c.req.Shell, Env: c.req.Env, Cwd: c.req.Cwd, User: c.req.User, TimeoutMS: c.req.TimeoutMS}
		wantField(t, what+", waited for", c.field, exec.Valid())
		bisect := BisectRequest{Argv: c.req.Argv, Shell: c.req.Shell, Env: c.req.Env, Cwd: c.req.Cwd, User: c.req.User, TimeoutMS: c.req.TimeoutMS}
		wantField(t, what+", bisected", c.field, bisect.Valid())
	}
	at := int64(7)
	key := strings.Repeat("k", 16)
	wantField(t, "coming back", "", (&ExecRequest{Shell: "x", Key: key, From: &at}).Valid())
	wantField(t, "coming back without a key", "from", (&ExecRequest{Shell: "x", From: &at}).Valid())
	wantField(t, "a key and input", "key", (&ExecRequest{Shell: "x", Key: key, Stdin: "x"}).Valid())
}

func TestCommandArgv(t *testing.T) {
	if argv, err := CommandArgv(nil, "exit 1"); err != nil || strings.Join(argv, "|") != "/bin/sh|-c|exit 1" {
		t.Errorf("%q, %v", argv, err)
	}
	if argv, err := CommandArgv([]string{"a", "b"}, ""); err != nil || strings.Join(argv, "|") != "a|b" {
		t.Errorf("%q, %v", argv, err)
	}
}
