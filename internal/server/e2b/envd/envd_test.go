package envd

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/server/rest/apitest"
)

// fake is a machine with one process and one file.
type fake struct {
	Service
	started api.StartRequest
	removed int
	chunks  []api.Chunk
	exit    api.ExecResult
	gone    error // of Attach, after the chunks
	wrote   map[string]string
}

func (f *fake) StartProcess(_ context.Context, _ string, req api.StartRequest) (*api.Process, error) {
	f.started = req
	return &api.Process{PID: 7}, nil
}

func (f *fake) Attach(_ context.Context, _ string, _ int, _ api.AttachRequest, streams api.AttachIO) (*api.Position, error) {
	for _, c := range f.chunks {
		if err := streams.Output(c); err != nil {
			return nil, err
		}
	}
	return &api.Position{Exit: &f.exit}, f.gone
}

func (f *fake) Process(context.Context, string, int) (*api.Process, error) {
	return &api.Process{PID: 7, Kept: &api.KeptProcess{EndedAt: &time.Time{}}}, nil
}

func (f *fake) RemoveProcess(_ context.Context, _ string, pid int) error {
	f.removed = pid
	return nil
}

func (f *fake) StatFile(_ context.Context, _ string, ref api.FileRef) (*api.FileInfo, error) {
	return nil, api.NotFound("file", ref.Path)
}

func (f *fake) WriteFile(_ context.Context, _ string, req api.WriteRequest, from io.Reader) (*api.FileInfo, error) {
	b, err := io.ReadAll(from)
	if err != nil {
		return nil, api.Invalid("body", "%v", err)
	}
	f.wrote[req.Path] = req.Owner + ":" + string(b)
	return &api.FileInfo{Path: req.Path}, nil
}

func serve(t testing.TB, svc Service, r *http.Request, s Sandbox) *http.Response {
	t.Helper()
	a := New(svc)
	t.Cleanup(a.Close)
	w := httptest.NewRecorder()
	a.Serve(w, r, s)
	return w.Result()
}

// frame is a message of a stream.
func frame(m string) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(m))), m...)
}

// frames returns the messages of a stream.
func frames(t testing.TB, b []byte) (all []map[string]any) {
	t.Helper()
	for len(b) > 0 {
		n := binary.BigEndian.Uint32(b[1:5])
		var m map[string]any
		if err := json.Unmarshal(b[5:5+n], &m); err != nil {
			t.Fatal(err)
		}
		all, b = append(all, m), b[5+n:]
	}
	return all
}

// TestStart tells of the start, the output and the end of a process, and forgets it.
func TestStart(t *testing.T) {
	f := &fake{chunks: []api.Chunk{{Data: []byte("out")}, {Data: []byte("err"), Stderr: true}}, exit: api.ExecResult{Signal: "SIGKILL", ExitCode: 137}}
	body := frame(`{"process":{"cmd":"/bin/bash","args":["-l","-c","x"],"envs":{"A":"b"},"cwd":"sub"},"stdin":false,"unknown":1}`)
	r := httptest.NewRequest(http.MethodPost, "/process.Process/Start", bytes.NewReader(body))
	r.Header.Set("Content-Type", "application/connect+json")
	r.Header.Set("Connect-Protocol-Version", "1")
	r.Header.Set("Connect-Timeout-Ms", "60000")
	r.SetBasicAuth("user", "")
	res := serve(t, f, r, Sandbox{ID: "sbx", Default: "root", Env: map[string]string{"E2B_SANDBOX": "true"}})
	b, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("%d: %s, %v", res.StatusCode, b, err)
	}
	want := []map[string]any{
		{"event": map[string]any{"start": map[string]any{"pid": 7.0}}},
		{"event": map[string]any{"data": map[string]any{"stdout": "b3V0"}}},
		{"event": map[string]any{"data": map[string]any{"stderr": "ZXJy"}}},
		{"event": map[string]any{"end": map[string]any{"exitCode": -1.0, "status": "signal: killed", "error": "signal: killed"}}},
		{},
	}
	if got := frames(t, b); !reflect.DeepEqual(got, want) {
		t.Errorf("%v", got)
	}
	s := f.started
	if s.TimeoutMS < 1000 || s.TimeoutMS > 60000 || s.User != "user" || s.Cwd != "/home/user/sub" || s.Stdin || !reflect.DeepEqual(s.Env, map[string]string{"A": "b", "E2B_SANDBOX": "true"}) {
		t.Errorf("%+v", s)
	}
	if f.removed != 7 {
		t.Errorf("process %d was removed", f.removed)
	}
}

// slow is a machine whose second client of a process reads its output late.
type slow struct {
	fake
	known    bool          // it was asked for while it ran
	attached chan struct{} // closed when the second client has come
	late     chan struct{} // closed when it reads
}

func (s *slow) Process(ctx context.Context, id string, pid int) (*api.Process, error) {
	if s.known {
		return s.fake.Process(ctx, id, pid)
	}
	s.known = true
	return &api.Process{PID: 7, Kept: &api.KeptProcess{NextSeq: 1}}, nil
}

func (s *slow) Attach(ctx context.Context, id string, pid int, req api.AttachRequest, streams api.AttachIO) (*api.Position, error) {
	if req.From > 0 {
		close(s.attached)
		<-s.late
	}
	return s.fake.Attach(ctx, id, pid, req, streams)
}

// TestSecondClient keeps a process that has ended until each of its clients knows.
func TestSecondClient(t *testing.T) {
	f := &slow{attached: make(chan struct{}), late: make(chan struct{})}
	a := New(f)
	t.Cleanup(a.Close)
	var clients sync.WaitGroup
	ask := func(method, body string) *http.Response {
		r := httptest.NewRequest(http.MethodPost, "/process.Process/"+method, bytes.NewReader(frame(body)))
		r.Header.Set("Content-Type", "application/connect+json")
		w := httptest.NewRecorder()
		a.Serve(w, r, Sandbox{ID: "sbx"})
		return w.Result()
	}
	clients.Go(func() {
		b, err := io.ReadAll(ask("Connect", `{"process":{"pid":7}}`).Body)
		if err != nil || !bytes.Contains(b, []byte(`"end"`)) {
			t.Errorf("the second client was told %s, %v", b, err)
		}
	})
	<-f.attached
	ask("Start", `{"process":{"cmd":"x"}}`)
	if f.removed != 0 {
		t.Errorf("process %d was removed while a client did not know its end", f.removed)
	}
	close(f.late)
	clients.Wait()
	if f.removed != 7 {
		t.Errorf("process %d was removed at the end", f.removed)
	}
}

// TestLostOutput is an error, and not left out in silence.
func TestLostOutput(t *testing.T) {
	f := &fake{chunks: []api.Chunk{{Data: []byte("out")}, {Lost: 3}}}
	r := httptest.NewRequest(http.MethodPost, "/process.Process/Start", bytes.NewReader(frame(`{"process":{"cmd":"x"}}`)))
	r.Header.Set("Content-Type", "application/connect+json")
	b, err := io.ReadAll(serve(t, f, r, Sandbox{}).Body)
	if err != nil || !strings.Contains(string(b), "resource_exhausted") || strings.Contains(string(b), `"end"`) {
		t.Errorf("%s, %v", b, err)
	}
}

// TestTheSandboxEndsMeanwhile: a stream breaks off, which clients know from an end, and an error of another kind is told.
func TestTheSandboxEndsMeanwhile(t *testing.T) {
	for _, c := range []struct {
		err    error
		breaks bool
	}{{api.NotFound("sandbox", "x"), true}, {api.Errorf(api.CodeSandboxDied, "it was destroyed"), true}, {api.NotFound("process", "7"), false}} {
		f := &fake{chunks: []api.Chunk{{Data: []byte("out")}}, gone: c.err}
		r := httptest.NewRequest(http.MethodPost, "/process.Process/Start", bytes.NewReader(frame(`{"process":{"cmd":"x"}}`)))
		r.Header.Set("Content-Type", "application/connect+json")
		func() {
			defer func() {
				if v := recover(); (v == http.ErrAbortHandler) != c.breaks {
					t.Errorf("%v: %v", c.err, v)
				}
			}()
			serve(t, f, r, Sandbox{})
		}()
	}
}

// TestErrors have the codes of the protocol.
func TestErrors(t *testing.T) {
	for path, want := range map[string]string{"/filesystem.Filesystem/Stat": "not_found", "/filesystem.Filesystem/ListDir": "not_found"} {
		r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(`{"path":"/none"}`))
		r.Header.Set("Content-Type", "application/json")
		res := serve(t, &fake{}, r, Sandbox{})
		var e struct{ Code string }
		if err := json.NewDecoder(res.Body).Decode(&e); err != nil || e.Code != want || res.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %d %+v, %v", path, res.StatusCode, e, err)
		}
	}
	if got := rpcError(api.NotFound("sandbox", "x")).Error(); got != "unavailable: "+GoneMessage {
		t.Errorf("a sandbox that is gone: %s", got)
	}
}

// TestWrite writes the files of a form with their paths, and a body as one file.
func TestWrite(t *testing.T) {
	const nameless = "--b\r\nContent-Disposition: form-data; name=\"other\"\r\n\r\nno\r\n--b\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\ntext\r\n--b--\r\n"
	const form = "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a/b.txt\"\r\n\r\none\r\n--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"/c\"\r\n\r\ntwo\r\n--b--\r\n"
	for _, c := range []struct {
		query, media, body string
		want               map[string]string
		status             int
	}{
		{"", "multipart/form-data; boundary=b", form, map[string]string{"/home/user/a/b.txt": "user:one", "/c": "user:two"}, 200},
		{"?path=x&username=root", "application/octet-stream", "bytes", map[string]string{"/root/x": "root:bytes"}, 200},
		{"", "application/octet-stream", "bytes", map[string]string{}, 400},
		{"?path=x", "multipart/form-data; boundary=b", nameless, map[string]string{"/home/user/x": "user:text"}, 200},
		{"", "multipart/form-data; boundary=b", nameless, map[string]string{}, 400},
		{"?path=x", "multipart/form-data; boundary=b", form, map[string]string{"/home/user/x": "user:one"}, 400},
		{"", "multipart/form-data", form, map[string]string{}, 400},
		{"", "multipart/form-data; boundary=b", form[:60], map[string]string{}, 400},
	} {
		f := &fake{wrote: map[string]string{}}
		r := httptest.NewRequest(http.MethodPost, "/files"+c.query, strings.NewReader(c.body))
		r.Header.Set("Content-Type", c.media)
		res := serve(t, f, r, Sandbox{Default: "user"})
		if res.StatusCode != c.status || !reflect.DeepEqual(f.wrote, c.want) {
			b, _ := io.ReadAll(res.Body)
			t.Errorf("%s: %d %s, wrote %v", c.query, res.StatusCode, b, f.wrote)
		}
	}
}

// TestConfigs: a command line is taken apart as clients have put it together.
func TestConfigs(t *testing.T) {
	for line, want := range map[string]processConfig{
		"/bin/bash -l -c echo  'a b'": {Cmd: "/bin/bash", Args: []string{"-l", "-c", "echo  'a b'"}},
		"sleep 1":                     {Cmd: "sleep", Args: []string{"1"}},
		"":                            {},
	} {
		if got := configOf(line); !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %+v", line, got)
		}
	}
}

func TestRelative(t *testing.T) {
	for _, c := range [][3]string{{"/a", "/a/b/c", "b/c"}, {"/", "/b", "b"}, {"/a", "/x", "/x"}} {
		if got := relative(c[0], c[1]); got != c[2] {
			t.Errorf("%v: %q", c, got)
		}
	}
}

// FuzzMessages answers any bytes of a client, and does not panic.
func FuzzMessages(f *testing.F) {
	f.Add("/process.Process/Start", "application/connect+json", frame(`{"process":{"cmd":"a"}}`))
	f.Add("/process.Process/StreamInput", "application/connect+json", append(frame(`{"data":{}}`), 2, 0, 0, 0, 9))
	f.Add("/filesystem.Filesystem/Stat", "application/json", []byte(`{"path":1}`))
	f.Add("/files", "multipart/form-data; boundary=b", []byte("--b\r\n"))
	f.Fuzz(func(t *testing.T, path, media string, body []byte) {
		if !strings.HasPrefix(path, "/") || strings.ContainsAny(path, "\x00 \r\n%?#\\") {
			return
		}
		r := httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(body))
		r.URL.Path = path
		r.Header.Set("Content-Type", media)
		serve(t, &apitest.Service{Files: apitest.NewMemFiles()}, r, Sandbox{Default: "user"})
	})
}

// files is a machine with files alone.
type files struct {
	fake
	*apitest.MemFiles
}

func (f *files) StatFile(ctx context.Context, sb string, ref api.FileRef) (*api.FileInfo, error) {
	return f.MemFiles.StatFile(ctx, sb, ref)
}

func (f *files) WriteFile(ctx context.Context, sb string, req api.WriteRequest, from io.Reader) (*api.FileInfo, error) {
	return f.MemFiles.WriteFile(ctx, sb, req, from)
}

// TestCompose joins files, of which the destination may be one.
func TestCompose(t *testing.T) {
	for _, c := range []struct {
		body   string
		status int
		want   string // contents of /a, /b and /c
	}{
		{`{"source_paths":["/a","/b"],"destination":"/c"}`, 200, "-,-,onetwo!"},
		{`{"source_paths":["/a"],"destination":"/a"}`, 200, "one,two!,old"},
		{`{"source_paths":["/b","/a"],"destination":"/a"}`, 200, "two!one,-,old"},
		{`{"source_paths":["/a","/b","/a"],"destination":"/b"}`, 200, "-,onetwo!one,old"},
		{`{"source_paths":["/a","/none"],"destination":"/c"}`, 404, "one,two!,old"},
		{`{"source_paths":[],"destination":"/c"}`, 400, "one,two!,old"},
	} {
		f := &files{MemFiles: apitest.NewMemFiles()}
		for name, data := range map[string]string{"/a": "one", "/b": "two!", "/c": "old"} {
			f.Put(name, tar.TypeReg, 0o644, data)
		}
		r := httptest.NewRequest(http.MethodPost, "/files/compose", strings.NewReader(c.body))
		if res := serve(t, f, r, Sandbox{ID: "sbx"}); res.StatusCode != c.status {
			t.Errorf("%s: %d", c.body, res.StatusCode)
		}
		var got []string
		for _, name := range []string{"/a", "/b", "/c"} {
			data := "-"
			if o, err := f.OpenFile(t.Context(), "sbx", api.FileRef{Path: name}); err == nil {
				b, err := io.ReadAll(o)
				if err != nil {
					t.Fatal(err)
				}
				data = string(b)
			}
			got = append(got, data)
		}
		if text := strings.Join(got, ","); text != c.want {
			t.Errorf("%s: %s, want %s", c.body, text, c.want)
		}
	}
}
