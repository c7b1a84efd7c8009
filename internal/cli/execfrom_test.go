package cli_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/server/rest/apitest"
)

// made counts the sandboxes that a command makes and removes.
type made struct {
	mu      sync.Mutex
	from    []string
	removed []string
	argv    string
	started chan struct{} // a command runs
}

// service has sandboxes in which "hang" runs until it is interrupted, and everything else ends
// with 7. Processes with a terminal echo one line.
func (m *made) service() *apitest.Service {
	svc := fakeService()
	m.started = make(chan struct{}, 1)
	svc.CreateFunc = func(_ context.Context, req api.CreateRequest) (*api.Sandbox, error) {
		if req.Image == "nosuch" || req.Image == "base" {
			return nil, api.NotFound("image", req.Image)
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		m.from = append(m.from, req.Image)
		if n := req.Network; n != nil {
			m.from = append(m.from, fmt.Sprint(n.Profile, n.Allow, n.Deny))
		}
		return fakeSandbox(newID, "", ""), nil
	}
	svc.DestroyFunc = func(_ context.Context, ref string) error {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.removed = append(m.removed, ref)
		return nil
	}
	svc.ExecFunc = func(ctx context.Context, ref string, req api.ExecRequest, s api.ExecIO) (*api.ExecResult, error) {
		m.runs(fmt.Sprint(ref, " ", req.Argv, req.Shell))
		if slices.Contains(req.Argv, "hang") {
			m.started <- struct{}{}
			_, _ = io.WriteString(s.Stdout, "hanging\n")
			<-ctx.Done()
			return nil, ctx.Err()
		}
		if slices.Contains(req.Argv, "broken") {
			return nil, api.Errorf(api.CodeNoCommand, "broken: command not found")
		}
		if s.Stdin != nil {
			_, _ = io.Copy(s.Stdout, s.Stdin)
		}
		return &api.ExecResult{ExitCode: 7}, nil
	}
	svc.StartProcessFunc = func(_ context.Context, ref string, req api.StartRequest) (*api.Process, error) {
		m.runs(fmt.Sprint(ref, " ", req.Argv, req.Shell))
		return &api.Process{PID: 15, Kept: &api.KeptProcess{Terminal: true, Stdin: true}}, nil
	}
	svc.AttachFunc = func(_ context.Context, _ string, _ int, _ api.AttachRequest, s api.AttachIO) (*api.Position, error) {
		if err := s.Output(api.Chunk{Data: []byte("prompt$ ")}); err != nil {
			return nil, err
		}
		var typed []byte
		for key := make([]byte, 1); !bytes.HasSuffix(typed, []byte("\r")); {
			if _, err := s.Stdin.Read(key); err != nil {
				return nil, err
			}
			typed = append(typed, key[0])
			if err := s.Output(api.Chunk{Data: fmt.Appendf(nil, "<%q>", key)}); err != nil {
				return nil, err
			}
		}
		return &api.Position{Exit: &api.ExecResult{ExitCode: 9}}, s.Output(api.Chunk{Data: []byte("\r\n")})
	}
	return svc
}

func (m *made) runs(what string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.argv = what
}

// check compares what was made from, run and removed, and forgets it.
func (m *made) check(t *testing.T, from, argv string, removed bool) {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	var want []string
	if removed {
		want = []string{newID}
	}
	if got := strings.Join(m.from, " "); got != from || m.argv != argv || !slices.Equal(m.removed, want) {
		t.Errorf("made from %q, ran %q, removed %q; want %q, %q, %q", got, m.argv, m.removed, from, argv, want)
	}
	m.from, m.removed, m.argv = nil, nil, ""
}

// TestExecFrom makes sandboxes for single commands. With --rm none is left, however they end.
func TestExecFrom(t *testing.T) {
	m := &made{}
	socket := apitest.Serve(t, m.service())
	run := func(code int, args ...string) (stdout, stderr string) {
		t.Helper()
		var out, errs bytes.Buffer
		startOnTerminal(t, socket, terminalOptions{stdout: &out, stderr: &errs}, args...).ends(code)
		return out.String(), errs.String()
	}
	if _, said := run(7, "exec", "--from", "python", "--", "true", "-x"); said != "ramet: the sandbox is "+newID+"\n" {
		t.Errorf("it said %q", said)
	}
	m.check(t, "python", newID+" [true -x]", false)
	if _, said := run(7, "exec", "--rm", "--from", "clean", "-c", "true | x"); said != "" {
		t.Errorf("it said %q", said)
	}
	m.check(t, snapID, newID+" []true | x", true)
	run(127, "exec", "--from", imgID, "--rm", "broken")
	m.check(t, imgID, newID+" [broken]", true)
	run(7, "exec", "--from", "clean", "--rm", "--net", "open", "--deny", "a.example.org:22", "true")
	m.check(t, snapID+" open[] [a.example.org:22]", newID+" [true]", true)
	if _, said := run(3, "exec", "--from", "base", "--rm", "true"); !strings.Contains(said, "it is a sandbox, of which 'ramet snapshot base' makes a snapshot") {
		t.Errorf("from a sandbox it said %q", said)
	}
	if _, said := run(3, "exec", "--from", "nosuch", "--rm", "true"); !strings.Contains(said, "'ramet image build nosuch' makes one") {
		t.Errorf("it said %q", said)
	}
	m.check(t, "", "", false)
	for _, args := range [][]string{
		{"exec", "--rm", "base", "true"}, {"exec", "base", "--from", "python", "true"}, {"exec", "--from", "python"}, {"exec", "--from", "python", "--rm", "-d", "true"},
		{"exec", "--from=", "true"}, {"shell"}, {"shell", "--from", "python", "base"}, {"shell", "base", "more"},
	} {
		run(2, args...)
	}
	m.check(t, "", "", false)

	x := startOnTerminal(t, socket, terminalOptions{}, "exec", "--from", "python", "--rm", "--", "hang")
	x.sees(`^hanging$`)
	<-m.started
	x.types("\x03")
	wantScreen(t, x.ends(130), `^hanging$`, `^\^Cramet: interrupted$`)
	m.check(t, "python", newID+" [hang]", true)

	x = startOnTerminal(t, socket, terminalOptions{}, "exec", "--from", "python", "--rm", "-it", "--", "top")
	x.sees(`^prompt\$`)
	x.types("\x03\x10\x11\r") // neither an interrupt nor detach keys
	wantScreen(t, x.ends(9), `^prompt\$ <"\\x03"><"\\x10"><"\\x11"><"\\r">$`)
	m.check(t, "python", newID+" [top]", true)
}

// TestShell opens shells with a terminal, and without one for what comes in a pipe.
func TestShell(t *testing.T) {
	const text = "if command -v bash >/dev/null 2>&1; then exec bash; fi; exec sh"
	m := &made{}
	socket := apitest.Serve(t, m.service())
	x := startOnTerminal(t, socket, terminalOptions{}, "shell", "base")
	x.sees(`^prompt\$`)
	if raw := x.modes(); *raw == *x.before {
		t.Error("the terminal is not in raw mode")
	}
	x.types("\r")
	wantScreen(t, x.ends(9), `^prompt\$ <"\\r">$`)
	m.check(t, "", "base []"+text, false)

	x = startOnTerminal(t, socket, terminalOptions{}, "shell", "base")
	x.sees(`^prompt\$`)
	x.types("\x10\x11")
	x.ends(0)
	x.sees(`^ramet: the process runs on; 'ramet attach base 15' connects again$`)
	m.check(t, "", "base []"+text, false)

	x = startOnTerminal(t, socket, terminalOptions{}, "shell", "--from", "python", "--rm")
	x.sees(`^prompt\$`)
	x.types("\r")
	x.ends(9)
	m.check(t, "python", newID+" []"+text, true)

	x = startOnTerminal(t, socket, terminalOptions{stdin: "echo piped\n"}, "shell", "base")
	wantScreen(t, x.ends(7), `^echo piped$`)
	m.check(t, "", "base []"+text, false)
}
