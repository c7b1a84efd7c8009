package rest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/httpwire"
	"ramet.dev/ramet/internal/server/rest/apitest"
)

const processPath = "/v1/sandboxes/" + sbxA + "/processes/7"

type attachFunc = func(context.Context, string, int, api.AttachRequest, api.AttachIO) (*api.Position, error)

func attached(f attachFunc) *apitest.Service {
	return &apitest.Service{ProcessFuncs: apitest.ProcessFuncs{AttachFunc: f}}
}

var chunks = []api.Chunk{
	{Seq: 3, Lost: 2}, {Seq: 5, Time: created, Data: []byte("text\n")}, {Seq: 10, Time: created, Data: []byte("\xff\x00"), Stderr: true},
}

// hand hands chunks to a client, and says from where it was asked to.
func hand(_ context.Context, ref string, pid int, req api.AttachRequest, s api.AttachIO) (*api.Position, error) {
	if ref != sbxA || pid != 7 {
		return nil, fmt.Errorf("process %d of %s", pid, ref)
	}
	for _, c := range chunks {
		if err := s.Output(c); err != nil {
			return nil, err
		}
	}
	return &api.Position{NextSeq: req.From, Exit: &api.ExecResult{ExitCode: 3, OK: req.Follow}}, nil
}

func TestOutput(t *testing.T) {
	c := testClient(t, apitest.Serve(t, attached(hand)))
	for _, q := range []struct {
		query, last string
		from        int64
		follow      bool
	}{
		{"", "", 0, false}, {"?from=12&follow=true", "", 12, true}, {"?follow=1", "9", 9, true}, {"?from=-1", "9", 9, false},
	} {
		got := ask(t, c, "GET", processPath+"/output"+q.query, "", "Last-Event-ID", q.last)
		want := "id: 5\nevent: lost\ndata: {\"seq\":3,\"bytes\":2}\n\n" +
			"id: 10\nevent: stdout\ndata: {\"data\":\"text\\n\",\"encoding\":\"utf8\",\"seq\":5,\"ts\":\"2026-01-02T03:04:05Z\"}\n\n" +
			"id: 12\nevent: stderr\ndata: {\"data\":\"/wA=\",\"encoding\":\"base64\",\"seq\":10,\"ts\":\"2026-01-02T03:04:05Z\"}\n\n" +
			fmt.Sprintf("event: position\ndata: {\"next_seq\":%d,\"exit\":{\"stdout\":\"\",\"stderr\":\"\",\"exit_code\":3,\"ok\":%t,\"signal\":\"\",\"duration_ms\":0}}\n\n", q.from, q.follow)
		if got.status != 200 || got.body != want {
			t.Errorf("%+v: status %d\n%s\nwant\n%s", q, got.status, got.body, want)
		}
	}
	for _, bad := range []string{"?from=-2", "?from=x", "?nope=1"} {
		if got := ask(t, c, "GET", processPath+"/output"+bad, ""); got.status != 400 {
			t.Errorf("%s: status %d: %s", bad, got.status, got.body)
		}
	}
	for _, last := range []string{"x", "-1", "99999999999999999999"} {
		if p := ask(t, c, "GET", processPath+"/output", "", "Last-Event-ID", last).problem(t); p.Status != 400 || p.Field != "Last-Event-ID" {
			t.Errorf("%s: %+v", last, p)
		}
	}
	if p := ask(t, c, "GET", "/v1/sandboxes/"+sbxA+"/processes/0/output", "").problem(t); p.Status != 400 {
		t.Errorf("process 0: %+v", p)
	}
}

// TestOutputClientGoesAway ends the reading, which must not go on for nobody.
func TestOutputClientGoesAway(t *testing.T) {
	ended := make(chan error, 1)
	c := testClient(t, apitest.Serve(t, attached(func(ctx context.Context, _ string, _ int, _ api.AttachRequest, s api.AttachIO) (*api.Position, error) {
		err := s.Output(chunks[1])
		<-ctx.Done()
		ended <- errors.Join(err, ctx.Err())
		return nil, ctx.Err()
	})))
	resp, err := c.Get("http://ramet" + processPath + "/output?follow=true")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("reading ended with %v", err)
	}
}

func dialProcess(t *testing.T, svc *apitest.Service, query string) *websocket.Conn {
	t.Helper()
	conn, _, err := websocket.Dial(t.Context(), "http://ramet"+processPath+"/attach"+query, &websocket.DialOptions{HTTPClient: testClient(t, apitest.Serve(t, svc))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.CloseNow() })
	return conn
}

// hearChunks reads messages up to the last one.
func hearChunks(t *testing.T, conn *websocket.Conn) (out []api.Chunk, last httpwire.AttachMessage) {
	t.Helper()
	for {
		kind, msg, err := conn.Read(t.Context())
		if err != nil {
			t.Fatalf("after %d chunks: %v", len(out), err)
		}
		if kind == websocket.MessageBinary {
			c, err := httpwire.ParseOutput(msg)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, c)
			continue
		}
		var m httpwire.AttachMessage
		if err := json.Unmarshal(msg, &m); err != nil {
			t.Fatal(err)
		}
		if m.Lost == nil {
			return out, m
		}
		out = append(out, api.Chunk{Seq: m.Lost.Seq, Lost: m.Lost.Bytes})
	}
}

func TestAttachSocket(t *testing.T) {
	var signals []string
	var size api.TerminalSize // set before the input that follows it is read
	svc := attached(func(ctx context.Context, ref string, pid int, req api.AttachRequest, s api.AttachIO) (*api.Position, error) {
		in, err := io.ReadAll(s.Stdin)
		if err != nil {
			return nil, err
		}
		if err := s.Output(api.Chunk{Time: created, Data: fmt.Appendf(nil, "%dx%d %q", size.Cols, size.Rows, in)}); err != nil {
			return nil, err
		}
		return hand(ctx, ref, pid, req, s)
	})
	svc.SignalProcessFunc = func(_ context.Context, _ string, _ int, req api.SignalRequest) error {
		signals = append(signals, req.Signal)
		return nil
	}
	svc.ResizeProcessFunc = func(_ context.Context, _ string, _ int, to api.TerminalSize) error {
		size = to
		return nil
	}
	svc.ProcessFunc = func(context.Context, string, int) (*api.Process, error) {
		// The output from now on begins before the first message has an effect.
		if len(signals) > 0 || size.Cols > 0 {
			t.Errorf("before it is known where the output begins: %v, %+v", signals, size)
		}
		return &api.Process{PID: 7, Kept: &api.KeptProcess{NextSeq: 77}}, nil
	}
	conn := dialProcess(t, svc, "?from=-1")
	say(t, conn, websocket.MessageText, `{"signal":{"signal":"INT"}}`)
	say(t, conn, websocket.MessageText, `{"resize":{"cols":90,"rows":20}}`)
	say(t, conn, websocket.MessageBinary, "\x00a\xff")
	say(t, conn, websocket.MessageBinary, "\x00b")
	say(t, conn, websocket.MessageBinary, "\x00")
	out, last := hearChunks(t, conn)
	if len(out) != 4 || string(out[0].Data) != `90x20 "a\xffb"` || !out[0].Time.Equal(created) {
		t.Fatalf("output %+v", out)
	}
	for i, c := range chunks {
		if got := out[i+1]; got.Seq != c.Seq || got.Lost != c.Lost || got.Stderr != c.Stderr || !bytes.Equal(got.Data, c.Data) {
			t.Errorf("chunk %+v came as %+v", c, got)
		}
	}
	if last.Position == nil || last.Position.NextSeq != 77 || last.Position.Exit.ExitCode != 3 {
		t.Errorf("last message %+v", last)
	}
	if fmt.Sprint(signals) != "[INT]" {
		t.Errorf("signals %v", signals)
	}
}

// TestAttachSocketGarbage sends what makes no sense. The client is told, and the
// process, which is not the client's, hears of nothing.
func TestAttachSocketGarbage(t *testing.T) {
	for _, c := range []struct {
		kind websocket.MessageType
		msg  string
	}{
		{websocket.MessageText, "garbage"}, {websocket.MessageText, `{"nope":1}`}, {websocket.MessageText, `{"resize":{"cols":0,"rows":1}}`},
		{websocket.MessageText, `{"signal":{"signal":"NO"}}`}, {websocket.MessageBinary, ""}, {websocket.MessageBinary, "\x01x"}, {websocket.MessageBinary, "\xff"},
	} {
		svc := attached(func(ctx context.Context, _ string, _ int, _ api.AttachRequest, s api.AttachIO) (*api.Position, error) {
			n, err := s.Stdin.Read(make([]byte, 1))
			if n > 0 || err == io.EOF {
				t.Errorf("%q: the process read %d bytes, %v", c.msg, n, err)
			}
			<-ctx.Done()
			return nil, ctx.Err()
		})
		svc.SignalProcessFunc = func(context.Context, string, int, api.SignalRequest) error {
			return api.Invalid("signal", "no")
		}
		conn := dialProcess(t, svc, "")
		say(t, conn, c.kind, c.msg)
		if _, last := hearChunks(t, conn); last.Error == nil || last.Error.Code != api.CodeInvalid {
			t.Errorf("%q: last message %+v", c.msg, last)
		}
	}
}

// TestAttachSocketDetaches ends connections in two ways, neither of which is an end
// of input.
func TestAttachSocketDetaches(t *testing.T) {
	for name, end := range map[string]func(*websocket.Conn) error{
		"closed": func(conn *websocket.Conn) error { return conn.Close(websocket.StatusNormalClosure, "") },
		"broken": func(conn *websocket.Conn) error { return conn.CloseNow() },
	} {
		reading := make(chan error, 1)
		conn := dialProcess(t, attached(func(ctx context.Context, _ string, _ int, _ api.AttachRequest, s api.AttachIO) (*api.Position, error) {
			if err := s.Output(chunks[1]); err != nil {
				return nil, err
			}
			_, err := s.Stdin.Read(make([]byte, 1))
			reading <- err
			<-ctx.Done()
			return nil, ctx.Err()
		}), "")
		if _, _, err := conn.Read(t.Context()); err != nil {
			t.Fatal(err)
		}
		_ = end(conn) // the server need not answer
		if err := <-reading; err == nil || err == io.EOF {
			t.Errorf("%s: input ended with %v", name, err)
		}
	}
}

func TestAttachSocketRefuses(t *testing.T) {
	c := testClient(t, apitest.Serve(t, attached(hand)))
	for path, status := range map[string]int{
		processPath + "/attach":                            426,
		processPath + "/attach?from=x":                     400,
		processPath + "/attach?from=-2":                    400,
		strings.Replace(processPath, "/7", "/x/attach", 1): 400,
		"/v1/sandboxes/..a/processes/7/attach":             400,
	} {
		if got := ask(t, c, "GET", path, ""); got.status != status || got.problem(t).Code == "" {
			t.Errorf("%s: status %d, not %d", path, got.status, status)
		}
	}
}

func TestLogs(t *testing.T) {
	asked := ""
	c := testClient(t, apitest.Serve(t, &apitest.Service{ProcessFuncs: apitest.ProcessFuncs{
		LogsFunc: func(ctx context.Context, ref string, follow bool, began func(), each func(api.LogPiece) error) error {
			if asked = fmt.Sprint(ref, " ", follow); ref == "gone" {
				return api.NotFound("sandbox", ref)
			}
			began()
			for i, c := range chunks {
				if err := each(api.LogPiece{PID: 7 + i%2, Chunk: c}); err != nil {
					return err
				}
			}
			if ref == "ends" {
				return api.Errorf(api.CodeSandboxDied, "killed")
			}
			return each(api.LogPiece{PID: 7, Read: &api.Position{NextSeq: 12}})
		},
	}}))
	want := "event: lost\ndata: {\"pid\":7,\"seq\":3,\"bytes\":2}\n\n" +
		"event: stdout\ndata: {\"pid\":8,\"data\":\"text\\n\",\"encoding\":\"utf8\",\"seq\":5,\"ts\":\"2026-01-02T03:04:05Z\"}\n\n" +
		"event: stderr\ndata: {\"pid\":7,\"data\":\"/wA=\",\"encoding\":\"base64\",\"seq\":10,\"ts\":\"2026-01-02T03:04:05Z\"}\n\n"
	for query, follow := range map[string]string{"": "false", "?follow=true": "true"} {
		got := ask(t, c, "GET", "/v1/sandboxes/"+sbxA+"/logs"+query, "")
		if end := "event: position\ndata: {\"pid\":7,\"next_seq\":12}\n\nevent: end\ndata: {}\n\n"; got.status != 200 || got.body != want+end {
			t.Errorf("status %d\n%s\nwant\n%s", got.status, got.body, want+end)
		}
		if asked != sbxA+" "+follow {
			t.Errorf("the service was asked for %s", asked)
		}
	}
	if got := ask(t, c, "GET", "/v1/sandboxes/ends/logs", ""); got.status != 200 || !strings.HasPrefix(got.body, want) || !strings.Contains(got.body, "event: error\ndata: {") || !strings.Contains(got.body, `"code":"sandbox_died"`) {
		t.Errorf("one that ends meanwhile: status %d\n%s", got.status, got.body)
	}
	if p := ask(t, c, "GET", "/v1/sandboxes/gone/logs?follow=true", "").problem(t); p.Status != 404 || p.Code != api.CodeNotFound {
		t.Errorf("none: %+v", p)
	}
	if got := ask(t, c, "GET", "/v1/sandboxes/-/logs", ""); got.status != 400 {
		t.Errorf("no name: status %d %s", got.status, got.body)
	}
}
