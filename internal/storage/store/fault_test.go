package store

import (
	"errors"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/storage/hostfs/faultfs"
)

// isFault reports whether an error is SQLite's for a fault. A full disk has a code of ours
// where records are written.
func isFault(err error, f faultfs.Fault) bool {
	var failed *sqlite.Error
	if !errors.As(err, &failed) {
		return false
	}
	if errors.Is(f.Err, syscall.ENOSPC) {
		return failed.Code() == sqlite3.SQLITE_FULL || api.CodeOf(err) == api.CodeNoSpace
	}
	return failed.Code()&0xff == sqlite3.SQLITE_IOERR || failed.Code()&0xff == sqlite3.SQLITE_CANTOPEN
}

func yes() error { return nil }

// TestFaultsOfApply lets each operation of SQLite fail while records are written and synced:
// all changes are there or none, and a later try succeeds and survives.
func TestFaultsOfApply(t *testing.T) {
	old, now := []string{"a=1", "gone=0"}, []string{"a=2", "b=3"}
	faultfs.Sweep(t, func(t *testing.T, c *faultfs.Change) {
		useFaults(t, c.FS)
		c.Is = isFault
		ctx, path := t.Context(), filepath.Join(t.TempDir(), "registry.db")
		s, err := open(ctx, path, faultyVFS, yes)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { s.Close() }()
		if err := errors.Join(s.Apply(ctx, Change{Sandboxes, "a", 1}, Change{Sandboxes, "gone", 0}), s.Sync(ctx)); err != nil {
			t.Fatal(err)
		}
		change := func() error {
			if err := s.Apply(ctx, Change{Sandboxes, "a", 2}, Change{Sandboxes, "gone", nil}, Change{Sandboxes, "b", 3}); err != nil {
				return err
			}
			return s.Sync(ctx)
		}
		err = c.Do(t, change, nil)
		if got := ids(t, s, Sandboxes); !slices.Equal(got, now) && (err == nil || !slices.Equal(got, old)) {
			t.Errorf("after %v the records are %v", err, got)
		}
		if err := change(); err != nil {
			t.Errorf("a later try: %v", err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if s, err = Open(ctx, path); err != nil {
			t.Fatal(err)
		}
		if got := ids(t, s, Sandboxes); !slices.Equal(got, now) {
			t.Errorf("in the end the records are %v", got)
		}
	})
}

// TestFaultsOfOpen lets each operation fail while a store is made and opened: a later try
// finds an empty store, or makes one.
func TestFaultsOfOpen(t *testing.T) {
	faultfs.Sweep(t, func(t *testing.T, c *faultfs.Change) {
		useFaults(t, c.FS)
		c.Is = isFault
		ctx, path := t.Context(), filepath.Join(t.TempDir(), "registry.db")
		try := func() error {
			s, err := open(ctx, path, faultyVFS, yes)
			if err != nil {
				return err
			}
			return s.Close()
		}
		// Closing moves what is in the log to the database and removes the log: what fails
		// of that is done by the next Open.
		_ = c.Do(t, try, func(faultfs.Event) bool { return true })
		if err := try(); err != nil {
			t.Errorf("a later try: %v", err)
		}
		s, err := Open(ctx, path)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if err := s.Apply(ctx, Change{Sandboxes, "a", 1}); err != nil {
			t.Error(err)
		}
		if got := ids(t, s, Sandboxes); !slices.Equal(got, []string{"a=1"}) {
			t.Errorf("the records are %v", got)
		}
	})
}
