package snapdir

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/snapfile"
	"ramet.dev/ramet/internal/storage/hostfs/faultfs"
)

// frozen returns a snapshot to write: memory of three pages and files of two.
func frozen(t *testing.T) Source {
	t.Helper()
	state, err := os.CreateTemp(t.TempDir(), "state")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { state.Close() })
	names := []string{"pool_0", "pool_1"}
	snap := &snapfile.Snapshot{
		State: []byte("state"), Meta: []byte("meta"), Generations: names, Table: []snapfile.Extent{extent(0, 3, 0)},
		Files: snapfile.Files{Segments: []snapfile.FileSegment{{Start: 1, End: 3, Gen: 1}}},
	}
	if _, err := snap.WriteTo(state); err != nil {
		t.Fatal(err)
	}
	return Source{State: state, Generations: names, Files: []*os.File{pagesFile(t, []byte{1, 0, 2}), pagesFile(t, []byte{0, 3, 4})}}
}

// alone has nothing to compare with.
func alone(*snapfile.Snapshot) (*Contents, func(string) bool) {
	return nil, func(string) bool { return false }
}

// mustBeWhole compares a snapshot on disk with what was written.
func mustBeWhole(t *testing.T, dir, id string, w *Written) {
	t.Helper()
	state, err := os.Open(filepath.Join(dir, StateFile(w.Version)))
	if err != nil {
		t.Error(err)
		return
	}
	defer state.Close()
	if _, err := CheckState(state, w.Digest); err != nil {
		t.Error(err)
	}
	if err := CheckParts(context.Background(), dir, id, w.Parts); err != nil {
		t.Error(err)
	}
	if len(w.Parts) != 2 {
		t.Errorf("the parts are %v", w.Parts)
	}
}

// TestFaultsOfWrite lets each operation of writing a snapshot fail: the snapshot that was
// there stays, the new one is whole or not there, and a later try succeeds.
func TestFaultsOfWrite(t *testing.T) {
	ctx := context.Background()
	faultfs.Sweep(t, func(t *testing.T, c *faultfs.Change) {
		parent, from := t.TempDir(), frozen(t)
		before, now := api.NewID(api.KindSnapshot), api.NewID(api.KindSnapshot)
		kept, err := Write(ctx, filepath.Join(parent, before), before, 0, from, alone)
		if err != nil {
			t.Fatal(err)
		}
		dir := filepath.Join(parent, now)
		var w *Written
		try := func() (err error) {
			w, err = write(ctx, c.FS, dir, now, 0, from, alone)
			return err
		}
		err = c.Do(t, try, nil)
		mustBeWhole(t, filepath.Join(parent, before), before, kept)
		names := []string{before}
		if err == nil {
			names = append(names, now)
			mustBeWhole(t, dir, now, w)
		}
		if left := namesIn(t, parent); !slices.Equal(left, sorted(names)) {
			t.Errorf("after %v there are %v", err, left)
		}
		if err != nil {
			if err := try(); err != nil {
				t.Fatalf("a later try: %v", err)
			}
			mustBeWhole(t, dir, now, w)
		}
	})
}

// TestFaultsOfVersion is the same of another version of a snapshot: the files of the version
// that was there stay, and Sweep removes what a failed try left.
func TestFaultsOfVersion(t *testing.T) {
	ctx := context.Background()
	faultfs.Sweep(t, func(t *testing.T, c *faultfs.Change) {
		from, id := frozen(t), api.NewID(api.KindSnapshot)
		dir := filepath.Join(t.TempDir(), id)
		kept, err := Write(ctx, dir, id, 0, from, alone)
		if err != nil {
			t.Fatal(err)
		}
		var w *Written
		try := func() (err error) {
			w, err = write(ctx, c.FS, dir, id, 1, from, alone)
			return err
		}
		err = c.Do(t, try, nil)
		mustBeWhole(t, dir, id, kept)
		if _, missing := os.Stat(dir + ".tmp"); !errors.Is(missing, os.ErrNotExist) {
			t.Errorf("after %v: %v", err, missing)
		}
		if err != nil {
			if err := Sweep(dir, 0, kept.Parts); err != nil {
				t.Error(err)
			}
			if left := namesIn(t, dir); len(left) != 3 {
				t.Errorf("after %v there are %v", err, left)
			}
			if err := try(); err != nil {
				t.Fatalf("a later try: %v", err)
			}
		}
		mustBeWhole(t, dir, id, w)
		mustBeWhole(t, dir, id, kept)
	})
}

func namesIn(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func sorted(names []string) []string {
	slices.Sort(names)
	return names
}
