package build

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/polltest"
	"ramet.dev/ramet/internal/server/rest/apitest"
	"ramet.dev/ramet/internal/service/access"
)

func newBuilds(t *testing.T, base Base) *Builds {
	t.Helper()
	b, err := New(&apitest.Service{}, base, filepath.Join(t.TempDir(), "files"), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

func as(t *testing.T, tenant string) context.Context {
	return access.With(t.Context(), access.Caller{Tenant: tenant, Scope: api.ScopeAdmin})
}

// TestPlans that cannot be carried out are refused before anything runs.
func TestPlans(t *testing.T) {
	many := make([]Step, maxSteps+1)
	for what, c := range map[string]struct {
		plan Plan
		code api.Code
	}{
		"nothing":        {Plan{}, ""},
		"all steps":      {Plan{Steps: []Step{{Type: "run", Args: []string{"x"}}, {Type: "COPY", Args: []string{"a", "b"}}, {Type: "ENV", Args: []string{"a", "b"}}, {Type: "WORKDIR", Args: []string{"/"}}, {Type: "USER", Args: []string{"u"}}}}, ""},
		"another step":   {Plan{Steps: []Step{{Type: "EXPOSE", Args: []string{"1"}}}}, api.CodeInvalid},
		"no argument":    {Plan{Steps: []Step{{Type: "RUN"}}}, api.CodeInvalid},
		"half a pair":    {Plan{Steps: []Step{{Type: "ENV", Args: []string{"a", "b", "c"}}}}, api.CodeInvalid},
		"too many steps": {Plan{Steps: many}, api.CodeInvalid},
		"a registry":     {Plan{Registry: map[string]any{}}, api.CodeUnsupported},
	} {
		if err := c.plan.valid(); api.CodeOf(err) != c.code {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestUploads are one tenant's, by their digest, and no path.
func TestUploads(t *testing.T) {
	b := newBuilds(t, nil)
	hash := strings.Repeat("0a", 32)
	if err := b.Keep("acme", hash, strings.NewReader("bytes")); err != nil {
		t.Fatal(err)
	}
	for tenant, want := range map[string]bool{"acme": true, "other": false} {
		if got, err := b.Has(tenant, hash); got != want || err != nil {
			t.Errorf("%s: %v, %v", tenant, got, err)
		}
	}
	for _, wrong := range []string{"", "../x", hash + "0", strings.ToUpper(hash)} {
		if _, err := b.Has("acme", wrong); api.CodeOf(err) != api.CodeInvalid {
			t.Errorf("%q: %v", wrong, err)
		}
		if err := b.Keep("acme", wrong, strings.NewReader("")); api.CodeOf(err) != api.CodeInvalid {
			t.Errorf("%q: %v", wrong, err)
		}
	}
	if err := b.Keep("acme", strings.Repeat("1b", 32), broken{}); api.CodeOf(err) != api.CodeInvalid {
		t.Errorf("an upload that breaks off: %v", err)
	}
	if got, err := b.Has("acme", strings.Repeat("1b", 32)); got || err != nil {
		t.Errorf("an upload that broke off is kept: %v, %v", got, err)
	}
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errors.New("reset") }

// TestStates of a build: it waits, runs once, and says why it failed; others do not see it.
func TestStates(t *testing.T) {
	begun, goOn := make(chan struct{}), make(chan struct{})
	b := newBuilds(t, func(ctx context.Context, _ *Plan) (string, string, *api.NetworkRequest, error) {
		close(begun)
		select {
		case <-goOn:
		case <-ctx.Done():
		}
		return "", "", nil, api.NotFound("image", "x")
	})
	ctx := as(t, "acme")
	id, err := b.Begin(ctx, "own", []string{DefaultTag})
	if err != nil {
		t.Fatal(err)
	}
	status := func() string {
		s, err := b.Status(ctx, "own", id, 0)
		if err != nil {
			t.Fatal(err)
		}
		return s.Status
	}
	if got := status(); got != waiting {
		t.Errorf("it is %s", got)
	}
	for what, err := range map[string]error{
		"another tenant":   func() error { _, err := b.Status(as(t, "other"), "own", id, 0); return err }(),
		"another template": b.Start(ctx, "another", id, &Plan{}),
	} {
		if api.CodeOf(err) != api.CodeNotFound {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := b.Start(ctx, "own", id, &Plan{}); err != nil {
		t.Fatal(err)
	}
	<-begun
	if got := status(); got != building {
		t.Errorf("it is %s", got)
	}
	if err := b.Start(ctx, "own", id, &Plan{}); api.CodeOf(err) != api.CodeWrongState {
		t.Errorf("a second start: %v", err)
	}
	close(goOn)
	polltest.Eventually(t, 15*time.Second, "the build fails", func() bool { return status() == failed })
	s, err := b.Status(ctx, "own", id, 0)
	if err != nil || s.Reason == nil || s.Reason.Step != stepBase || !strings.Contains(s.Reason.Message, "no image") || len(s.Lines) != 1 {
		t.Errorf("%+v, %v", s, err)
	}
}

// TestLines are those of the output, also without an end, and never longer than they may be.
func TestLines(t *testing.T) {
	one := &build{}
	l := &lines{build: one}
	for _, part := range []string{"a", "b\r\nc\n\xff", strings.Repeat("x", 2*maxLine)} {
		if n, err := l.Write([]byte(part)); n != len(part) || err != nil {
			t.Errorf("%d, %v", n, err)
		}
	}
	l.end()
	if len(one.lines) < 4 || one.lines[0].Message != "ab" || one.lines[1].Message != "c" {
		t.Errorf("%.100v", one.lines)
	}
	for _, line := range one.lines {
		if len(line.Message) > maxLine+2 {
			t.Errorf("a line has %d bytes", len(line.Message))
		}
	}
}

// FuzzUnzipped reads any upload.
func FuzzUnzipped(f *testing.F) {
	f.Add([]byte("\x1f\x8b\x08"))
	f.Add([]byte("plain"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := unzipped(bytes.NewReader(b))
		if err == nil && r == nil {
			t.Error("neither a reader nor an error")
		}
	})
}
