package store

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"ramet.dev/ramet/api"
)

func ids(t *testing.T, s *Store, table Table) (out []string) {
	t.Helper()
	if err := s.Each(context.Background(), table, func(id string, doc []byte) error {
		out = append(out, id+"="+string(doc))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestApplyIsDurableAndAtomic(t *testing.T) {
	ctx := context.Background()
	path := filepath.Join(t.TempDir(), "with space & sign?.db")
	s, err := Open(ctx, path)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Apply(ctx, Change{Sandboxes, "b", 2}, Change{Sandboxes, "a", 1}, Change{Freezes, "f", "x"}); err != nil {
		t.Fatal(err)
	}
	if err := s.Apply(ctx, Change{Sandboxes, "a", nil}, Change{Sandboxes, "c", make(chan int)}); err == nil {
		t.Fatal("a document that cannot be encoded was accepted")
	}
	if err := s.Apply(ctx, Change{Sandboxes, "b", 3}); err != nil {
		t.Fatal(err)
	}
	if err := s.Sync(ctx); err != nil {
		t.Error(err)
	}
	s.Close()
	if _, err := os.Stat(path); err != nil {
		t.Fatal(err)
	}
	if s, err = Open(ctx, path); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if got, want := ids(t, s, Sandboxes), []string{"a=1", "b=3"}; !slices.Equal(got, want) {
		t.Errorf("sandboxes %v, want %v", got, want)
	}
	if got, want := ids(t, s, Freezes), []string{`f="x"`}; !slices.Equal(got, want) {
		t.Errorf("freezes %v, want %v", got, want)
	}
}

// TestNewIsNotTakenForLost has the power fail just after a store was made: what was
// not synced is gone, and who made things beside it meanwhile must be able to go on.
func TestNewIsNotTakenForLost(t *testing.T) {
	path := filepath.Join(t.TempDir(), "registry.db")
	s, err := Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	synced, err := os.ReadFile(path) // what is in its -wal alone need not be on disk
	if err := errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(t.TempDir(), "registry.db")
	if err := os.WriteFile(path, synced, 0o600); err != nil {
		t.Fatal(err)
	}
	s, err = OpenIf(t.Context(), path, func() error { return errors.New("its records are gone") })
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func TestEachStopsAtAnError(t *testing.T) {
	ctx := context.Background()
	s, err := Open(ctx, filepath.Join(t.TempDir(), "db"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Apply(ctx, Change{Snapshots, "a", 1}, Change{Snapshots, "b", 1}); err != nil {
		t.Fatal(err)
	}
	stop := errors.New("stop")
	calls := 0
	if err := s.Each(ctx, Snapshots, func(string, []byte) error { calls++; return stop }); err != stop || calls != 1 {
		t.Errorf("Each = %v after %d calls", err, calls)
	}
}

func TestOpenRefusesOtherFormats(t *testing.T) {
	ctx := context.Background()
	path := filepath.Join(t.TempDir(), "db")
	s, err := Open(ctx, path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.db.Exec("PRAGMA user_version = 99"); err != nil {
		t.Fatal(err)
	}
	s.Close()
	if _, err := Open(ctx, path); api.CodeOf(err) != api.CodeUnsupported {
		t.Errorf("newer format: %v", err)
	}
	if err := os.WriteFile(path, []byte("this is no database, but long enough to be looked at as one"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(ctx, path); api.CodeOf(err) != api.CodeCorrupt {
		t.Errorf("garbage: %v", err)
	}
}

// TestDamageIsNamed overwrites what is behind the first page.
func TestDamageIsNamed(t *testing.T) {
	ctx := context.Background()
	path := filepath.Join(t.TempDir(), "db")
	s, err := Open(ctx, path)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Apply(ctx, Change{Sandboxes, "a", 1}), s.Close()); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const page = 4096
	for i := page; i < len(text); i++ {
		text[i] = 0xa5
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if s, err = Open(ctx, path); err == nil {
		err = s.Each(ctx, Sandboxes, func(string, []byte) error { return nil })
		s.Close()
	}
	if api.CodeOf(err) != api.CodeCorrupt || !strings.Contains(err.Error(), path) {
		t.Errorf("%v", err)
	}
}

// TestOpenWaitsForTheLock: what a killed daemon was starting has the lock for a moment.
func TestOpenWaitsForTheLock(t *testing.T) {
	ctx := context.Background()
	path := filepath.Join(t.TempDir(), "db")
	first, err := acquire(ctx, path+".lock")
	if err != nil {
		t.Fatal(err)
	}
	timer := time.AfterFunc(lockTimeout/20, func() { first.Close() })
	defer timer.Stop()
	s, err := Open(ctx, path)
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
}

func TestOpenIsForOneAtATime(t *testing.T) {
	ctx := context.Background()
	path := filepath.Join(t.TempDir(), "db")
	s, err := Open(ctx, path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(ctx, path); api.CodeOf(err) != api.CodeConflict || !strings.Contains(err.Error(), "another daemon uses") {
		t.Errorf("a second Open: %v", err)
	}
	if err := s.Hold(4711, "/run/a b/ramet"); err != nil {
		t.Fatal(err)
	}
	_, err = Open(ctx, path)
	if api.CodeOf(err) != api.CodeConflict || !strings.Contains(err.Error(), "process 4711,") || !strings.Contains(err.Error(), "RAMET_RUNTIME_DIR=/run/a b/ramet;") {
		t.Errorf("a second Open, of one that says who has it: %v", err)
	}
	s.Close()
	if s, err = Open(ctx, path); err != nil {
		t.Fatalf("Open after Close: %v", err)
	}
	if text, err := os.ReadFile(path + ".lock"); err != nil || len(text) > 0 {
		t.Errorf("the lock names who had it before: %q, %v", text, err)
	}
	s.Close()
}
