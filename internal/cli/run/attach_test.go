package run

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/client"
	"ramet.dev/ramet/internal/cli/console"
	"ramet.dev/ramet/internal/cli/session"
	"ramet.dev/ramet/internal/server/rest/apitest"
)

// TestHangUp: what runs in the foreground and the process itself are told, by the next daemon
// if the first one is gone, and the process is forgotten when it has ended.
func TestHangUp(t *testing.T) {
	var did []string
	ends := true
	svc := &apitest.Service{}
	svc.SignalProcessFunc = func(_ context.Context, _ string, _ int, req api.SignalRequest) error {
		if did = append(did, fmt.Sprint(req)); req.Signal == "CONT" {
			return api.NotFound("process", "7") // it has ended
		}
		return nil
	}
	svc.WaitProcessFunc = func(context.Context, string, int) (*api.ExecResult, error) {
		if did = append(did, "wait"); !ends {
			return nil, api.Errorf(api.CodeCanceled, "too long")
		}
		return &api.ExecResult{}, nil
	}
	svc.RemoveProcessFunc = func(context.Context, string, int) error {
		did = append(did, "remove")
		return nil
	}
	socket := apitest.Serve(t, svc)
	connect := func(socket string) *client.Client {
		c, err := client.New("unix:" + socket)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		return c
	}
	signals := []string{"{HUP true true}", "{CONT true false}", "wait"}
	for _, c := range []struct {
		name, socket string
		ends         bool
		did          []string
	}{
		{"ends", socket, true, append(slices.Clone(signals), "remove")},
		{"the daemon is gone", filepath.Join(t.TempDir(), "gone"), true, append(slices.Clone(signals), "remove")},
		{"runs on", socket, false, signals},
	} {
		var out bytes.Buffer
		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		first := true
		g := New(session.New(console.Streams{Err: &out}, "", func(context.Context, bool) (*client.Client, api.Health, error) {
			defer func() { first = false }()
			if first {
				return connect(c.socket), api.Health{}, nil
			}
			return connect(socket), api.Health{}, nil
		}))
		g.Flags(flags)
		if _, err := g.Connect(t.Context()); err != nil {
			t.Fatal(err)
		}
		did, ends = nil, c.ends
		err := g.hangUp(t.Context(), &console.Terminal{}, attachOptions{ref: "box", pid: 7})
		if code := session.ExitError(0); !errors.As(err, &code) || code != 129 {
			t.Errorf("%s: %v", c.name, err)
		}
		if !slices.Equal(did, c.did) || c.ends != (out.Len() == 0) || !c.ends && !strings.Contains(out.String(), "ramet attach box 7") {
			t.Errorf("%s: %q, said %q", c.name, did, out.String())
		}
	}
}
