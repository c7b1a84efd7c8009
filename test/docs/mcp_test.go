package docs

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"ramet.dev/ramet/api"
)

// agent is a client of the Model Context Protocol, as a program that agents run in has it.
type agent struct {
	t *testing.T
	*mcp.ClientSession
	progress chan string
}

func newAgent(t *testing.T, transport mcp.Transport) *agent {
	t.Helper()
	a := &agent{t: t, progress: make(chan string, 1000)}
	c := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, req *mcp.ProgressNotificationClientRequest) {
			select {
			case a.progress <- req.Params.Message:
			default:
			}
		},
	})
	session, err := c.Connect(t.Context(), transport, nil)
	if err != nil {
		t.Fatal(err)
	}
	a.ClientSession = session
	t.Cleanup(func() { session.Close() })
	return a
}

// overPipes starts the command of the daemon's user.
func (d *daemon) overPipes() *agent {
	d.t.Helper()
	cmd := exec.Command(filepath.Join(programs, "ramet"), "mcp")
	cmd.Env = environment(d.dir)
	return newAgent(d.t, &mcp.CommandTransport{Command: cmd})
}

// call calls a tool and returns its text and its fields.
func (a *agent) call(name string, args map[string]any) (text string, fields map[string]any) {
	a.t.Helper()
	text, fields, failed := a.try(name, args)
	if failed {
		a.t.Fatalf("%s %v: %s", name, args, text)
	}
	return text, fields
}

func (a *agent) try(name string, args map[string]any) (text string, fields map[string]any, failed bool) {
	a.t.Helper()
	params := &mcp.CallToolParams{Name: "ramet_" + name, Arguments: args}
	params.SetProgressToken("p")
	res, err := a.CallTool(a.t.Context(), params)
	if err != nil {
		a.t.Fatalf("%s %v: %v", name, args, err)
	}
	for _, c := range res.Content {
		if c, ok := c.(*mcp.TextContent); ok {
			text += c.Text
		}
	}
	fields, _ = res.StructuredContent.(map[string]any)
	return text, fields, res.IsError
}

// fails calls a tool that must fail, and returns what it says.
func (a *agent) fails(name string, args map[string]any, with ...string) {
	a.t.Helper()
	text, _, failed := a.try(name, args)
	if !failed {
		a.t.Errorf("%s %v does not fail: %s", name, args, text)
	}
	for _, w := range with {
		if !strings.Contains(text, w) {
			a.t.Errorf("%s %v says %q, without %q", name, args, text, w)
		}
	}
}

// at returns a member of fields: at(f, "children", 0, "sandbox").
func at(t *testing.T, v any, path ...any) any {
	t.Helper()
	for _, p := range path {
		switch p := p.(type) {
		case string:
			v = v.(map[string]any)[p]
		case int:
			list, _ := v.([]any)
			if p >= len(list) {
				t.Fatalf("there are %d, not %d", len(list), p+1)
			}
			v = list[p]
		}
	}
	return v
}

// TestAgentSolvesATask has a script in place of a model repair a program: it forks three ways, tests each,
// promotes the one that passes, and ends the others.
func TestAgentSolvesATask(t *testing.T) {
	d := newDaemon(t)
	a := d.overPipes()
	tools, err := a.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(tools.Tools) != 10 {
		t.Errorf("there are %d tools", len(tools.Tools))
	}
	for _, tool := range tools.Tools {
		if !strings.HasPrefix(tool.Name, "ramet_") || tool.Description == "" || tool.OutputSchema == nil || tool.Annotations == nil {
			t.Errorf("%s is not described", tool.Name)
		}
	}
	// Python would take the bytecode of a file of the same size and second.
	a.call("create", map[string]any{"name": "work", "env": map[string]string{"PYTHONDONTWRITEBYTECODE": "1"}})
	a.call("files", map[string]any{"sandbox": "work", "action": "write", "path": "/srv/app.py", "content": "def add(a, b):\n    return a - b\n"})
	a.call("files", map[string]any{"sandbox": "work", "action": "write", "path": "/srv/test.py", "content": "from app import add\nassert add(2, 3) == 5, add(2, 3)\n"})
	a.call("run_code", map[string]any{"sandbox": "work", "code": "notes = ['seen']"})
	if text, f := a.call("exec", map[string]any{"sandbox": "work", "command": "python3 test.py", "cwd": "/srv"}); f["exit_code"] != 1.0 || !strings.Contains(text, "AssertionError: -1") {
		t.Fatalf("the test says %q", text)
	}
	_, forked := a.call("fork", map[string]any{"sandbox": "work", "names": []string{"way-0", "way-1", "way-2"}})
	winner := ""
	for i, op := range []string{"*", "+", "//"} {
		child := at(t, forked, "children", i, "sandbox").(string)
		a.call("files", map[string]any{"sandbox": child, "action": "replace", "path": "/srv/app.py", "old": "a - b", "new": "a " + op + " b"})
		if _, f := a.call("exec", map[string]any{"sandbox": child, "command": "python3 test.py", "cwd": "/srv"}); f["exit_code"] == 0.0 {
			winner = child
			a.call("run_code", map[string]any{"sandbox": child, "code": fmt.Sprintf("notes.append(%q)", op)})
		}
	}
	if winner == "" {
		t.Fatal("no way passes")
	}
	if text, _ := a.call("inspect", map[string]any{"sandbox": "work", "other": winner, "hunks": true, "variables": true}); !strings.Contains(text, "modified /srv/app.py") || !strings.Contains(text, "+    return a + b") || !strings.Contains(text, "notes") {
		t.Errorf("the comparison says %q", text)
	}
	a.call("promote", map[string]any{"from": []string{winner}})
	if text, _ := a.call("run_code", map[string]any{"sandbox": "work", "code": "exec(open('/srv/app.py').read()); add(2, 3), notes"}); text != "(5, ['seen', '+'])" {
		t.Errorf("the parent has %q", text)
	}
	if text, f := a.call("destroy", map[string]any{"names": []string{"way-0", "way-2", "work", "nothing"}}); len(f["destroyed"].([]any)) != 3 || !strings.Contains(text, "nothing: ") {
		t.Errorf("destroy says %q", text)
	}
}

// TestAgentsTools goes through what the tools do, and what they say when they cannot.
func TestAgentsTools(t *testing.T) {
	d := newDaemon(t)
	a := d.overPipes()
	_, made := a.call("create", map[string]any{"name": "s", "ttl_s": 600, "env": map[string]string{"A": "b"}})
	id := made["sandbox"].(string)
	t.Cleanup(func() {
		c := d.client()
		left, _ := c.Sandboxes.List(context.Background(), api.ListFilter{})
		for _, s := range left {
			_ = c.Sandboxes.Destroy(context.Background(), s.ID) // the end of the daemon looks
		}
	})

	// Commands that take long, that write much, and that want input.
	_, f := a.call("exec", map[string]any{"sandbox": "s", "command": "echo $A; read line; echo got $line; exit 3", "interactive": true, "wait_s": 5})
	if f["running"] != true || f["stdout"] != "b\n" {
		t.Errorf("a command that waits: %v", f)
	}
	if _, f = a.call("exec", map[string]any{"sandbox": "s", "process": f["process"], "after": f["next"], "stdin": "it\n"}); f["running"] != false || f["stdout"] != "got it\n" || f["exit_code"] != 3.0 {
		t.Errorf("its end: %v", f)
	}
	_, f = a.call("exec", map[string]any{"sandbox": "s", "command": "seq 1 20000"})
	out := f["stdout"].(string)
	if f["truncated"] != true || len(out) > 30000 || !strings.HasPrefix(out, "1\n2\n") || !strings.HasSuffix(out, "\n20000\n") {
		t.Errorf("a long output has %d bytes: %v", len(out), f["truncated"])
	}
	res, err := a.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: fmt.Sprintf("ramet://s/processes/%v/output", f["process"])})
	if err != nil || !strings.HasSuffix(res.Contents[0].Text, "\n9999\n10000\n10001\n") && !strings.Contains(res.Contents[0].Text, "\n10000\n10001\n") {
		t.Errorf("the rest of the output: %v", err)
	}
	_, f = a.call("exec", map[string]any{"sandbox": "s", "command": "python3 -m http.server 8000", "background": true})
	if f["running"] != true {
		t.Errorf("a server: %v", f)
	}
	if !eventually(time.Minute, func() bool {
		text, _ := a.call("inspect", map[string]any{"sandbox": "s"})
		return strings.Contains(text, ":8000") && strings.Contains(text, "http.server")
	}) {
		t.Error("the server is not shown")
	}
	a.call("exec", map[string]any{"sandbox": "s", "process": f["process"], "signal": "KILL"})
	if _, f = a.call("exec", map[string]any{"sandbox": "s", "command": "sleep 1000", "timeout_s": 1}); f["timed_out"] != true {
		t.Errorf("a command with a timeout: %v", f)
	}

	// A call that is cancelled leaves no process, and tells how far it is before.
	ctx, cancel := context.WithCancel(t.Context())
	cancelled := make(chan error, 1)
	go func() {
		params := &mcp.CallToolParams{Name: "ramet_exec", Arguments: map[string]any{"sandbox": "s", "command": "echo step one; exec sleep 999"}}
		params.SetProgressToken("c")
		_, err := a.CallTool(ctx, params)
		cancelled <- err
	}()
	for text := range a.progress {
		if text == "step one" {
			break
		}
	}
	cancel()
	if err := <-cancelled; err == nil {
		t.Error("a call that was cancelled has a result")
	}
	if !eventually(time.Minute, func() bool {
		text, _ := a.call("inspect", map[string]any{"sandbox": "s"})
		return !strings.Contains(text, "sleep 999")
	}) {
		t.Error("a call that was cancelled leaves its process")
	}

	// Code.
	if text, f := a.call("run_code", map[string]any{"sandbox": "s", "code": "print('x')\n1/0"}); !strings.Contains(text, "ZeroDivisionError") || at(t, f, "error", "name") != "ZeroDivisionError" {
		t.Errorf("code that fails: %q", text)
	}
	png := `class P:
    def _repr_png_(self): return b"\x89PNG\r\n\x1a\n" + bytes(9)
P()`
	img, err := a.CallTool(t.Context(), &mcp.CallToolParams{Name: "ramet_run_code", Arguments: map[string]any{"sandbox": "s", "code": png}})
	if err != nil || len(img.Content) != 2 {
		t.Fatalf("code that shows an image: %v, %+v", err, img)
	}
	if i, ok := img.Content[1].(*mcp.ImageContent); !ok || i.MIMEType != "image/png" || !strings.HasPrefix(string(i.Data), "\x89PNG") {
		t.Errorf("the image is %+v", img.Content[1])
	}

	// Files.
	a.call("files", map[string]any{"sandbox": "s", "action": "write", "path": "/srv/d/a.txt", "content": "one\ntwo\nthree\n"})
	a.call("files", map[string]any{"sandbox": "s", "action": "append", "path": "/srv/d/a.txt", "content": "four"})
	if text, f := a.call("files", map[string]any{"sandbox": "s", "action": "read", "path": "/srv/d/a.txt", "line": 2, "lines": 2}); text != "two\nthree\n[more from line 4]" || f["next_line"] != 4.0 {
		t.Errorf("lines of a file: %q", text)
	}
	if text, _ := a.call("files", map[string]any{"sandbox": "s", "action": "search", "path": "/srv", "text": "^t"}); text != "/srv/d/a.txt:2:two\n/srv/d/a.txt:3:three" {
		t.Errorf("a search: %q", text)
	}
	a.fails("files", map[string]any{"sandbox": "s", "action": "replace", "path": "/srv/d/a.txt", "old": "o", "new": "0"}, "3 times", "all")
	a.fails("files", map[string]any{"sandbox": "s", "action": "replace", "path": "/srv/d/a.txt", "old": "five", "new": "0"}, "is not in")
	a.call("files", map[string]any{"sandbox": "s", "action": "move", "path": "/srv/d/a.txt", "to": "/srv/e/b.txt"})
	if text, _ := a.call("files", map[string]any{"sandbox": "s", "action": "list", "path": "/srv", "depth": 2, "glob": "*.txt"}); text != "/srv/e/b.txt (18 bytes)" {
		t.Errorf("a list: %q", text)
	}
	res, err = a.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "ramet://s/files/srv/e/b.txt"})
	if err != nil || res.Contents[0].Text != "one\ntwo\nthree\nfour" {
		t.Errorf("a file as a resource: %v %+v", err, res)
	}
	if _, err := a.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "ramet://s/files/srv/nothing"}); err == nil {
		t.Error("a file that is not there is read")
	}
	a.call("files", map[string]any{"sandbox": "s", "action": "remove", "path": "/srv/e"})

	// Snapshots, merges, explorations.
	a.call("snapshot", map[string]any{"action": "create", "sandbox": "s", "name": "before"})
	a.call("exec", map[string]any{"sandbox": "s", "command": "rm -rf /srv /usr/bin/python3"})
	a.call("snapshot", map[string]any{"action": "rollback", "sandbox": "s", "snapshot": "before"})
	if _, f := a.call("exec", map[string]any{"sandbox": id, "command": "python3 -c 'print(1)'"}); f["stdout"] != "1\n" {
		t.Errorf("after the rollback: %v", f)
	}
	_, f = a.call("snapshot", map[string]any{"action": "restore", "snapshot": "before", "names": []string{"r"}})
	if at(t, f, "sandboxes", 0, "name") != "r" {
		t.Errorf("restored: %v", f)
	}
	a.call("fork", map[string]any{"sandbox": "s", "names": []string{"m"}})
	a.call("exec", map[string]any{"sandbox": "m", "command": "echo new >/srv/new"})
	if text, f := a.call("promote", map[string]any{"action": "merge", "sandbox": "s", "from": []string{"m"}}); at(t, f, "changes", 0, "name") != "/srv/new" {
		t.Errorf("merge: %q", text)
	}
	text, f := a.call("explore", map[string]any{"sandbox": "s", "command": "echo $N; sleep 0", "score": "number", "then": "promote", "attempts": []map[string]any{
		{"name": "low", "env": map[string]string{"N": "1"}}, {"name": "high", "env": map[string]string{"N": "7"}, "files": map[string]string{"/srv/won": "yes"}}, {"name": "bad", "command": "exit 4"},
	}})
	if at(t, f, "attempts", 1, "won") != true || at(t, f, "attempts", 2, "state") != "failed" || f["winner"] != id || !strings.Contains(text, "score 7, the best") {
		t.Errorf("explore: %q", text)
	}
	if _, f := a.call("exec", map[string]any{"sandbox": "s", "command": "cat /srv/won"}); f["stdout"] != "yes" {
		t.Errorf("the winner was not promoted: %v", f)
	}
	if text, _ := a.call("inspect", nil); !strings.Contains(text, id) || !strings.Contains(text, "snapshot") {
		t.Errorf("the tree: %q", text)
	}

	// Errors say what to do.
	a.fails("exec", map[string]any{"sandbox": "none", "command": "true"}, "not_found", "ramet_inspect")
	a.fails("exec", map[string]any{"sandbox": "s"}, "command")
	a.fails("exec", map[string]any{"sandbox": "s", "command": "true", "wait_s": 10000}, "wait_s")
	a.fails("create", map[string]any{"image": "none"}, "not_found")
	a.fails("create", map[string]any{"name": "s"}, "name_taken")
	a.fails("create", map[string]any{"imagee": "x"}, "imagee")
	a.fails("promote", map[string]any{"from": []string{"a", "b"}}, "exactly one")
	a.fails("snapshot", map[string]any{"action": "rollback", "sandbox": "s"}, "snapshot")
	a.fails("destroy", map[string]any{"names": []string{"none"}}, "not_found")

	// The daemon ends, and the next call starts it again.
	d.kill()
	a.fails("exec", map[string]any{"sandbox": "s", "command": "true"}, "runs again")
	if _, f := a.call("exec", map[string]any{"sandbox": "s", "command": "cat /srv/won"}); f["stdout"] != "yes" {
		t.Errorf("after the daemon has ended: %v", f)
	}
	d.replace()
}

// replace ends the daemon that a command has started in place of the one that was killed, and starts one.
func (d *daemon) replace() {
	d.t.Helper()
	h, err := d.client().Health(context.Background())
	if err != nil {
		d.t.Fatal(err)
	}
	if err := syscall.Kill(h.PID, syscall.SIGTERM); err != nil {
		d.t.Fatal(err)
	}
	if !eventually(time.Minute, func() bool { return syscall.Kill(h.PID, 0) != nil }) {
		d.t.Fatal("the daemon does not end")
	}
	d.start()
}

// bearer sends a token.
type bearer string

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(b))
	return http.DefaultTransport.RoundTrip(r)
}

// TestAgentsOverHTTP shows that each caller has the rights of his token, and that pages of browsers have none.
func TestAgentsOverHTTP(t *testing.T) {
	d := newDaemon(t)
	cmd := exec.Command(filepath.Join(programs, "ramet"), "mcp", "--http", "127.0.0.1:0")
	cmd.Env = environment(d.dir)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(stderr).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	url := strings.TrimSpace(line[strings.Index(line, "http://"):])
	c := d.client()
	token := func(req api.TokenRequest) string {
		made, err := c.Tokens.Create(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		return made.Secret
	}
	agentOf := func(secret string) *agent {
		return newAgent(t, &mcp.StreamableClientTransport{Endpoint: url, HTTPClient: &http.Client{Transport: bearer(secret)}, DisableStandaloneSSE: true})
	}
	for _, tenant := range []string{"one", "two"} {
		if _, err := c.Tenants.GiveImage(t.Context(), tenant, api.GiveRequest{Image: "python"}); err != nil {
			t.Fatal(err)
		}
	}
	one := agentOf(token(api.TokenRequest{Tenant: "one", Scope: api.ScopeAdmin}))
	two := agentOf(token(api.TokenRequest{Tenant: "two", Scope: api.ScopeAdmin}))
	_, made := one.call("create", map[string]any{"name": "mine"})
	id := made["sandbox"].(string)
	two.fails("exec", map[string]any{"sandbox": id, "command": "true"}, "not_found")
	two.fails("destroy", map[string]any{"names": []string{id}}, "not_found")
	if _, err := two.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "ramet://" + id + "/files/etc/hostname"}); err == nil {
		t.Error("a file of another tenant is read")
	}
	if text, _ := two.call("inspect", nil); strings.Contains(text, id) {
		t.Errorf("another tenant sees %q", text)
	}
	one.call("exec", map[string]any{"sandbox": "mine", "command": "true"})
	one.call("destroy", map[string]any{"names": []string{"mine"}})

	good := token(api.TokenRequest{Scope: api.ScopeAdmin})
	post := func(change func(*http.Request)) int {
		body, _ := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(string(body)))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+good)
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
		change(r)
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		return res.StatusCode
	}
	for what, try := range map[string]struct {
		change func(*http.Request)
		want   int
	}{
		"as it should be":           {func(*http.Request) {}, http.StatusOK},
		"no token":                  {func(r *http.Request) { r.Header.Del("Authorization") }, http.StatusUnauthorized},
		"a wrong token":             {func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+good+"x") }, http.StatusUnauthorized},
		"a page of another site":    {func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }, http.StatusForbidden},
		"a page of another origin":  {func(r *http.Request) { r.Header.Set("Origin", "http://evil.example.org") }, http.StatusForbidden},
		"a name that was rebound":   {func(r *http.Request) { r.Host = "evil.example.org" }, http.StatusForbidden},
		"a body that never ends":    {func(r *http.Request) { r.Body, r.ContentLength = endless{}, -1 }, http.StatusRequestEntityTooLarge},
		"a method that it has not":  {func(r *http.Request) { r.Method = http.MethodPut }, http.StatusMethodNotAllowed},
		"a path that it has not":    {func(r *http.Request) { r.URL.Path = "/mcp/x" }, http.StatusNotFound},
		"a token in the wrong form": {func(r *http.Request) { r.Header.Set("Authorization", "Basic "+good) }, http.StatusUnauthorized},
	} {
		if got := post(try.change); got != try.want {
			t.Errorf("%s: %d, not %d", what, got, try.want)
		}
	}
}

type endless struct{}

func (endless) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = ' '
	}
	return len(b), nil
}
func (endless) Close() error { return nil }
