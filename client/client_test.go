package client_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/client"
	"ramet.dev/ramet/internal/httpwire"
	"ramet.dev/ramet/internal/server/rest/apitest"
	"ramet.dev/ramet/internal/service"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func connect(t testing.TB, svc service.Service) *client.Client {
	t.Helper()
	return connectTo(t, "unix:"+apitest.Serve(t, svc))
}

func connectTo(t testing.TB, address string) *client.Client {
	t.Helper()
	c, err := client.New(address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func TestNewRefuses(t *testing.T) {
	for _, address := range []string{"", "ftp://x", "http://", "/run/ramet.sock", "::"} {
		if _, err := client.New(address); api.CodeOf(err) != api.CodeInvalid {
			t.Errorf("New(%q) = %v", address, err)
		}
	}
}

// Every method is called once; what reaches the service and what comes back are
// compared.
func TestMethods(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	sb := &api.Sandbox{ID: "sbx_aaaaaaaaaaaaaaaa", State: api.StateRunning, CreatedAt: at, Memory: &api.Memory{PrivateMiB: 1.5}}
	snap := &api.Snapshot{ID: "snap_aaaaaaaaaaaaaaaa", State: api.SnapshotReady, CreatedAt: at}
	img := &api.Image{ID: "img_aaaaaaaaaaaaaaaa", Names: []string{"a/b:c"}, CreatedAt: at}
	forked := &api.ForkResult{PauseMS: 1, Children: []api.Child{{Sandbox: sb}, {Error: &api.Error{Code: api.CodeTimeout, Detail: "late"}}}}
	node := []*api.TreeNode{{ID: sb.ID, Kind: "sandbox", CreatedAt: at, Children: []*api.TreeNode{{ID: snap.ID, Kind: "snapshot", CreatedAt: at}}}}
	diff := &api.Diff{From: "a", To: "b", Changes: []api.Change{{Path: "/x", Kind: api.Added}}}
	var got string
	note := func(args ...any) { got = fmt.Sprintf("%+v", args) }
	one := func(_ context.Context, ref string) (*api.Sandbox, error) { note(ref); return sb, nil }
	c := connect(t, &apitest.Service{
		CreateFunc: func(_ context.Context, req api.CreateRequest) (*api.Sandbox, error) {
			note(req)
			return sb, nil
		},
		GetFunc: one, PauseFunc: one, ResumeFunc: one, HibernateFunc: one, WakeFunc: one, PromoteFunc: one,
		ListFunc: func(_ context.Context, f api.ListFilter) ([]api.Sandbox, error) {
			note(f)
			return []api.Sandbox{*sb}, nil
		},
		DestroyFunc: func(_ context.Context, ref string) error { note(ref); return nil },
		ContextFuncs: apitest.ContextFuncs{
			ContextsFunc: func(_ context.Context, ref string) ([]api.Context, error) {
				note(ref)
				return []api.Context{{Name: "c", CreatedAt: at}}, nil
			},
			CreateContextFunc: func(_ context.Context, ref string, req api.ContextRequest) (*api.Context, error) {
				note(ref, req)
				return &api.Context{Name: "c", CreatedAt: at}, nil
			},
			InterruptContextFunc: func(_ context.Context, ref, name string) (bool, error) { note(ref, name); return true, nil },
			RestartContextFunc: func(_ context.Context, ref, name string) (*api.Context, error) {
				note(ref, name)
				return &api.Context{Name: "c", CreatedAt: at}, nil
			},
			DestroyContextFunc: func(_ context.Context, ref, name string) error { note(ref, name); return nil },
			RunCodeFunc: func(_ context.Context, ref string, req api.RunCodeRequest, streams api.RunIO) (*api.RunResult, error) {
				note(ref, req)
				for _, w := range []io.Writer{streams.Stdout, streams.Stderr} {
					if _, err := io.WriteString(w, "\xff"); err != nil {
						return nil, err
					}
				}
				return &api.RunResult{Result: "2"}, streams.Result(map[string]json.RawMessage{"a/b": json.RawMessage(`[1]`)})
			},
		},
		ProcessFuncs: apitest.ProcessFuncs{
			ProcessesFunc: func(_ context.Context, ref string, all bool) ([]api.Process, error) {
				note(ref, all)
				return []api.Process{{PID: 1}}, nil
			},
			ProcessFunc: func(_ context.Context, ref string, pid int) (*api.Process, error) {
				note(ref, pid)
				return &api.Process{PID: pid}, nil
			},
			StartProcessFunc: func(_ context.Context, ref string, req api.StartRequest) (*api.Process, error) {
				note(ref, req.Argv)
				return &api.Process{PID: 7}, nil
			},
			WaitProcessFunc: func(_ context.Context, ref string, pid int) (*api.ExecResult, error) {
				note(ref, pid)
				return &api.ExecResult{ExitCode: 3}, nil
			},
			WriteProcessFunc: func(_ context.Context, ref string, pid int, in io.Reader, end bool) error {
				data, err := io.ReadAll(in)
				note(ref, pid, string(data), end)
				return err
			},
			SignalProcessFunc: func(_ context.Context, ref string, pid int, req api.SignalRequest) error {
				note(ref, pid, req)
				return nil
			},
			ResizeProcessFunc: func(_ context.Context, ref string, pid int, size api.TerminalSize) error {
				note(ref, pid, size)
				return nil
			},
			RemoveProcessFunc: func(_ context.Context, ref string, pid int) error {
				note(ref, pid)
				return nil
			},
		},
		StatsFunc: func(_ context.Context, ref string) (*api.Stats, error) {
			note(ref)
			return &api.Stats{Processes: 2}, nil
		},
		ForkFunc: func(_ context.Context, ref string, req api.ForkRequest) (*api.ForkResult, error) {
			note(ref, req)
			return forked, nil
		},
		DiffFunc: func(_ context.Context, a, b string, req api.DiffRequest) (*api.Diff, error) {
			note(a, b, req)
			return diff, nil
		},
		TreeFunc: func(_ context.Context, ref string) ([]*api.TreeNode, error) { note(ref); return node, nil },
		SnapshotFuncs: apitest.SnapshotFuncs{
			SnapshotFunc: func(_ context.Context, ref string, req api.SnapshotRequest) (*api.Snapshot, error) {
				note(ref, req)
				return snap, nil
			},
			SnapshotsFunc:      func(context.Context) ([]api.Snapshot, error) { note(); return []api.Snapshot{*snap}, nil },
			GetSnapshotFunc:    func(_ context.Context, ref string) (*api.Snapshot, error) { note(ref); return snap, nil },
			VerifySnapshotFunc: func(_ context.Context, ref string) (*api.Snapshot, error) { note(ref); return snap, nil },
			DeleteSnapshotFunc: func(_ context.Context, ref string, _ api.SnapshotDeletion) error { note(ref); return nil },
			RestoreFunc: func(_ context.Context, ref string, req api.RestoreRequest) (*api.ForkResult, error) {
				note(ref, req)
				return forked, nil
			},
			RollbackFunc: func(_ context.Context, a, b string) (*api.Sandbox, error) { note(a, b); return sb, nil },
		},
		TimelineFuncs: apitest.TimelineFuncs{
			RewindFunc: func(_ context.Context, a string, n int) (*api.Sandbox, error) { note(a, n); return sb, nil },
			TimelineFunc: func(_ context.Context, a string) ([]api.Step, error) {
				note(a)
				return []api.Step{{Step: 3}}, nil
			},
			BisectFunc: func(_ context.Context, a string, req api.BisectRequest) (*api.BisectResult, error) {
				note(a, req)
				return &api.BisectResult{}, nil
			},
		},
		ImageFuncs: apitest.ImageFuncs{
			ImagesFunc:   func(context.Context) ([]api.Image, error) { note(); return []api.Image{*img}, nil },
			GetImageFunc: func(_ context.Context, ref string) (*api.Image, error) { note(ref); return img, nil },
			RemoveImageFunc: func(_ context.Context, ref string) error {
				note(ref)
				return nil
			},
		},
		ExecFunc: func(_ context.Context, ref string, req api.ExecRequest, _ api.ExecIO) (*api.ExecResult, error) {
			note(ref, req)
			return &api.ExecResult{OK: true}, nil
		},
	})
	ctx := t.Context()
	check := func(name, call string, want, have any, err error) {
		t.Helper()
		if err != nil || got != call || !reflect.DeepEqual(have, want) {
			t.Errorf("%s: %v\ncall %s\nwant %s\nresult %+v\nwant   %+v", name, err, got, call, have, want)
		}
	}
	create := api.CreateRequest{Image: "python", Limits: api.Limits{MemoryMiB: 7}, Env: map[string]string{"A": "b"}}
	v, err := c.Sandboxes.Create(ctx, create)
	check("Create", fmt.Sprintf("%+v", []any{create}), sb, v, err)
	v, err = c.Sandboxes.Get(ctx, "x")
	check("Get", "[x]", sb, v, err)
	v, err = c.Sandboxes.Pause(ctx, "x")
	check("Pause", "[x]", sb, v, err)
	v, err = c.Sandboxes.Resume(ctx, "x")
	check("Resume", "[x]", sb, v, err)
	v, err = c.Sandboxes.Hibernate(ctx, "x")
	check("Hibernate", "[x]", sb, v, err)
	v, err = c.Sandboxes.Wake(ctx, "x")
	check("Wake", "[x]", sb, v, err)
	v, err = c.Sandboxes.Promote(ctx, "x")
	check("Promote", "[x]", sb, v, err)
	v, err = c.Sandboxes.Rollback(ctx, "x", "y")
	check("Rollback", "[x y]", sb, v, err)
	check("Destroy", "[x]", nil, nil, errors.Join(c.Sandboxes.Destroy(ctx, "x")))
	list, err := c.Sandboxes.List(ctx, api.ListFilter{State: "paused", Image: "i", Name: "n", Metadata: map[string]string{"k": "v=&"}})
	check("List", "[{State:paused Image:i Name:n Metadata:map[k:v=&] Parent: Ancestor:}]", []api.Sandbox{*sb}, list, err)
	ps, err := c.Processes.List(ctx, "x", true)
	check("Processes", "[x true]", []api.Process{{PID: 1}}, ps, err)
	started, err := c.Processes.Start(ctx, "x", api.StartRequest{Argv: []string{"a", "b"}})
	check("StartProcess", "[x [a b]]", &api.Process{PID: 7}, started, err)
	p, err := c.Processes.Get(ctx, "x", 7)
	check("Process", "[x 7]", &api.Process{PID: 7}, p, err)
	exit, err := c.Processes.Wait(ctx, "x", 7)
	check("WaitProcess", "[x 7]", &api.ExecResult{ExitCode: 3}, exit, err)
	check("WriteProcess", "[x 7 a\x00b true]", nil, nil, c.Processes.Write(ctx, "x", 7, []byte("a\x00b"), true))
	check("SignalProcess", "[x 7 {Signal:TERM Group:true Foreground:true}]", nil, nil, c.Processes.Signal(ctx, "x", 7, api.SignalRequest{Signal: "TERM", Group: true, Foreground: true}))
	check("ResizeProcess", "[x 7 {Cols:80 Rows:24}]", nil, nil, c.Processes.Resize(ctx, "x", 7, api.TerminalSize{Cols: 80, Rows: 24}))
	check("RemoveProcess", "[x 7]", nil, nil, c.Processes.Remove(ctx, "x", 7))
	contexts, err := c.Contexts.List(ctx, "x")
	check("Contexts", "[x]", []api.Context{{Name: "c", CreatedAt: at}}, contexts, err)
	cc, err := c.Contexts.Create(ctx, "x", api.ContextRequest{Language: "node"})
	check("CreateContext", "[x {Language:node Name: Cwd: User: Env:map[]}]", &api.Context{Name: "c", CreatedAt: at}, cc, err)
	was, err := c.Contexts.Interrupt(ctx, "x", "c")
	check("InterruptContext", "[x c]", true, was, err)
	cc, err = c.Contexts.Restart(ctx, "x", "c")
	check("RestartContext", "[x c]", &api.Context{Name: "c", CreatedAt: at}, cc, err)
	check("DestroyContext", "[x c]", nil, nil, c.Contexts.Destroy(ctx, "x", "c"))
	forms := map[string]json.RawMessage{"a/b": json.RawMessage(`[1]`)}
	code := api.RunCodeRequest{Code: "1+1", Language: "node"}
	run, err := c.Contexts.RunCode(ctx, "x", code)
	whole := &api.RunResult{Result: "2", Results: []map[string]json.RawMessage{forms}}
	whole.Stdout, whole.Stderr = "\uFFFD", "\uFFFD"
	check("RunCode", fmt.Sprintf("%+v", []any{"x", code}), whole, run, err)
	var out, errs strings.Builder
	var shown []map[string]json.RawMessage
	run, err = c.Contexts.RunCodeStream(ctx, "x", code, api.RunIO{Stdout: &out, Stderr: &errs, Result: func(f map[string]json.RawMessage) error {
		shown = append(shown, f)
		return nil
	}})
	check("RunCodeStream", fmt.Sprintf("%+v", []any{"x", code}), &api.RunResult{Result: "2", Results: []map[string]json.RawMessage{}}, run, err)
	check("RunCodeStream's output", fmt.Sprintf("%+v", []any{"x", code}), []any{"\xff", "\xff", []map[string]json.RawMessage{forms}}, []any{out.String(), errs.String(), shown}, nil)
	st, err := c.Sandboxes.Stats(ctx, "x")
	check("Stats", "[x]", &api.Stats{Processes: 2}, st, err)
	f, err := c.Sandboxes.Fork(ctx, "x", api.ForkRequest{Count: 2})
	check("Fork", fmt.Sprintf("%+v", []any{"x", api.ForkRequest{Count: 2}}), forked, f, err)
	f, err = c.Snapshots.Restore(ctx, "x", api.RestoreRequest{Count: 2})
	check("Restore", fmt.Sprintf("%+v", []any{"x", api.RestoreRequest{Count: 2}}), forked, f, err)
	d, err := c.Sandboxes.Diff(ctx, "x", "y", api.DiffRequest{Paths: []string{"/a b", "/c"}, Hunks: true, Stat: true, Processes: true, Variables: true})
	check("Diff", "[x y {Paths:[/a b /c] Hunks:true Stat:true Processes:true Variables:true}]", diff, d, err)
	tr, err := c.Sandboxes.Tree(ctx, "")
	check("Tree", "[]", node, tr, err)
	sn, err := c.Snapshots.Create(ctx, "x", api.SnapshotRequest{Name: "s"})
	check("Snapshot", fmt.Sprintf("%+v", []any{"x", api.SnapshotRequest{Name: "s"}}), snap, sn, err)
	sn, err = c.Snapshots.Get(ctx, "x")
	check("GetSnapshot", "[x]", snap, sn, err)
	sns, err := c.Snapshots.List(ctx)
	check("Snapshots", "[]", []api.Snapshot{*snap}, sns, err)
	check("DeleteSnapshot", "[x]", nil, nil, c.Snapshots.Delete(ctx, "x", api.SnapshotDeletion{}))
	rw, err := c.Sandboxes.Rewind(ctx, "x", 3)
	check("Rewind", "[x 3]", sb, rw, err)
	steps, err := c.Sandboxes.Timeline(ctx, "x")
	check("Timeline", "[x]", []api.Step{{Step: 3}}, steps, err)
	bi, err := c.Sandboxes.Bisect(ctx, "x", api.BisectRequest{Shell: "y"})
	check("Bisect", fmt.Sprintf("%+v", []any{"x", api.BisectRequest{Shell: "y"}}), &api.BisectResult{Tried: []api.Try{}}, bi, err)
	sn, err = c.Snapshots.Verify(ctx, "x")
	check("VerifySnapshot", "[x]", snap, sn, err)
	im, err := c.Images.Get(ctx, "host:1/a/b@sha256:0")
	check("GetImage", "[host:1/a/b@sha256:0]", img, im, err)
	ims, err := c.Images.List(ctx)
	check("Images", "[]", []api.Image{*img}, ims, err)
	check("RemoveImage", "[a/b]", nil, nil, c.Images.Remove(ctx, "a/b"))
	req := api.ExecRequest{Argv: []string{"a"}, TimeoutMS: 5}
	res, err := c.Processes.Exec(ctx, "x", req)
	check("Exec", fmt.Sprintf("%+v", []any{"x", req}), &api.ExecResult{OK: true}, res, err)
}

func TestListReadsAllPages(t *testing.T) {
	var all []api.Sandbox
	for range 2500 {
		all = append(all, api.Sandbox{ID: api.NewID(api.KindSandbox)})
	}
	c := connect(t, &apitest.Service{ListFunc: func(context.Context, api.ListFilter) ([]api.Sandbox, error) {
		return append([]api.Sandbox(nil), all...), nil
	}})
	got, err := c.Sandboxes.List(t.Context(), api.ListFilter{})
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, sb := range got {
		seen[sb.ID] = true
	}
	if len(got) != len(all) || len(seen) != len(all) {
		t.Errorf("%d sandboxes, %d different; want %d", len(got), len(seen), len(all))
	}
}

func TestErrorsComeBackTyped(t *testing.T) {
	c := connect(t, &apitest.Service{GetFunc: func(_ context.Context, ref string) (*api.Sandbox, error) {
		return nil, api.NotFound("sandbox", ref)
	}})
	_, err := c.Sandboxes.Get(t.Context(), "nope")
	var e *api.Error
	var p *httpwire.Problem
	if !errors.As(err, &e) || e.Code != api.CodeNotFound || e.Detail != `no sandbox "nope"` {
		t.Errorf("error %+v", err)
	}
	if !errors.As(err, &p) || p.Status != 404 || p.RequestID == "" {
		t.Errorf("problem %+v", p)
	}
	for _, ref := range []string{"", ".", ".."} {
		if _, err := c.Sandboxes.Get(t.Context(), ref); api.CodeOf(err) != api.CodeInvalid {
			t.Errorf("Get(%q) = %v", ref, err)
		}
	}
	if _, err := c.Sandboxes.Get(t.Context(), "../../x"); api.CodeOf(err) != api.CodeInvalid {
		t.Errorf("a path as id: %v", err)
	}
}

func TestNobodyListens(t *testing.T) {
	c := connectTo(t, "unix:"+filepath.Join(t.TempDir(), "none"))
	_, err := c.Sandboxes.Tree(t.Context(), "")
	if api.CodeOf(err) != api.CodeUnavailable || strings.Contains(err.Error(), "http://ramet") {
		t.Errorf("error %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Sandboxes.Tree(ctx, ""); api.CodeOf(err) != api.CodeCanceled {
		t.Errorf("with a cancelled context: %v", err)
	}
}

func TestNotADaemon(t *testing.T) {
	for name, h := range map[string]http.HandlerFunc{
		"plain 404": http.NotFound,
		"empty problem": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", httpwire.ProblemType)
			w.WriteHeader(400)
		},
		"redirect":       func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/x", http.StatusFound) },
		"no JSON":        func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>") },
		"stream cut off": func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "event: stdout\ndata: {}") },
		"no exit":        func(w http.ResponseWriter, _ *http.Request) {},
	} {
		srv := httptest.NewServer(h)
		c := connectTo(t, srv.URL)
		_, err := c.Processes.ExecStream(t.Context(), "a", api.ExecRequest{}, api.ExecIO{})
		if api.CodeOf(err) != api.CodeUnavailable && name != "no JSON" {
			t.Errorf("%s: ExecStream = %v", name, err)
		}
		if _, err = c.Sandboxes.Get(t.Context(), "a"); api.CodeOf(err) != api.CodeUnavailable {
			t.Errorf("%s: Get = %v", name, err)
		}
		if _, err = c.Processes.ExecStream(t.Context(), "a", api.ExecRequest{}, api.ExecIO{Stdin: strings.NewReader("")}); api.CodeOf(err) != api.CodeUnavailable {
			t.Errorf("%s: ExecStream with input = %v", name, err)
		}
		c.Close()
		srv.Close()
	}
}

func TestWithoutTLS(t *testing.T) {
	srv := httptest.NewUnstartedServer(http.NotFoundHandler())
	srv.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError) // it complains
	srv.StartTLS()
	defer srv.Close()
	c := connectTo(t, "http://"+srv.Listener.Addr().String())
	defer c.Close()
	if _, err := c.Sandboxes.Get(t.Context(), "a"); api.CodeOf(err) != api.CodeUnavailable || !strings.Contains(err.Error(), "try https instead of http") {
		t.Errorf("http to a server of https: %v", err)
	}
}

func echo(_ context.Context, _ string, _ api.ExecRequest, s api.ExecIO) (*api.ExecResult, error) {
	if s.Stdin != nil {
		if _, err := io.Copy(s.Stdout, s.Stdin); err != nil {
			return nil, err
		}
	} else if _, err := s.Stdout.Write([]byte("out\xff")); err != nil {
		return nil, err
	}
	_, err := io.WriteString(s.Stderr, "err")
	return &api.ExecResult{ExitCode: 9}, err
}

func TestExecStream(t *testing.T) {
	c := connect(t, &apitest.Service{ExecFunc: echo})
	large := bytes.Repeat([]byte("0123456789abcde\n"), 1<<17) // 2 MiB, more than all buffers on the way
	for _, in := range [][]byte{nil, {}, []byte("small"), large} {
		var stdout, stderr bytes.Buffer
		streams := api.ExecIO{Stdout: &stdout, Stderr: &stderr}
		want := in
		if in == nil {
			want = []byte("out\xff")
		} else {
			streams.Stdin = bytes.NewReader(in)
		}
		res, err := c.Processes.ExecStream(t.Context(), "a", api.ExecRequest{Shell: "x"}, streams)
		if err != nil || res.ExitCode != 9 || !bytes.Equal(stdout.Bytes(), want) || stderr.String() != "err" {
			t.Errorf("input of %d bytes: %+v, %v, %d bytes out, stderr %q", len(in), res, err, stdout.Len(), stderr.String())
		}
	}
}

func TestExecStreamErrors(t *testing.T) {
	c := connect(t, &apitest.Service{ExecFunc: func(ctx context.Context, ref string, _ api.ExecRequest, s api.ExecIO) (*api.ExecResult, error) {
		if ref == "gone" {
			return nil, api.NotFound("sandbox", ref)
		}
		if _, err := io.WriteString(s.Stdout, "x"); err != nil {
			return nil, err
		}
		<-ctx.Done()
		return nil, ctx.Err()
	}})
	broken := errors.New("broken")
	for _, withInput := range []bool{false, true} {
		input := func() io.Reader {
			if withInput {
				return strings.NewReader("in")
			}
			return nil
		}
		_, err := c.Processes.ExecStream(t.Context(), "gone", api.ExecRequest{Shell: "x"}, api.ExecIO{Stdin: input()})
		if api.CodeOf(err) != api.CodeNotFound {
			t.Errorf("input %t: %v", withInput, err)
		}
		_, err = c.Processes.ExecStream(t.Context(), "a", api.ExecRequest{}, api.ExecIO{Stdin: input()})
		if api.CodeOf(err) != api.CodeInvalid {
			t.Errorf("input %t, invalid request: %v", withInput, err)
		}
		_, err = c.Processes.ExecStream(t.Context(), "a", api.ExecRequest{Shell: "x"}, api.ExecIO{Stdin: input(), Stdout: failingWriter{broken}})
		if !errors.Is(err, broken) {
			t.Errorf("input %t, broken output: %v", withInput, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		_, err = c.Processes.ExecStream(ctx, "a", api.ExecRequest{Shell: "x"}, api.ExecIO{Stdin: input(), Stdout: cancellingWriter(cancel)})
		if api.CodeOf(err) != api.CodeCanceled {
			t.Errorf("input %t, cancelled: %v", withInput, err)
		}
	}
	_, err := c.Processes.ExecStream(t.Context(), "a", api.ExecRequest{Shell: "x"}, api.ExecIO{Stdin: failingReader{broken}})
	if !errors.Is(err, broken) {
		t.Errorf("broken input: %v", err)
	}
}

type failingWriter struct{ err error }

func (w failingWriter) Write([]byte) (int, error) { return 0, w.err }

type failingReader struct{ err error }

func (r failingReader) Read([]byte) (int, error) { return 0, r.err }

type cancellingWriter context.CancelFunc

func (w cancellingWriter) Write(p []byte) (int, error) { w(); return len(p), nil }

func TestCreateImage(t *testing.T) {
	c := connect(t, &apitest.Service{ImageFuncs: apitest.ImageFuncs{CreateImageFunc: func(_ context.Context, req api.ImageRequest, progress func(api.Progress)) (*api.Image, error) {
		progress(api.Progress{Phase: "fetch", Done: 1, Total: 2, Detail: "layer"})
		if req.Name == "bad" {
			return nil, api.Errorf(api.CodeHostile, "path leaves the root")
		}
		return &api.Image{ID: "img_aaaaaaaaaaaaaaaa"}, nil
	}}})
	var seen []api.Progress
	collect := func(p api.Progress) { seen = append(seen, p) }
	img, err := c.Images.Create(t.Context(), api.ImageRequest{Name: "x", Ref: "y"}, collect)
	if err != nil || img.ID != "img_aaaaaaaaaaaaaaaa" || !reflect.DeepEqual(seen, []api.Progress{{Phase: "fetch", Done: 1, Total: 2, Detail: "layer"}}) {
		t.Errorf("CreateImage = %+v, %v after %+v", img, err, seen)
	}
	if _, err := c.Images.Create(t.Context(), api.ImageRequest{Name: "bad", Ref: "y"}, collect); api.CodeOf(err) != api.CodeHostile {
		t.Errorf("a failure after progress: %v", err)
	}
}

func TestExportAndCommit(t *testing.T) {
	var got string
	c := connect(t, &apitest.Service{
		ImageFuncs: apitest.ImageFuncs{
			ExportFunc: func(_ context.Context, ref string, req api.ExportRequest, w io.Writer) error {
				got = fmt.Sprint(ref, req)
				if ref == "none" {
					return api.NotFound("sandbox", ref)
				}
				if _, err := w.Write(make([]byte, 1<<20)); err != nil || ref != "cut-off" {
					return err
				}
				return api.Errorf(api.CodeCorrupt, "page 7 is none")
			},
			CommitFunc: func(_ context.Context, ref string, req api.CommitRequest, progress func(api.Progress)) (*api.Image, error) {
				got = fmt.Sprint(ref, req.Name, req.Message, req.Replace, req.Config.Cmd, req.Config.Labels)
				progress(api.Progress{Phase: "pack"})
				return &api.Image{ID: "img_aaaaaaaaaaaaaaaa"}, nil
			},
		},
	})
	var out bytes.Buffer
	if err := c.Sandboxes.Export(t.Context(), "x", api.ExportRequest{Format: "oci", Gzip: true}, &out); err != nil || got != "x{oci true}" || out.Len() != 1<<20 {
		t.Errorf("Export: %v after %s and %d bytes", err, got, out.Len())
	}
	out.Reset()
	if err := c.Sandboxes.Export(t.Context(), "none", api.ExportRequest{Format: "tar"}, &out); api.CodeOf(err) != api.CodeNotFound || out.Len() > 0 {
		t.Errorf("Export of nothing: %v", err)
	}
	if err := c.Sandboxes.Export(t.Context(), "cut-off", api.ExportRequest{Format: "tar"}, &out); api.CodeOf(err) != api.CodeUnavailable {
		t.Errorf("Export that breaks off: %v", err)
	}
	full := errors.New("full")
	if err := c.Sandboxes.Export(t.Context(), "x", api.ExportRequest{Format: "tar"}, failingWriter{full}); !errors.Is(err, full) {
		t.Errorf("Export to a full disk: %v", err)
	}
	var phases string
	img, err := c.Images.Commit(t.Context(), "x", api.CommitRequest{Name: "n", Message: "m", Config: &api.ImageConfig{Cmd: []string{"c"}, Labels: map[string]string{"l": "v"}}}, func(p api.Progress) { phases += p.Phase })
	if err != nil || img.ID != "img_aaaaaaaaaaaaaaaa" || got != "xnmfalse [c] map[l:v]" || phases != "pack" {
		t.Errorf("Commit: %+v, %v after %s, %s", img, err, got, phases)
	}
}

func TestHealth(t *testing.T) {
	h, err := connect(t, &apitest.Service{}).Health(t.Context())
	if err != nil || h.Status != "ok" || h.Version != "test" || h.PID == 0 {
		t.Errorf("Health = %+v, %v", h, err)
	}
}

// The round trip of an exec without the sandbox's part should stay below a
// millisecond.
func BenchmarkExec(b *testing.B) {
	c := connect(b, &apitest.Service{ExecFunc: echo})
	for _, mode := range []string{"collect", "stream", "socket"} {
		b.Run(mode, func(b *testing.B) {
			for b.Loop() {
				var err error
				req := api.ExecRequest{Argv: []string{"true"}}
				switch mode {
				case "collect":
					_, err = c.Processes.Exec(b.Context(), "a", req)
				case "stream":
					_, err = c.Processes.ExecStream(b.Context(), "a", req, api.ExecIO{})
				case "socket":
					_, err = c.Processes.ExecStream(b.Context(), "a", req, api.ExecIO{Stdin: strings.NewReader("x")})
				}
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func FuzzProblem(f *testing.F) {
	f.Add(404, httpwire.ProblemType, `{"code":"not_found","detail":"x"}`)
	f.Add(500, "text/html", `<html>`)
	f.Add(301, httpwire.ProblemType, `{}`)
	f.Fuzz(func(t *testing.T, status int, mediaType, body string) {
		if status < 300 || status > 999 {
			return
		}
		c := connectTo(t, "http://daemon")
		client.SetTransport(c, roundTripper(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {mediaType}}, Body: io.NopCloser(strings.NewReader(body))}, nil
		}))
		_, err := c.Sandboxes.Get(context.Background(), "a")
		if err == nil || api.CodeOf(err) == "" {
			t.Fatalf("status %d: %v", status, err)
		}
		if _, jerr := json.Marshal(httpwire.NewProblem(err)); jerr != nil {
			t.Fatal(jerr)
		}
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
