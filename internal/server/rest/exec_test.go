package rest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/httpwire"
	"ramet.dev/ramet/internal/server/rest"
	"ramet.dev/ramet/internal/server/rest/apitest"
	"ramet.dev/ramet/internal/service/access"
)

type execFunc = func(context.Context, string, api.ExecRequest, api.ExecIO) (*api.ExecResult, error)

const execPath = "/v1/sandboxes/a/exec"

// cat copies standard input to standard output and says "done" on standard
// error.
func cat(_ context.Context, _ string, req api.ExecRequest, s api.ExecIO) (*api.ExecResult, error) {
	if req.Stdin != "" {
		return nil, errors.New("standard input came in the request")
	}
	if s.Stdin != nil {
		if _, err := io.Copy(s.Stdout, s.Stdin); err != nil {
			return nil, err
		}
	}
	_, err := io.WriteString(s.Stderr, "done")
	return &api.ExecResult{ExitCode: 3, DurationMS: 1.5}, err
}

func TestExecCollects(t *testing.T) {
	c := testClient(t, apitest.Serve(t, &apitest.Service{ExecFunc: cat}))
	got := ask(t, c, "POST", execPath, `{"argv":["cat"],"stdin":"in <put>"}`)
	want := `{"stdout":"in <put>","stderr":"done","exit_code":3,"ok":false,"signal":"","duration_ms":1.5}` + "\n"
	if got.status != 200 || got.body != want {
		t.Errorf("status %d: %s", got.status, got.body)
	}
}

func TestExecTruncates(t *testing.T) {
	c := testClient(t, apitest.Serve(t, &apitest.Service{ExecFunc: func(_ context.Context, _ string, _ api.ExecRequest, s api.ExecIO) (*api.ExecResult, error) {
		for range 9 {
			if n, err := s.Stdout.Write(bytes.Repeat([]byte("x"), 1<<20)); n != 1<<20 || err != nil {
				return nil, errors.New("a write failed beyond the limit")
			}
		}
		return &api.ExecResult{OK: true}, nil
	}}))
	var res api.ExecResult
	got := ask(t, c, "POST", execPath, `{"shell":"yes"}`)
	if err := json.Unmarshal([]byte(got.body), &res); err != nil {
		t.Fatal(err)
	}
	if len(res.Stdout) != 8<<20 || !res.Truncated || !res.OK {
		t.Errorf("kept %d bytes, truncated=%t", len(res.Stdout), res.Truncated)
	}
}

func TestExecEvents(t *testing.T) {
	c := testClient(t, apitest.Serve(t, &apitest.Service{ExecFunc: func(_ context.Context, _ string, _ api.ExecRequest, s api.ExecIO) (*api.ExecResult, error) {
		for _, p := range []string{"a\nevent: exit\n\n", "\xff", strings.Repeat("b", httpwire.MaxChunk+1)} {
			if _, err := io.WriteString(s.Stdout, p); err != nil {
				return nil, err
			}
		}
		_, err := io.WriteString(s.Stderr, "c")
		return &api.ExecResult{OK: true}, err
	}}))
	got := ask(t, c, "POST", execPath, `{"shell":"x"}`, "Accept", "application/json;q=0.5, text/event-stream")
	if ct := got.header.Get("Content-Type"); ct != httpwire.EventType {
		t.Fatalf("Content-Type %q: %s", ct, got.body)
	}
	r := httpwire.NewEventReader(strings.NewReader(got.body))
	streams := map[string]string{}
	var encodings []string
	for seq := int64(0); ; {
		ev, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		if ev.Name == httpwire.EventExit {
			if string(ev.Data) != `{"stdout":"","stderr":"","exit_code":0,"ok":true,"signal":"","duration_ms":0}` {
				t.Errorf("exit: %s", ev.Data)
			}
			break
		}
		var chunk httpwire.Chunk
		if err := json.Unmarshal(ev.Data, &chunk); err != nil || chunk.Seq != seq || chunk.TS.IsZero() {
			t.Errorf("chunk %d: %v %+v", seq, err, chunk)
		}
		b, err := chunk.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		seq += int64(len(b))
		streams[ev.Name] += string(b)
		encodings = append(encodings, chunk.Encoding)
	}
	if _, err := r.Next(); err != io.EOF {
		t.Errorf("after the exit: %v", err)
	}
	want := "a\nevent: exit\n\n\xff" + strings.Repeat("b", httpwire.MaxChunk+1)
	if streams["stdout"] != want || streams["stderr"] != "c" {
		t.Errorf("streams differ: %d bytes, %q", len(streams["stdout"]), streams["stderr"])
	}
	if got := strings.Join(encodings, " "); got != "utf8 base64 utf8 utf8 utf8" {
		t.Errorf("encodings: %s", got)
	}
}

func TestExecFrames(t *testing.T) {
	long := strings.Repeat("b", httpwire.MaxChunk+1)
	c := testClient(t, apitest.Serve(t, &apitest.Service{ExecFunc: func(_ context.Context, _ string, _ api.ExecRequest, s api.ExecIO) (*api.ExecResult, error) {
		if _, err := io.WriteString(s.Stdout, "\xff"+long); err != nil {
			return nil, err
		}
		_, err := io.WriteString(s.Stderr, "c")
		return &api.ExecResult{ExitCode: 7}, err
	}}))
	got := ask(t, c, "POST", execPath, `{"shell":"x"}`, "Accept", httpwire.FrameType)
	if ct := got.header.Get("Content-Type"); ct != httpwire.FrameType {
		t.Fatalf("Content-Type %q: %s", ct, got.body)
	}
	streams := map[httpwire.Stream]string{}
	for in := httpwire.NewFrameReader(strings.NewReader(got.body)); ; {
		s, p, final, err := in.Next()
		if err != nil {
			t.Fatal(err)
		}
		if final != nil {
			if final.Exit == nil || final.Exit.ExitCode != 7 {
				t.Errorf("the end is %+v", final)
			}
			break
		}
		streams[s] += string(p)
	}
	if streams[httpwire.StreamStdout] != "\xff"+long || streams[httpwire.StreamStderr] != "c" {
		t.Errorf("streams differ: %d bytes, %q", len(streams[httpwire.StreamStdout]), streams[httpwire.StreamStderr])
	}
}

func TestExecFailsBeforeAndInAStream(t *testing.T) {
	begun := false
	c := testClient(t, apitest.Serve(t, &apitest.Service{ExecFunc: func(_ context.Context, ref string, _ api.ExecRequest, s api.ExecIO) (*api.ExecResult, error) {
		if begun {
			if _, err := io.WriteString(s.Stdout, "x"); err != nil {
				return nil, err
			}
		}
		return nil, api.NotFound("sandbox", ref)
	}}))
	got := ask(t, c, "POST", execPath, `{"shell":"x"}`, "Accept", httpwire.EventType)
	if p := got.problem(t); got.status != 404 || p.Code != api.CodeNotFound {
		t.Errorf("before: status %d %s", got.status, got.body)
	}
	begun = true
	got = ask(t, c, "POST", execPath, `{"shell":"x"}`, "Accept", httpwire.EventType)
	if got.status != 200 || !contains(got.body, "event: error\ndata: {") || !contains(got.body, `"code":"not_found"`) || contains(got.body, "event: exit") {
		t.Errorf("in the stream: status %d %s", got.status, got.body)
	}
	got = ask(t, c, "POST", execPath, `{"shell":"x"}`, "Accept", httpwire.FrameType)
	in := httpwire.NewFrameReader(strings.NewReader(got.body))
	if _, p, _, err := in.Next(); err != nil || string(p) != "x" {
		t.Errorf("in frames: %q, %v", p, err)
	}
	if _, _, final, err := in.Next(); err != nil || final == nil || final.Error == nil || final.Error.Code != api.CodeNotFound {
		t.Errorf("in frames: the end is %+v, %v", final, err)
	}
	begun = false
	got = ask(t, c, "POST", execPath, `{"shell":"x"}`, "Accept", httpwire.FrameType)
	if p := got.problem(t); got.status != 404 || p.Code != api.CodeNotFound {
		t.Errorf("before frames: status %d %s", got.status, got.body)
	}
}

// untilCancelled is a command that neither reads nor writes; it reports how its
// context ended.
func untilCancelled(started chan<- struct{}, ended chan<- error) execFunc {
	return func(ctx context.Context, _ string, _ api.ExecRequest, s api.ExecIO) (*api.ExecResult, error) {
		if _, err := io.WriteString(s.Stdout, "started"); err != nil {
			return nil, err
		}
		close(started)
		<-ctx.Done()
		ended <- ctx.Err()
		return nil, ctx.Err()
	}
}

func TestAClientThatGoesAwayEndsItsCommand(t *testing.T) {
	for _, accept := range []string{"application/json", httpwire.EventType, httpwire.FrameType} {
		started, ended := make(chan struct{}), make(chan error, 1)
		c := testClient(t, apitest.Serve(t, &apitest.Service{ExecFunc: untilCancelled(started, ended)}))
		ctx, cancel := context.WithCancel(t.Context())
		req, err := http.NewRequestWithContext(ctx, "POST", "http://ramet"+execPath, strings.NewReader(`{"shell":"sleep inf"}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Accept", accept)
		go func() { <-started; cancel() }()
		resp, err := c.Do(req)
		if err == nil {
			_, err = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: the client saw %v", accept, err)
		}
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("%s: the command's context ended with %v", accept, err)
		}
	}
}

func dial(t *testing.T, socket string) *websocket.Conn {
	t.Helper()
	conn, _, err := websocket.Dial(t.Context(), "http://ramet"+execPath, &websocket.DialOptions{HTTPClient: testClient(t, socket)})
	if err != nil {
		t.Fatal(err)
	}
	conn.SetReadLimit(httpwire.MaxMessage)
	t.Cleanup(func() { conn.CloseNow() })
	return conn
}

func say(t *testing.T, conn *websocket.Conn, kind websocket.MessageType, msg string) {
	t.Helper()
	if err := conn.Write(t.Context(), kind, []byte(msg)); err != nil {
		t.Fatal(err)
	}
}

// hear reads until the final message.
func hear(t *testing.T, conn *websocket.Conn) (streams map[httpwire.Stream]string, final httpwire.Final) {
	t.Helper()
	streams = map[httpwire.Stream]string{}
	for {
		kind, msg, err := conn.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if kind == websocket.MessageText {
			if err := httpwire.DecodeStrict(msg, &final); err != nil {
				t.Fatalf("final message: %v\n%s", err, msg)
			}
			return streams, final
		}
		s, p, err := httpwire.ParseFrame(msg)
		if err != nil {
			t.Fatal(err)
		}
		streams[s] += string(p)
	}
}

func TestExecSocket(t *testing.T) {
	conn := dial(t, apitest.Serve(t, &apitest.Service{ExecFunc: cat}))
	say(t, conn, websocket.MessageText, `{"argv":["cat"],"stdin":"first,"}`)
	for _, p := range []string{"\x00sec\xffond,", "\x00" + strings.Repeat("z", 200<<10), "\x00", "\x00late", "\x00"} {
		say(t, conn, websocket.MessageBinary, p)
	}
	streams, final := hear(t, conn)
	want := "first,sec\xffond," + strings.Repeat("z", 200<<10)
	if streams[httpwire.StreamStdout] != want || streams[httpwire.StreamStderr] != "done" {
		t.Errorf("%d bytes of output, stderr %q", len(streams[httpwire.StreamStdout]), streams[httpwire.StreamStderr])
	}
	if final.Exit == nil || final.Error != nil || final.Exit.ExitCode != 3 {
		t.Errorf("final message %+v", final)
	}
	if _, _, err := conn.Read(t.Context()); websocket.CloseStatus(err) != websocket.StatusNormalClosure {
		t.Errorf("after the final message: %v", err)
	}
}

func TestExecSocketRefuses(t *testing.T) {
	const text, binary = websocket.MessageText, websocket.MessageBinary
	type message struct {
		kind websocket.MessageType
		body string
	}
	wait := func(ctx context.Context, _ string, _ api.ExecRequest, _ api.ExecIO) (*api.ExecResult, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	for _, c := range []struct {
		name     string
		messages []message
		detail   string
	}{
		{"binary request", []message{{binary, `{"shell":"x"}`}}, "the first message must be text"},
		{"no JSON", []message{{text, `nope`}}, "must be an ExecRequest"},
		{"unknown field", []message{{text, `{"shell":"x","tty":true}`}}, "tty"},
		{"invalid request", []message{{text, `{"shell":"x","argv":["y"]}`}}, "exactly one of"},
		{"second text", []message{{text, `{"shell":"x"}`}, {text, `{}`}}, "must be binary"},
		{"output from a client", []message{{text, `{"shell":"x"}`}, {binary, "\x01x"}}, "stream 0 only"},
		{"unknown stream", []message{{text, `{"shell":"x"}`}, {binary, "\x09x"}}, "stream 0 only"},
		{"empty frame", []message{{text, `{"shell":"x"}`}, {binary, ""}}, "stream 0 only"},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn := dial(t, apitest.Serve(t, &apitest.Service{ExecFunc: wait}))
			for _, m := range c.messages {
				say(t, conn, m.kind, m.body)
			}
			_, final := hear(t, conn)
			if final.Error == nil || final.Error.Code != api.CodeInvalid || !contains(final.Error.Detail, c.detail) || final.Error.RequestID == "" {
				t.Errorf("final message %+v", final.Error)
			}
		})
	}
}

func TestExecSocketTellsOfFailure(t *testing.T) {
	conn := dial(t, apitest.Serve(t, &apitest.Service{ExecFunc: func(_ context.Context, ref string, _ api.ExecRequest, _ api.ExecIO) (*api.ExecResult, error) {
		return nil, api.NotFound("sandbox", ref)
	}}))
	say(t, conn, websocket.MessageText, `{"shell":"x"}`)
	if _, final := hear(t, conn); final.Error == nil || final.Error.Status != 404 || final.Exit != nil {
		t.Errorf("final message %+v", final)
	}
}

func TestExecSocketClientGone(t *testing.T) {
	started, ended := make(chan struct{}), make(chan error, 1)
	conn := dial(t, apitest.Serve(t, &apitest.Service{ExecFunc: untilCancelled(started, ended)}))
	say(t, conn, websocket.MessageText, `{"shell":"sleep inf"}`)
	<-started
	conn.CloseNow()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the command's context ended with %v", err)
	}
}

// The command reads nothing and the client sends more than fits anywhere, then
// vanishes while its last bytes lie unread in the socket.
func TestExecSocketClientGoneBehindBacklog(t *testing.T) {
	started, ended := make(chan struct{}), make(chan error, 1)
	conn := dial(t, apitest.Serve(t, &apitest.Service{ExecFunc: untilCancelled(started, ended)}))
	say(t, conn, websocket.MessageText, `{"shell":"sleep inf"}`)
	<-started
	if _, _, err := conn.Read(t.Context()); err != nil { // "started"
		t.Fatal(err)
	}
	stuck := make(chan struct{})
	done := make(chan int)
	go func() {
		frame := append([]byte{0}, bytes.Repeat([]byte("x"), 1<<10)...)
		n := 0
		for conn.Write(context.Background(), websocket.MessageBinary, frame) == nil {
			if n++; n == 32 { // more than the backlog: the server waits for room now, or soon
				close(stuck)
			}
		}
		done <- n
	}()
	<-stuck
	conn.CloseNow()
	if n := <-done; n > 1000 {
		t.Errorf("the server took %d frames that nobody read", n)
	}
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the command's context ended with %v", err)
	}
}

func TestImageEvents(t *testing.T) {
	var calls []string
	c := testClient(t, apitest.Serve(t, recorder(&calls)))
	got := ask(t, c, "POST", "/v1/images", `{"name":"x","ref":"busybox:1"}`, "Accept", httpwire.EventType)
	want := "event: progress\ndata: {\"phase\":\"unpack\",\"done\":1,\"total\":2}\n\nevent: image\ndata: {\"id\":\"" + imgA + `"`
	if got.status != 200 || !strings.HasPrefix(got.body, want) {
		t.Errorf("status %d: %s", got.status, got.body)
	}
}

// TestRequestsAreLogged looks at the lines that requests leave.
func TestRequestsAreLogged(t *testing.T) {
	var log bytes.Buffer
	svc := &apitest.Service{GetFunc: func(_ context.Context, ref string) (*api.Sandbox, error) {
		if ref == "broken" {
			return nil, errors.New("a defect")
		}
		return nil, api.NotFound("sandbox", ref)
	}}
	for _, c := range []struct {
		level            slog.Level
		path, want, code string
	}{
		{slog.LevelDebug, "/v1/sandboxes/a?secret=1", "level=DEBUG msg=request request=mine method=GET path=/v1/sandboxes/a status=400 took=", "code=invalid_argument\n"},
		{slog.LevelDebug, "/v1/sandboxes/a/ports/80/secret", `path="(a port)" status=`, ""},
		{slog.LevelInfo, "/v1/sandboxes/a", "", ""},
		{slog.LevelInfo, "/v1/sandboxes/broken", "level=WARN msg=request request=mine method=GET path=/v1/sandboxes/broken status=500 took=", "code=internal\n"},
	} {
		log.Reset()
		server := rest.New(rest.Config{Identify: apitest.Owner, Service: svc, Version: "1", Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: c.level}))})
		r := httptest.NewRequest("GET", c.path, nil)
		r.Header.Set(httpwire.RequestIDHeader, "mine")
		server.ServeHTTP(httptest.NewRecorder(), r)
		if got := log.String(); !strings.Contains(got, c.want) || !strings.HasSuffix(got, c.code) || c.want == "" && got != "" || strings.Contains(got, "secret") {
			t.Errorf("%s: %s", c.path, got)
		}
	}
}

func TestMetrics(t *testing.T) {
	admin := access.Caller{Tenant: access.DefaultTenant, Scope: api.ScopeAdmin}
	caller := admin
	who := func(*http.Request) (access.Caller, bool) { return caller, true }
	server := rest.New(rest.Config{Identify: who, Service: &apitest.Service{}, Version: "1"})
	if got := record(server, "/metrics"); got.Code != 422 || !contains(got.Body.String(), `"code":"unsupported"`) {
		t.Errorf("without metrics: %d %s", got.Code, got.Body)
	}
	server = rest.New(rest.Config{Identify: who, Service: &apitest.Service{}, Version: "1", Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "a 1\n") // the recorder takes all
	})})
	if got := record(server, "/metrics"); got.Code != 200 || got.Body.String() != "a 1\n" {
		t.Errorf("metrics: %d %s", got.Code, got.Body)
	}
	for name, c := range map[string]struct {
		change func(*access.Caller)
		status int
	}{
		"an administrator":   {func(*access.Caller) {}, 200},
		"a reader":           {func(c *access.Caller) { c.Scope = api.ScopeRead }, 200},
		"another tenant's":   {func(c *access.Caller) { c.Tenant = "other" }, 403},
		"bound to a sandbox": {func(c *access.Caller) { c.Sandbox = sbxA }, 403},
	} {
		caller = admin
		c.change(&caller)
		w := httptest.NewRecorder()
		server.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
		if w.Code != c.status {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
	}
}

func TestDraining(t *testing.T) {
	server := rest.New(rest.Config{Identify: apitest.Owner, Service: &apitest.Service{}, Version: "1"})
	for _, c := range []struct {
		path   string
		status int
	}{{"/readyz", 200}, {"/healthz", 200}} {
		if got := record(server, c.path); got.Code != c.status {
			t.Errorf("%s: %d", c.path, got.Code)
		}
	}
	server.Drain()
	if got := record(server, "/readyz"); got.Code != 503 || !contains(got.Body.String(), "draining") {
		t.Errorf("/readyz while draining: %d %s", got.Code, got.Body)
	}
	if got := record(server, "/healthz"); got.Code != 200 {
		t.Errorf("/healthz while draining: %d", got.Code)
	}
}
