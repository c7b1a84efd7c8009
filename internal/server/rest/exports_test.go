package rest_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/server/rest"
	"ramet.dev/ramet/internal/server/rest/apitest"
)

// TestExportOfSnapshot tells that the route of snapshots means one, although a
// sandbox of the same name counts elsewhere.
func TestExportOfSnapshot(t *testing.T) {
	var calls []string
	c := testClient(t, apitest.Serve(t, recorder(&calls)))
	if got := ask(t, c, "GET", "/v1/snapshots/name/export", ""); got.status != 200 || got.body != "archive" || got.header.Get("Content-Type") != "application/x-tar" {
		t.Errorf("export: %+v", got)
	}
	if got := ask(t, c, "POST", "/v1/snapshots/name/commit", `{"name":"x"}`); got.status != 201 {
		t.Errorf("commit: %+v", got)
	}
	want := []string{`GetSnapshot "name"`, `Export "` + snapA + `" {"Format":"layer","Gzip":false}`, `GetSnapshot "name"`, `Commit "` + snapA + `" {"name":"x"}`}
	if strings.Join(calls, "\n") != strings.Join(want, "\n") {
		t.Errorf("calls %q, want %q", calls, want)
	}
	for _, path := range []string{"/v1/snapshots/" + sbxA + "/export", "/v1/sandboxes/.../export", "/v1/sandboxes/a/export?format=zip", "/v1/sandboxes/a/export?nope=1"} {
		if got := ask(t, c, "GET", path, ""); got.status != 400 {
			t.Errorf("%s: %+v", path, got)
		}
	}
	for _, body := range []string{"", "{}", `{"name":"../x"}`, `{"name":"x","message":"` + strings.Repeat("m", 1001) + `"}`} {
		if got := ask(t, c, "POST", "/v1/sandboxes/a/commit", body); got.status != 400 {
			t.Errorf("commit %.40s: %+v", body, got)
		}
	}
}

// TestExportFails tells how: with a problem as long as nothing was sent, and then by
// breaking off.
func TestExportFails(t *testing.T) {
	failed := api.Errorf(api.CodeCorrupt, "page 7 is none")
	size := 0
	c := testClient(t, apitest.Serve(t, &apitest.Service{ImageFuncs: apitest.ImageFuncs{ExportFunc: func(_ context.Context, _ string, _ api.ExportRequest, w io.Writer) error {
		if _, err := w.Write(make([]byte, size)); err != nil {
			return err
		}
		return failed
	}}}))
	if got := ask(t, c, "GET", "/v1/sandboxes/a/export", ""); got.problem(t).Code != api.CodeCorrupt {
		t.Errorf("before the first byte: %+v", got)
	}
	size = 1 << 20
	resp, err := c.Get("http://ramet/v1/sandboxes/a/export?gzip=1")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	n, err := io.Copy(io.Discard, resp.Body)
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "application/gzip" || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("in the middle: %s, %d bytes, %v", resp.Status, n, err)
	}
}

// TestExportEndsWithTheClient tells that the work ends when nobody reads any more.
func TestExportEndsWithTheClient(t *testing.T) {
	ended := make(chan error, 1)
	c := testClient(t, apitest.Serve(t, &apitest.Service{ImageFuncs: apitest.ImageFuncs{ExportFunc: func(ctx context.Context, _ string, _ api.ExportRequest, w io.Writer) error {
		for piece := make([]byte, 1<<20); ctx.Err() == nil; {
			if _, err := w.Write(piece); err != nil {
				ended <- err
				return err
			}
		}
		ended <- ctx.Err()
		return ctx.Err()
	}}}))
	resp, err := c.Get("http://ramet/v1/sandboxes/a/export")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(resp.Body, make([]byte, 1000)); err != nil {
		t.Error(err)
	}
	resp.Body.Close()
	if err := <-ended; err == nil {
		t.Error("the export ended by itself")
	}
}

// TestExportEndsWhenNobodyReads: a client that stays and reads nothing does not keep an
// export under way.
func TestExportEndsWhenNobodyReads(t *testing.T) {
	ended := make(chan error, 1)
	server := rest.New(rest.Config{Identify: apitest.Owner, Service: &apitest.Service{ImageFuncs: apitest.ImageFuncs{ExportFunc: func(_ context.Context, _ string, _ api.ExportRequest, w io.Writer) error {
		for piece := make([]byte, 1<<20); ; {
			if _, err := w.Write(piece); err != nil {
				ended <- err
				return err
			}
		}
	}}}})
	server.SetReadTimeout(50 * time.Millisecond)
	s := httptest.NewServer(server)
	defer s.Close()
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET /v1/sandboxes/a/export HTTP/1.1\r\nHost: ramet\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("it goes on")
	}
}

// TestRefusedTurnSaysWhenToComeBack: in both ways in which problems are answered.
func TestRefusedTurnSaysWhenToComeBack(t *testing.T) {
	busy := api.Errorf(api.CodeLimit, "busy")
	busy.Exceeded = &api.Exceeded{Limit: "operations", RetrySeconds: 3}
	svc := &apitest.Service{
		ImageFuncs: apitest.ImageFuncs{ExportFunc: func(context.Context, string, api.ExportRequest, io.Writer) error { return busy }},
		DiffFunc:   func(context.Context, string, string, api.DiffRequest) (*api.Diff, error) { return nil, busy },
	}
	c := testClient(t, apitest.Serve(t, svc))
	for _, path := range []string{"/v1/sandboxes/a/export", "/v1/sandboxes/a/diff?to=b"} {
		got := ask(t, c, "GET", path, "")
		if p := got.problem(t); got.status != http.StatusTooManyRequests || p.Code != api.CodeLimit || got.header.Get("Retry-After") != "3" {
			t.Errorf("%s: %+v", path, got)
		}
	}
}
