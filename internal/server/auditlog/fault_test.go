package auditlog

import (
	"context"
	"log/slog"
	"path/filepath"
	"slices"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/storage/hostfs"
	"ramet.dev/ramet/internal/storage/hostfs/faultfs"
)

// lagging are operations that an entry survives: the head is written again with the next
// entry, and a file that is full is synced when the daemon ends at the latest. The directory
// of a new file is none of them: a power failure would take the file with all its entries.
func lagging(e faultfs.Event) bool {
	return filepath.Base(e.Path) == headFile || e.Op == faultfs.Sync
}

// TestFaultsOfAppend lets each operation of an entry that begins another file fail: the lines
// that were there stay, the new one is written or waits, nothing is changed meanwhile, and
// it comes with the next try, once.
func TestFaultsOfAppend(t *testing.T) {
	faultfs.Sweep(t, func(t *testing.T, c *faultfs.Change) {
		dir := t.TempDir()
		l, err := openIn(c.FS, dir, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		l.size = 1 // each entry begins another file
		if err := l.append(api.AuditEntry{Action: "a", Result: "ok"}); err != nil {
			t.Fatal(err)
		}
		var ready error
		err = c.Do(t, func() error {
			err := l.append(api.AuditEntry{Action: "b", Result: "ok"})
			ready = l.AuditReady()
			return err
		}, lagging)
		if c.Failed != nil && err != nil && faultfs.NoSpace.Name == c.Fault() && api.CodeOf(ready) != api.CodeNoSpace {
			t.Errorf("with a disk that stays full it is ready: %v", ready)
		}
		behind := c.Failed != nil && filepath.Base(c.Failed.Path) == headFile
		if r := verify(t, l, ""); len(r.Faults) > 0 && !(behind && len(r.Faults) == 1 && r.Faults[0].File == headFile) || r.Entries < 1 || r.Entries > 2 || (ready == nil) != (r.Entries == 2) {
			t.Errorf("after %v: ready %v, %+v", err, ready, r)
		}
		if err := l.AuditReady(); err != nil {
			t.Errorf("a later try: %v", err)
		}
		if err := l.append(api.AuditEntry{Action: "c", Result: "ok"}); err != nil {
			t.Errorf("the next entry: %v", err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		again, err := Open(dir, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		defer again.Close()
		var actions string
		if err := again.entries(context.Background(), 0, func(e api.AuditEntry) bool { actions += e.Action; return true }); err != nil {
			t.Error(err)
		}
		if r := verify(t, again, ""); actions != "abc" || !r.OK {
			t.Errorf("the entries are %s, %+v", actions, r)
		}
	})
}

// TestADaemonEndsAfterAFault lets each operation of an entry that begins another file fail,
// and ends the daemon then: the next daemon goes on with the chain as it is on the disk.
func TestADaemonEndsAfterAFault(t *testing.T) {
	faultfs.Sweep(t, func(t *testing.T, c *faultfs.Change) {
		dir := t.TempDir()
		l, err := openIn(c.FS, dir, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		l.size = 1 // each entry begins another file
		if err := l.append(api.AuditEntry{Action: "a", Result: "ok"}); err != nil {
			t.Fatal(err)
		}
		written := c.Do(t, func() error { return l.append(api.AuditEntry{Action: "b", Result: "ok"}) }, lagging) == nil
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		again := open(t, dir, 1)
		if err := again.append(api.AuditEntry{Action: "c", Result: "ok"}); err != nil {
			t.Fatal(err)
		}
		var actions string
		if err := again.entries(context.Background(), 0, func(e api.AuditEntry) bool { actions += e.Action; return true }); err != nil {
			t.Error(err)
		}
		want := "ac"
		if written {
			want = "abc"
		}
		if r := verify(t, again, ""); actions != want || !r.OK {
			t.Errorf("written %v: the entries are %s, %+v", written, actions, r)
		}
	})
}

// TestTheDirectoryOfANewFileIsSynced counts the syncs of a directory: one for each file.
func TestTheDirectoryOfANewFileIsSynced(t *testing.T) {
	fsys := &countingFS{FS: hostfs.OS}
	dir := t.TempDir()
	l, err := openIn(fsys, dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for n := range 3 {
		l.size = 1
		for range 2 { // the second one of each round goes to the same file
			if err := l.append(api.AuditEntry{Action: "a", Result: "ok"}); err != nil {
				t.Fatal(err)
			}
			l.size = fileSize
		}
		if want := slices.Repeat([]string{dir}, n+1); !slices.Equal(fsys.synced, want) {
			t.Fatalf("after %d files %q were synced", n+1, fsys.synced)
		}
	}
}

// countingFS notes the directories that are synced.
type countingFS struct {
	hostfs.FS
	synced []string
}

// SyncDir implements hostfs.FS.
func (c *countingFS) SyncDir(name string) error {
	c.synced = append(c.synced, name)
	return c.FS.SyncDir(name)
}
