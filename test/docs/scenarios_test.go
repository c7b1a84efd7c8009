package docs

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/client"
)

// user is what a scenario has: a client, and a sandbox of its own.
type user struct {
	*testing.T
	*client.Client
	ctx context.Context
	id  string
}

// scenarios are what all SDKs do with a real daemon, by the names of sdk/scenarios.json.
var scenarios = map[string]func(*user){
	"a command": func(u *user) {
		res := take(u.Processes.Exec(u.ctx, u.id, api.ExecRequest{Shell: "echo out; echo err >&2; exit 3"}))(u)
		u.same([]any{res.Stdout, res.Stderr, res.ExitCode}, []any{"out\n", "err\n", 3})
		data := anyBytes(256_000)
		var out bytes.Buffer
		take(u.Processes.ExecStream(u.ctx, u.id, api.ExecRequest{Argv: []string{"cat"}}, api.ExecIO{Stdin: bytes.NewReader(data), Stdout: &out}))(u)
		u.same(bytes.Equal(out.Bytes(), data), true)
	},
	"a command that is read while it runs": func(u *user) {
		out, in := io.Pipe()
		ended := make(chan error, 1)
		go func() {
			_, err := u.Processes.ExecStream(u.ctx, u.id, api.ExecRequest{Shell: "echo a; until [ -e /srv/go ]; do sleep 0.02; done; echo b"}, api.ExecIO{Stdout: in})
			in.CloseWithError(err)
			ended <- err
		}()
		lines := bufio.NewReader(out)
		u.same(take(lines.ReadString('\n'))(u), "a\n")
		u.write("/srv/go", "")
		u.same(take(lines.ReadString('\n'))(u), "b\n")
		_, err := lines.ReadByte()
		u.same([]any{err, <-ended}, []any{io.EOF, nil})
	},
	"a command with a time limit": func(u *user) {
		res := take(u.Processes.Exec(u.ctx, u.id, api.ExecRequest{Shell: "echo begun; sleep 1000", TimeoutMS: 2000}))(u)
		u.same([]any{res.TimedOut, res.Stdout}, []any{true, "begun\n"})
	},
	"a process in the background": func(u *user) {
		p := take(u.Processes.Start(u.ctx, u.id, api.StartRequest{Shell: "cat; echo end", Stdin: true}))(u)
		u.must(u.Processes.Write(u.ctx, u.id, p.PID, []byte("hello\n"), true))
		u.same(take(u.Processes.Wait(u.ctx, u.id, p.PID))(u).ExitCode, 0)
		var out strings.Builder
		take(u.Processes.Output(u.ctx, u.id, p.PID, api.AttachRequest{}, func(c api.Chunk) error {
			out.Write(c.Data)
			return nil
		}))(u)
		u.same(out.String(), "hello\nend\n")
	},
	"a terminal": func(u *user) {
		p := take(u.Processes.Start(u.ctx, u.id, api.StartRequest{Argv: []string{"sh"}, Terminal: &api.TerminalSize{Cols: 100, Rows: 30}}))(u)
		var screen strings.Builder
		take(u.Processes.Attach(u.ctx, u.id, p.PID, 0, api.AttachIO{Stdin: strings.NewReader("echo $((6*7)); exit\n"), Output: func(c api.Chunk) error {
			screen.Write(c.Data)
			return nil
		}}))(u)
		u.same(strings.Contains(screen.String(), "42\r\n"), true)
	},
	"code": func(u *user) {
		u.value("x = [1, 2]")
		run := take(u.Contexts.RunCode(u.ctx, u.id, api.RunCodeRequest{Code: "print('said'); x * 2"}))(u)
		u.same([]any{run.Stdout, run.Result}, []any{"said\n", "[1, 2, 1, 2]"})
		run = take(u.Contexts.RunCode(u.ctx, u.id, api.RunCodeRequest{Code: "1/0"}))(u)
		u.same(run.Error != nil && run.Error.Name == "ZeroDivisionError", true)
	},
	"files": func(u *user) {
		data := anyBytes(2 << 20)
		u.write("/srv/d/data", string(data))
		u.same(u.read("/srv/d/data") == string(data), true)
		first := u.write("/srv/d/text", "one\n")
		second := api.WriteRequest{FileRef: api.FileRef{Path: "/srv/d/text"}, IfMatch: []string{first.ETag}}
		take(u.Files.Write(u.ctx, u.id, second, strings.NewReader("two\n")))(u)
		_, err := u.Files.Write(u.ctx, u.id, second, strings.NewReader("three\n"))
		u.same([]any{api.CodeOf(err), u.read("/srv/d/text")}, []any{api.CodeChanged, "two\n"})
		var paths []string
		u.must(u.Files.List(u.ctx, u.id, api.ListRequest{FileRef: api.FileRef{Path: "/srv/d"}, Depth: 1}, func(f api.FileInfo) error {
			paths = append(paths, f.Path)
			return nil
		}))
		u.same(paths, []string{"/srv/d/data", "/srv/d/text"})
	},
	"a fork": func(u *user) {
		u.value("x = 1")
		one, two := u.fork2()
		one.value("x += 1")
		u.same([]string{one.value("x"), two.value("x"), u.value("x")}, []string{"2", "1", "1"})
		for _, child := range []*user{one, two} {
			u.same(take(u.Sandboxes.Get(u.ctx, child.id))(u).Parent, u.id)
		}
	},
	"a difference and a merge": func(u *user) {
		one, two := u.fork2()
		one.write("/srv/a", "a")
		two.write("/srv/b", "b")
		diff := take(u.Sandboxes.Diff(u.ctx, u.id, one.id, api.DiffRequest{Paths: []string{"/srv"}}))(u)
		u.same(len(diff.Changes) == 1 && diff.Changes[0].Path == "/srv/a", true)
		merged := take(u.Sandboxes.Merge(u.ctx, u.id, api.MergeRequest{From: []string{one.id, two.id}, Paths: []string{"/srv"}}))(u)
		var paths []string
		for _, change := range merged.Applied {
			paths = append(paths, change.Path)
		}
		slices.Sort(paths)
		u.same([]any{paths, u.read("/srv/a") + u.read("/srv/b")}, []any{[]string{"/srv/a", "/srv/b"}, "ab"})
	},
	"a promotion": func(u *user) {
		child := u.fork()
		child.value("winner = True")
		take(u.Sandboxes.Promote(u.ctx, child.id))(u)
		_, err := u.Sandboxes.Get(u.ctx, child.id)
		u.same([]any{u.value("winner"), api.CodeOf(err)}, []any{"True", api.CodeNotFound})
	},
	"a snapshot": func(u *user) {
		u.value("x = 1")
		snap := take(u.Snapshots.Create(u.ctx, u.id, api.SnapshotRequest{}))(u)
		u.value("x = 2")
		for _, child := range take(u.Snapshots.Restore(u.ctx, snap.ID, api.RestoreRequest{Count: 2}))(u).Children {
			u.same(u.of(child).value("x"), "1")
		}
		take(u.Sandboxes.Rollback(u.ctx, u.id, snap.ID))(u)
		u.same(u.value("x"), "1")
		u.must(u.Snapshots.Delete(u.ctx, snap.ID, api.SnapshotDeletion{}))
	},
	"rest": func(u *user) {
		u.value("x = 1")
		take(u.Sandboxes.Hibernate(u.ctx, u.id))(u)
		u.same(take(u.Sandboxes.Get(u.ctx, u.id))(u).State, api.StateHibernated)
		u.same([]any{u.value("x"), take(u.Sandboxes.Get(u.ctx, u.id))(u).State}, []any{"1", api.StateRunning})
	},
	"a port": func(u *user) {
		take(u.Processes.Start(u.ctx, u.id, api.StartRequest{Shell: "cd /srv && echo hello > page && exec python3 -m http.server 8000"}))(u)
		take(u.Ports.Wait(u.ctx, u.id, 8000, time.Minute))(u)
		conn := take(u.Ports.Dial(u.ctx, u.id, 8000, 0))(u)
		defer conn.Close()
		_ = take(io.WriteString(conn, "GET /page HTTP/1.0\r\n\r\n"))(u)
		resp := take(http.ReadResponse(bufio.NewReader(conn), nil))(u)
		defer resp.Body.Close()
		u.same(string(take(io.ReadAll(resp.Body))(u)), "hello\n")
	},
	"a network": func(u *user) {
		allowed := func(host string) bool {
			return take(u.Networks.Test(u.ctx, u.id, api.NetworkTest{Host: host, Port: 443}))(u).Allowed
		}
		u.same(allowed("api.example.org"), false)
		take(u.Networks.Set(u.ctx, u.id, api.NetworkRequest{NetworkPolicy: api.NetworkPolicy{Allow: []api.NetworkRule{{Address: "api.example.org"}}}}))(u)
		u.same([]bool{allowed("api.example.org"), allowed("other.example.org")}, []bool{true, false})
	},
	"an exploration": func(u *user) {
		begun := take(u.Explorations.Begin(u.ctx, u.id, api.ExplorePlan{
			Run:      api.ExploreRun{Shell: "echo $N | tee /srv/n"},
			Variants: []api.ExploreVariant{{Env: map[string]string{"N": "1"}}, {Env: map[string]string{"N": "3"}}, {Env: map[string]string{"N": "2"}}},
			Score:    api.ExploreScore{By: api.ScoreNumber},
			Then:     api.ThenPromote,
		}))(u)
		attempts := 0
		u.must(u.Explorations.Events(u.ctx, begun.ID, 0, true, func(ev api.ExplorationEvent) error {
			if ev.Attempt != nil {
				attempts++
			}
			return nil
		}))
		ended := take(u.Explorations.Wait(u.ctx, begun.ID))(u)
		u.same([]any{attempts > 0, ended.Winners, u.read("/srv/n")}, []any{true, []int{1}, "3\n"})
		u.same(*ended.Children[1].Score, 3.0)
		u.must(u.Explorations.Remove(u.ctx, begun.ID))
	},
	"events": func(u *user) {
		take(u.Sandboxes.Pause(u.ctx, u.id))(u)
		take(u.Sandboxes.Resume(u.ctx, u.id))(u)
		var kinds []api.EventKind
		u.must(u.Events(u.ctx, api.EventRequest{Sandbox: u.id, Kinds: []api.EventKind{api.EventPaused, api.EventResumed}}, func(ev api.Event) error {
			kinds = append(kinds, ev.Kind)
			return nil
		}))
		u.same(kinds, []api.EventKind{api.EventPaused, api.EventResumed})
	},
	"errors": func(u *user) {
		_, err := u.Sandboxes.Get(u.ctx, "nobody")
		u.same(api.CodeOf(err), api.CodeNotFound)
		name := "Not a name"
		_, err = u.Sandboxes.Update(u.ctx, u.id, api.UpdateRequest{Name: &name})
		u.same([]any{api.CodeOf(err), api.AsError(err).Field}, []any{api.CodeInvalid, "name"})
		u.same(take(u.Processes.Exec(u.ctx, u.id, api.ExecRequest{Shell: "exit 3"}))(u).OK, false) // a result and no error
	},
	"a sandbox that ends": func(u *user) {
		ended := make(chan error, 1)
		go func() {
			_, err := u.Processes.Exec(u.ctx, u.id, api.ExecRequest{Argv: []string{"sleep", "8765"}})
			ended <- err
		}()
		u.runs("8765")
		u.must(u.Sandboxes.Destroy(u.ctx, u.id))
		u.same(api.CodeOf(<-ended), api.CodeSandboxDied)
	},
}

// TestClientScenarios has the Go client do what all SDKs do, at the socket of a daemon and over TLS
// with a token.
func TestClientScenarios(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(top, "sdk", "scenarios.json"))
	if err != nil {
		t.Fatal(err)
	}
	var listed []struct{ Name string }
	if err := json.Unmarshal(text, &listed); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, one := range listed {
		names = append(names, one.Name)
	}
	if done := slices.Sorted(maps.Keys(scenarios)); !slices.Equal(slices.Sorted(slices.Values(names)), done) {
		t.Fatalf("sdk/scenarios.json has %q, and done are %q", names, done)
	}

	args, ca := certificate(t)
	address := freeAddress(t)
	d := newDaemon(t, append(args, "--listen", address)...)
	owner := d.client()
	token, err := owner.Tokens.Create(t.Context(), api.TokenRequest{Scope: api.ScopeAdmin})
	if err != nil {
		t.Fatal(err)
	}
	remote, err := client.Open(client.Config{Address: "https://" + address, Token: token.Secret, CA: ca})
	if err != nil {
		t.Fatal(err)
	}
	defer remote.Close()
	base := newUser(t, owner)
	base.value("import json")
	for _, way := range []struct {
		name string
		*client.Client
	}{{"socket", owner}, {"tls", remote}} {
		for _, name := range names {
			t.Run(way.name+"/"+name, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), timeout)
				defer cancel()
				scenarios[name]((&user{T: t, Client: way.Client, ctx: ctx, id: base.id}).fork())
			})
		}
	}
}

// newUser creates a sandbox.
func newUser(t *testing.T, c *client.Client) *user {
	t.Helper()
	u := &user{T: t, Client: c, ctx: t.Context()}
	return u.has(take(c.Sandboxes.Create(u.ctx, api.CreateRequest{Image: "python"}))(u))
}

// has returns the user of another sandbox, which ends with the test.
func (u *user) has(s *api.Sandbox) *user {
	u.Cleanup(func() {
		if err := u.Sandboxes.Destroy(context.Background(), s.ID); err != nil && api.CodeOf(err) != api.CodeNotFound {
			u.Errorf("destroy %s: %v", s.ID, err)
		}
	})
	return &user{T: u.T, Client: u.Client, ctx: u.ctx, id: s.ID}
}

func (u *user) of(child api.Child) *user {
	u.Helper()
	if child.Error != nil {
		u.Fatal(child.Error)
	}
	return u.has(child.Sandbox)
}

func (u *user) fork() *user {
	u.Helper()
	return u.of(take(u.Sandboxes.Fork(u.ctx, u.id, api.ForkRequest{}))(u).Children[0])
}

func (u *user) fork2() (*user, *user) {
	u.Helper()
	forked := take(u.Sandboxes.Fork(u.ctx, u.id, api.ForkRequest{Count: 2}))(u)
	return u.of(forked.Children[0]), u.of(forked.Children[1])
}

// value runs code, which must not fail, and returns the text of its value.
func (u *user) value(code string) string {
	u.Helper()
	run := take(u.Contexts.RunCode(u.ctx, u.id, api.RunCodeRequest{Code: code}))(u)
	if run.Error != nil {
		u.Fatalf("%s: %+v", code, run.Error)
	}
	return run.Result
}

func (u *user) write(path, text string) *api.FileInfo {
	u.Helper()
	return take(u.Files.Write(u.ctx, u.id, api.WriteRequest{FileRef: api.FileRef{Path: path}, Parents: true}, strings.NewReader(text)))(u)
}

func (u *user) read(path string) string {
	u.Helper()
	body, _, err := u.Files.Read(u.ctx, u.id, api.FileRef{Path: path})
	u.must(err)
	defer body.Close()
	return string(take(io.ReadAll(body))(u))
}

// runs waits until a command runs in the sandbox that has the text.
func (u *user) runs(text string) {
	u.Helper()
	if !eventually(timeout, func() bool {
		return slices.ContainsFunc(take(u.Processes.List(u.ctx, u.id, false))(u), func(p api.Process) bool { return strings.Contains(p.Command, text) })
	}) {
		u.Fatalf("no command has %q", text)
	}
}

func (u *user) must(err error) {
	u.Helper()
	if err != nil {
		u.Fatal(err)
	}
}

func (u *user) same(got, want any) {
	u.Helper()
	if fmt.Sprintf("%#v", got) != fmt.Sprintf("%#v", want) {
		u.Fatalf("%#v, and not %#v", got, want)
	}
}

// take returns a function that returns v, or fails the test if err says so.
func take[T any](v T, err error) func(*user) T {
	return func(u *user) T {
		u.Helper()
		u.must(err)
		return v
	}
}

// anyBytes returns n bytes that are no text.
func anyBytes(n int) []byte {
	data := make([]byte, n)
	for i := range data {
		data[i] = byte(i)
	}
	return data
}
