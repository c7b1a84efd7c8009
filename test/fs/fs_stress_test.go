package fs

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/test/harness"
)

// TestFSStress does random operations in four threads that share a directory
// while the sandbox is forked and snapshot. In every child, and in the parent at
// last, the files must make sense when the threads are gone, removing them must
// work, and all their space must be free again.
func TestFSStress(t *testing.T) {
	const dir, diskMiB = "/srv/stress", 400
	ctx := harness.AsOwner
	f := newFuzz(t)
	f.CreateFS("box", diskMiB)
	free := f.free("box")
	pid := f.Long("box", "fs", "stress", "start", dir, "4", strconv.Itoa(f.rng.IntN(1e9)), f.without)
	judge := func(ref string) {
		t.Helper()
		f.Long(ref, "fs", "end", pid)
		files := f.Long(ref, "fs", "fsck", dir, f.without)
		left := f.free(ref)
		f.Long(ref, "rm", dir)
		if _, err := f.Exec(ref, "write", dir+"/new", "x"); err != nil { // the name is of use again
			t.Fatal(err)
		}
		f.Long(ref, "rm", dir)
		const slack = 1 << 10
		harness.Eventually(t, "space of removed files", func() error {
			if now := f.free(ref); now < free-slack {
				return fmt.Errorf("%d KiB are free, were %d", now, free)
			}
			return nil
		})
		t.Logf("%s files in %d KiB", files, free-left)
	}
	harness.Rounds(t, 1, func() {
		harness.RandomPause(f.rng, 500*time.Millisecond)
		for _, c := range f.Fork("box", 2) {
			grandchild := f.Fork(c.ID, 1)[0].ID // while the threads run in it
			judge(grandchild)
			judge(c.ID)
			f.Destroy(grandchild, c.ID)
		}
	})
	if _, err := f.Machine.Snapshot(ctx, "box", api.SnapshotRequest{Name: "kept"}); err != nil {
		t.Fatal(err)
	}
	r, err := f.Machine.Restore(ctx, "kept", api.RestoreRequest{})
	if err != nil {
		t.Fatal(err)
	}
	judge(f.Children(r)[0].ID)
	judge("box")
}

// free returns how many KiB are free in the root file system.
func (f *fuzz) free(ref string) int {
	f.T.Helper()
	n, err := strconv.Atoi(f.Long(ref, "fs", "free", "/"))
	if err != nil {
		f.T.Fatal(err)
	}
	return n
}
