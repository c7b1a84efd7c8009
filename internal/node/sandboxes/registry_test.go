package sandboxes

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/launch"
	"ramet.dev/ramet/internal/engine/launch/launchtest"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/node/freezes"
	"ramet.dev/ramet/internal/node/memfiles"
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
	records := openStore(t)
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

// openStore returns a store without records.
func openStore(t *testing.T) *store.Store {
	t.Helper()
	records, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "registry.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := records.Close(); err != nil {
			t.Error(err)
		}
	})
	return records
}

// heard is what a listener was told, in order.
type heard struct{ told []string }

func (h *heard) Failed(*Instance, *launch.Sentry) {}

func (h *heard) Began(*Instance, *launch.Sentry, *os.File) { h.told = append(h.told, "began") }
func (h *heard) Ending(*Instance, *launch.Sentry)          { h.told = append(h.told, "ending") }
func (h *heard) Replaced()                                 { h.told = append(h.told, "replaced") }
func (h *heard) Removed(*Instance)                         { h.told = append(h.told, "removed") }
func (h *heard) Forgotten(*Instance)                       { h.told = append(h.told, "forgotten") }
func (h *heard) Removing(*Instance) []store.Change {
	h.told = append(h.told, "removing")
	return nil
}

// TestLifeOfASandbox installs a sandbox, gives it another sentry, and destroys it. What cannot
// be recorded does not happen.
func TestLifeOfASandbox(t *testing.T) {
	records, listener := openStore(t), &heard{}
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	table := freezes.New(memfiles.New(), records, log, time.Minute, func(*launch.Sentry) bool { return true })
	r := NewRegistry(Config{Store: records, Freezes: table, Log: log, Clock: timer.System{}, Timeout: time.Minute, Listener: listener})
	t.Cleanup(r.Wait)
	t.Cleanup(r.Close)
	stored := func() (n int) {
		if err := records.Each(t.Context(), store.Sandboxes, func(string, []byte) error { n++; return nil }); err != nil {
			t.Fatal(err)
		}
		return n
	}
	told := func(want ...string) {
		t.Helper()
		if !slices.Equal(listener.told, want) {
			t.Errorf("the listener was told %q, not %q", listener.told, want)
		}
		listener.told = nil
	}
	sentry := func() *launch.Sentry {
		return launchtest.New(t, func(*os.Process, *launch.Sentry, *wire.Call) (any, error) { return struct{}{}, nil })
	}
	rec := NewRecord("", api.NewID(api.KindSandbox), "agent", 0)
	if err := r.Names.Reserve(rec.Tenant(), []string{"agent"}, []string{rec.Sandbox.ID}); err != nil {
		t.Fatal(err)
	}
	b, first, second := New(rec), sentry(), sentry()
	bad := rec
	bad.Sandbox.Limits.CPUs = math.NaN() // a record that cannot be written
	if err := r.Install(t.Context(), []Placement{{Instance: b, Record: bad, Sentry: first}}); err == nil || r.Get(b.ID) != nil || b.Sentry() != nil {
		t.Errorf("it is installed without a record: %v", err)
	}
	told()
	if err := r.Install(t.Context(), []Placement{{Instance: b, Record: rec, Sentry: first}}); err != nil || b.Sentry() != first || stored() != 1 {
		t.Errorf("it is not installed: %v", err)
	}
	told("began")
	if err := r.Install(t.Context(), []Placement{{Instance: b, Record: bad, Sentry: second}}); err == nil || b.Sentry() != first {
		t.Errorf("it has another sentry without a record: %v", err)
	}
	if err := r.Install(t.Context(), []Placement{{Instance: b, Record: rec, Sentry: second}}); err != nil || b.Sentry() != second {
		t.Errorf("it has no other sentry: %v", err)
	}
	told("began", "ending", "replaced")
	select {
	case <-first.Done():
	default:
		t.Error("its first sentry goes on")
	}
	if err := r.Destroy(b, ""); err != nil || stored() != 0 || r.Get(b.ID) != nil || b.View().State != api.StateDestroyed || r.Names.id(rec.Tenant(), "agent") != "agent" {
		t.Errorf("it is not destroyed: %v", err)
	}
	told("removing", "ending", "removed")
	if err := r.Destroy(b, ""); api.CodeOf(err) != api.CodeNotFound {
		t.Errorf("it was destroyed twice: %v", err)
	}
	if _, err := b.Running(api.StateRunning); api.CodeOf(err) != api.CodeWrongState {
		t.Errorf("it runs: %v", err)
	}
}
