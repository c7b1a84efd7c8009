package sandboxes

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/launch"
	"ramet.dev/ramet/internal/engine/launch/launchtest"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/node/freezes"
	"ramet.dev/ramet/internal/node/timer"
	"ramet.dev/ramet/internal/service/access"
	"ramet.dev/ramet/internal/storage/store"
)

// TestReleaseIsSilentWhenTheSourceEnds has a source fail to give up its pins,
// which only matters while a sandbox runs in it.
func TestReleaseIsSilentWhenTheSourceEnds(t *testing.T) {
	for name, c := range map[string]struct {
		used, dies, warns bool
	}{
		"in use":  {used: true, warns: true},
		"removed": {},
		"ended":   {used: true, dies: true},
	} {
		t.Run(name, func(t *testing.T) {
			var text bytes.Buffer
			log := slog.New(slog.NewTextHandler(&text, nil))
			r := NewRegistry(Config{Log: log, Clock: timer.System{}})
			source := fakeSource(t, c.dies)
			if c.used {
				b := New(Record{Sandbox: api.Sandbox{ID: "sbx"}})
				b.Give(source, nil)
				r.byID[b.ID] = b
			}
			freezes.New(nil, nil, log, time.Minute, r.InUse).Unpin(source, "snap")
			if got := strings.Contains(text.String(), "level=WARN"); got != c.warns {
				t.Errorf("log has a warning: %t, want %t: %s", got, c.warns, text.String())
			}
		})
	}
}

// fakeSource is a sentry that refuses all, if dies is set with its death.
func fakeSource(t *testing.T, dies bool) *launch.Sentry {
	t.Helper()
	return launchtest.New(t, func(process *os.Process, self *launch.Sentry, _ *wire.Call) (any, error) {
		if dies {
			_ = process.Kill() // its end is what counts
			<-self.Done()
		}
		return nil, api.Errorf(api.CodeNoMemory, "refused")
	})
}

// TestUnreadyDoesNotSurvive has a daemon find a record of a sandbox that was being
// made.
func TestUnreadyDoesNotSurvive(t *testing.T) {
	ctx := access.With(context.Background(), access.Owner(0))
	records, err := store.Open(ctx, filepath.Join(t.TempDir(), "registry.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := records.Close(); err != nil {
			t.Error(err)
		}
	})
	rec := Record{Sandbox: api.Sandbox{ID: api.NewID(api.KindSandbox), Name: "kid", State: api.StateCreating}}
	if err := records.Apply(ctx, rec.Stored()); err != nil {
		t.Fatal(err)
	}
	r := NewRegistry(Config{Store: records, Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Clock: timer.System{}})
	v, err := r.Recover(ctx, RecoveryConfig{})
	if err != nil {
		t.Fatal(err)
	}
	b, err := r.Find(ctx, "kid")
	if err != nil {
		t.Fatal(err)
	}
	if got := b.View(); got.State != api.StateFailed || got.Reason != ErrNotStarted.Error() {
		t.Errorf("it is %+v", got)
	}
	if len(v.Changes) != 1 || v.Changes[0].ID != b.ID {
		t.Errorf("%+v is recorded", v.Changes)
	}
}
