package snapshot

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/machine"
	"ramet.dev/ramet/test/harness"
)

// snapshotIs waits until a snapshot is in a state, and returns it.
func snapshotIs(n *harness.Node, ref string, want api.SnapshotState) *api.Snapshot {
	n.T.Helper()
	var s *api.Snapshot
	harness.Eventually(n.T, ref+" is "+string(want), func() (err error) {
		if s, err = n.Machine.GetSnapshot(harness.AsOwner, ref); err == nil && s.State != want {
			err = fmt.Errorf("it is %s: %s", s.State, s.Reason)
		}
		return err
	})
	return s
}

func snapshotIsGone(n *harness.Node, ref string) {
	n.T.Helper()
	harness.Eventually(n.T, ref+" is gone", func() error {
		if s, err := n.Machine.GetSnapshot(harness.AsOwner, ref); api.CodeOf(err) != api.CodeNotFound {
			return fmt.Errorf("it is %+v, %w", s, err)
		}
		return nil
	})
}

// TestSnapshotChain takes snapshots of one sandbox that has changed little in
// between, and deletes them in all ways.
func TestSnapshotChain(t *testing.T) {
	ctx := harness.AsOwner
	n := harness.NewNode(t)
	n.Create("base")
	n.Hold("base", "-value", "one", "-only", held)
	one := n.Snapshot("base", api.SnapshotRequest{Name: "one"})
	n.Change("base", "one", "two")
	two := n.Snapshot("base", api.SnapshotRequest{Name: "two"})
	if !slices.Equal(two.DependsOn, []string{one.ID}) || two.SizeBytes >= one.SizeBytes {
		t.Errorf("the second snapshot depends on %v and has %d bytes, the first %d", two.DependsOn, two.SizeBytes, one.SizeBytes)
	}
	// What is restored has pages of both, and so has what is taken of it.
	r, err := n.Machine.Restore(ctx, "two", api.RestoreRequest{Names: []string{"kid"}})
	if err != nil {
		t.Fatal(err)
	}
	n.Children(r)
	n.Change("kid", "two", "three")
	three := n.Snapshot("kid", api.SnapshotRequest{Name: "three"})
	if !slices.Contains(three.DependsOn, two.ID) {
		t.Errorf("the third depends on %v", three.DependsOn)
	}
	n.Reopen()
	for ref, value := range map[string]string{"one": "one", "two": "two", "three": "three"} {
		n.RestoredHolds(ref, value)
		if _, err := n.Machine.VerifySnapshot(ctx, ref); err != nil {
			t.Error(err)
		}
	}

	err = n.Machine.DeleteSnapshot(ctx, "one", api.SnapshotDeletion{})
	harness.WantCode(t, err, api.CodeConflict)
	if err == nil || !strings.Contains(err.Error(), two.ID+" (two)") {
		t.Errorf("what depends on it is not named: %v", err)
	}
	harness.WantCode(t, n.Machine.DeleteSnapshot(ctx, "one", api.SnapshotDeletion{Cascade: true, Flatten: true}), api.CodeInvalid)

	// Without the first, the others are whole, and so is what was restored from them.
	if err := n.Machine.DeleteSnapshot(ctx, "one", api.SnapshotDeletion{Flatten: true}); err != nil {
		t.Fatal(err)
	}
	snapshotIsGone(n, "one")
	for _, again := range []bool{false, true} {
		if again {
			n.Reopen()
		}
		n.RestoredHolds("two", "two")
		n.RestoredHolds("three", "three")
		n.MustHold("kid", "three")
	}
	for _, ref := range []string{"two", "three"} {
		if s, err := n.Machine.VerifySnapshot(ctx, ref); err != nil || slices.Contains(s.DependsOn, one.ID) {
			t.Errorf("%s is %+v, %v", ref, s, err)
		}
	}
	if _, err := n.Machine.Rollback(ctx, "base", "two"); err != nil {
		t.Fatal(err)
	}
	n.MustHold("base", "two")
	four := n.Snapshot("base", api.SnapshotRequest{})
	if err := n.Machine.DeleteSnapshot(ctx, "two", api.SnapshotDeletion{Cascade: true}); err != nil {
		t.Fatal(err)
	}
	snapshotIsGone(n, four.ID)
	n.MustHold("base", "two")
	n.MustHold("kid", "three")
	list, err := n.Machine.Snapshots(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range list {
		if s.ID != three.ID {
			t.Errorf("%s is left", s.ID)
		} else if err := n.Machine.DeleteSnapshot(ctx, s.ID, api.SnapshotDeletion{}); err != nil {
			t.Error(err)
		}
	}
	if files := harness.FilesBelow(t, n.Paths.Snapshots()); len(files) != 0 {
		t.Errorf("left over: %v", files)
	}
}

// TestSnapshotInTheBackground uses a snapshot before it is on disk and after.
func TestSnapshotInTheBackground(t *testing.T) {
	ctx := harness.AsOwner
	n := harness.NewNode(t)
	n.Create("base")
	n.Hold("base", "-value", "one", "-only", held)
	no := false
	s := n.Snapshot("base", api.SnapshotRequest{Name: "s", Wait: &no})
	if s.State != api.SnapshotUploading && s.State != api.SnapshotReady {
		t.Errorf("it is %s", s.State)
	}
	n.Change("base", "one", "two")
	r, err := n.Machine.Restore(ctx, "s", api.RestoreRequest{Names: []string{"early"}})
	if err != nil {
		t.Fatal(err)
	}
	n.Children(r)
	n.MustHold("early", "one")
	snapshotIs(n, "s", api.SnapshotReady)
	for range 2 {
		n.RestoredHolds("s", "one")
		n.MustHold("early", "one")
		n.MustHold("base", "two")
		n.Reopen()
	}
	if err := n.Machine.DeleteSnapshot(ctx, "s", api.SnapshotDeletion{}); err != nil {
		t.Fatal(err)
	}
	n.MustHold("early", "one")
}

// TestDeletionMeetsFlattening deletes a snapshot while it is made independent of
// another one, which is deleted, too. Both deletions succeed, and nothing comes back.
func TestDeletionMeetsFlattening(t *testing.T) {
	ctx := harness.AsOwner
	n := harness.NewNode(t)
	n.Create("base")
	n.Hold("base", "-value", "0", "-only", "heap,bulk")
	for i := range 6 {
		first := n.Snapshot("base", api.SnapshotRequest{}).ID
		n.Change("base", fmt.Sprint(i), fmt.Sprint(i+1))
		second := n.Snapshot("base", api.SnapshotRequest{}).ID
		if s := snapshotIs(n, second, api.SnapshotReady); !slices.Contains(s.DependsOn, first) {
			t.Fatalf("the second depends on %v: the test proves nothing", s.DependsOn)
		}
		gone := make(chan error, 1)
		go func() { gone <- n.Machine.DeleteSnapshot(ctx, first, api.SnapshotDeletion{Flatten: true}) }()
		harness.Eventually(t, "the second is written anew", func() error {
			if entries, err := os.ReadDir(n.Paths.Snapshots()); err != nil || slices.ContainsFunc(entries, func(e os.DirEntry) bool { return e.Name() == second+".tmp" }) {
				return err
			}
			if s, err := n.Machine.GetSnapshot(ctx, second); err != nil || len(s.DependsOn) == 0 {
				return err // it has been already
			}
			return errors.New("not yet")
		})
		if err := n.Machine.DeleteSnapshot(ctx, second, api.SnapshotDeletion{}); err != nil {
			t.Error(err)
		}
		if err := <-gone; err != nil {
			t.Error(err)
		}
		if files := harness.FilesBelow(t, n.Paths.Snapshots()); len(files) != 0 {
			t.Errorf("left over: %v", files)
		}
	}
	n.Reopen()
	if list, err := n.Machine.Snapshots(ctx); err != nil || len(list) != 0 {
		t.Errorf("after a restart there are %v, %v", list, err)
	}
}

// TestSnapshotsAreRetained has a tree keep the last snapshots, and for a time.
func TestSnapshotsAreRetained(t *testing.T) {
	ctx := harness.AsOwner
	n, clock := newTimedNode(t)
	keep := 2
	createWith(n, "base", api.LifecycleRequest{KeepSnapshots: &keep, SnapshotMaxAgeMS: ms(time.Hour)})
	n.Hold("base", "-value", "0", "-only", held)
	named := n.Snapshot("base", api.SnapshotRequest{Name: "named"})
	var ids []string
	for i := range 4 {
		n.Change("base", fmt.Sprint(i), fmt.Sprint(i+1))
		ids = append(ids, n.Snapshot("base", api.SnapshotRequest{}).ID)
	}
	deleted := 0
	for _, id := range ids[:2] { // they may be there for those that are made of them
		s, err := n.Machine.GetSnapshot(ctx, id)
		if api.CodeOf(err) == api.CodeNotFound || err == nil && s.State == api.SnapshotDeleted {
			deleted++
		}
		_, err = n.Machine.Restore(ctx, id, api.RestoreRequest{})
		if code := api.CodeOf(err); code != api.CodeNotFound && code != api.CodeWrongState {
			t.Errorf("restore of one that is deleted: %v", err)
		}
	}
	if deleted != 2 {
		t.Errorf("%d of the first two snapshots are deleted", deleted)
	}
	n.RestoredHolds(ids[2], "3")
	n.RestoredHolds(ids[3], "4")
	n.Reopen()
	clock.Advance(time.Hour)
	snapshotIsGone(n, ids[3])
	n.RestoredHolds("named", "0")
	if err := n.Machine.DeleteSnapshot(ctx, named.ID, api.SnapshotDeletion{}); err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		snapshotIsGone(n, id)
	}
	if files := harness.FilesBelow(t, n.Paths.Snapshots()); len(files) != 0 {
		t.Errorf("left over: %v", files)
	}
}

// TestSnapshotFilesAreChecked damages and replaces files of a snapshot.
func TestSnapshotFilesAreChecked(t *testing.T) {
	ctx := harness.AsOwner
	n := harness.NewNode(t)
	n.Create("base")
	n.Hold("base", "-value", "one", "-only", held)
	one := n.Snapshot("base", api.SnapshotRequest{})
	n.Change("base", "one", "two")
	two := n.Snapshot("base", api.SnapshotRequest{})
	// A copy has the same contents, and is used.
	memory := filepath.Join(n.Paths.Snapshots(), one.ID, "memory")
	if err := os.Rename(memory, memory+".old"); err != nil {
		t.Fatal(err)
	}
	somewhere := copySparse(t, memory+".old", memory)
	if err := os.Remove(memory + ".old"); err != nil {
		t.Fatal(err)
	}
	n.Reopen()
	n.RestoredHolds(one.ID, "one")
	n.RestoredHolds(two.ID, "two")
	// One byte makes it another, of which the second snapshot has part.
	f, err := os.OpenFile(memory, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	var b [1]byte
	if _, err := f.ReadAt(b[:], somewhere); err != nil {
		t.Fatal(err)
	}
	b[0]++
	if _, err := f.WriteAt(b[:], somewhere); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	n.Reopen()
	for _, id := range []string{one.ID, two.ID} {
		_, err := n.Machine.Restore(ctx, id, api.RestoreRequest{})
		harness.WantCode(t, err, api.CodeCorrupt)
	}
	_, err = n.Machine.VerifySnapshot(ctx, one.ID)
	harness.WantCode(t, err, api.CodeCorrupt)
	if s := snapshotIs(n, one.ID, api.SnapshotFailed); !strings.Contains(s.Reason, "does not match its digest") {
		t.Errorf("it failed because %s", s.Reason)
	}
	n.Reopen()
	_, err = n.Machine.Restore(ctx, two.ID, api.RestoreRequest{})
	harness.WantCode(t, err, api.CodeCorrupt) // as before: it is still checked
	for _, id := range []string{two.ID, one.ID} {
		if err := n.Machine.DeleteSnapshot(ctx, id, api.SnapshotDeletion{}); err != nil {
			t.Error(err)
		}
	}
}

// TestSnapshotFilesAreCheckedAgain damages files of a snapshot in place, after sandboxes were restored from it by the
// daemon that runs.
func TestSnapshotFilesAreCheckedAgain(t *testing.T) {
	n := harness.NewNode(t)
	n.Create("base")
	n.Hold("base", "-value", "one", "-only", held)
	n.Guest("base", "write", "/root/file", strings.Repeat("text", 4096))
	first := n.Snapshot("base", api.SnapshotRequest{})
	n.Change("base", "one", "two")
	second := n.Snapshot("base", api.SnapshotRequest{})
	n.RestoredHolds(first.ID, "one")
	n.RestoredHolds(second.ID, "two")
	dir := filepath.Join(n.Paths.Snapshots(), first.ID)
	for _, name := range []string{"state", "memory", "files"} {
		file := filepath.Join(dir, name)
		place := firstByte(t, file)
		addTo(t, file, place, 1)
		_, err := n.Machine.Restore(harness.AsOwner, first.ID, api.RestoreRequest{})
		harness.WantCode(t, err, api.CodeCorrupt)
		if name == "memory" { // of which the second has part
			_, err = n.Machine.Restore(harness.AsOwner, second.ID, api.RestoreRequest{})
			harness.WantCode(t, err, api.CodeCorrupt)
		}
		addTo(t, file, place, 255)
		n.RestoredHolds(first.ID, "one")
		n.RestoredHolds(second.ID, "two")
	}
}

// firstByte returns the place of the first byte of a file that is not zero.
func firstByte(t *testing.T, file string) int64 {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.IndexFunc(data, func(r rune) bool { return r != 0 })
	if at < 0 {
		t.Fatalf("%s has nothing but zeros", file)
	}
	return int64(at)
}

// addTo adds to one byte of a file.
func addTo(t *testing.T, file string, place int64, what byte) {
	t.Helper()
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var b [1]byte
	if _, err := f.ReadAt(b[:], place); err != nil {
		t.Fatal(err)
	}
	b[0] += what
	if _, err := f.WriteAt(b[:], place); err != nil {
		t.Fatal(err)
	}
}

// copySparse copies a file with its holes, and returns where something is in it.
func copySparse(t *testing.T, from, to string) (somewhere int64) {
	t.Helper()
	in, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	buf, zeros := make([]byte, 1<<20), make([]byte, 1<<20)
	for at := int64(0); ; at += int64(len(buf)) {
		k, err := in.ReadAt(buf, at)
		if !bytes.Equal(buf[:k], zeros[:k]) {
			if _, err := out.WriteAt(buf[:k], at); err != nil {
				t.Fatal(err)
			}
			somewhere = at
		}
		if err == io.EOF {
			if err := out.Truncate(at + int64(k)); err != nil {
				t.Fatal(err)
			}
			return somewhere
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// uploadOnce takes snapshots of "base" without waiting for them, and deletes some.
func uploadOnce(ctx context.Context, m *machine.Machine, rng *rand.Rand) error {
	no := false
	fmt.Println("snapshot")
	if _, err := m.Snapshot(ctx, "base", api.SnapshotRequest{Wait: &no}); err != nil {
		return err
	}
	if rng.IntN(2) > 0 {
		return nil
	}
	fmt.Println("delete")
	list, err := m.Snapshots(ctx)
	if err != nil || len(list) < 3 {
		return err
	}
	how := api.SnapshotDeletion{Cascade: rng.IntN(2) == 0}
	how.Flatten = !how.Cascade
	err = m.DeleteSnapshot(ctx, list[rng.IntN(len(list))].ID, how)
	if code := api.CodeOf(err); code == api.CodeWrongState || code == api.CodeNotFound {
		return nil
	}
	return err
}

// TestUploadsSurviveKills kills a daemon that writes snapshots in the background and
// deletes them. Each is ready and loads then, or has failed.
func TestUploadsSurviveKills(t *testing.T) {
	ctx := harness.AsOwner
	rounds := harness.Kills(t, 10, 4)
	rng := harness.Seeded(t)
	n := harness.NewNode(t)
	n.Create("base")
	n.Hold("base", "-value", "zero", "-only", held)
	n.Close()
	states := map[api.SnapshotState]int{}
	for range rounds {
		p := harness.StartVictim(t, harness.Victim{Runtime: n.Paths.RuntimeDir(), Data: n.Paths.DataDir(), Engine: n.Build, Seed: rng.Uint64(), Work: "upload"})
		for range 1 + rng.IntN(6) {
			p.Next()
		}
		harness.RandomPause(rng, 60*time.Millisecond)
		p.Kill()
		n.Open()
		list, err := n.Machine.Snapshots(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range list {
			states[s.State]++
			if _, err := n.Machine.GetSnapshot(ctx, s.ID); api.CodeOf(err) == api.CodeNotFound {
				continue // deleted with another one
			}
			switch s.State {
			case api.SnapshotReady:
				n.RestoredHolds(s.ID, "zero")
				if _, err := n.Machine.VerifySnapshot(ctx, s.ID); err != nil {
					t.Error(err)
				}
			case api.SnapshotFailed:
				if files := harness.FilesBelow(t, filepath.Join(n.Paths.Snapshots(), s.ID)); len(files) != 0 {
					t.Errorf("a failed snapshot has files %v", files)
				}
			case api.SnapshotDeleted:
				continue
			default:
				t.Errorf("%s is %s", s.ID, s.State)
			}
			if err := n.Machine.DeleteSnapshot(ctx, s.ID, api.SnapshotDeletion{Cascade: true}); err != nil && api.CodeOf(err) != api.CodeNotFound {
				t.Error(err)
			}
		}
		n.MustHold("base", "zero")
		if files := harness.FilesBelow(t, n.Paths.Snapshots()); len(files) != 0 {
			t.Errorf("left over: %v", files)
		}
		n.Close()
	}
	t.Logf("found: %v", states)
	n.Open()
}
