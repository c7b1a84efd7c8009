package integration

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"ramet.dev/ramet/api"
)

// TestFSStress does random operations in four threads that share a directory
// while the sandbox is forked and snapshot. In every child, and in the parent at
// last, the files must make sense when the threads are gone, removing them must
// work, and all their space must be free again.
func TestFSStress(t *testing.T) {
	const dir, diskMiB = "/srv/stress", 400
	ctx := asOwner
	f := newFuzz(t)
	f.createFS("box", diskMiB)
	free := f.free("box")
	pid := f.long("box", "fs", "stress", "start", dir, "4", strconv.Itoa(f.rng.IntN(1e9)), f.without)
	judge := func(ref string) {
		t.Helper()
		f.long(ref, "fs", "end", pid)
		files := f.long(ref, "fs", "fsck", dir, f.without)
		left := f.free(ref)
		f.long(ref, "rm", dir)
		if _, err := f.exec(ref, "write", dir+"/new", "x"); err != nil { // the name is of use again
			t.Fatal(err)
		}
		f.long(ref, "rm", dir)
		const slack = 1 << 10
		eventually(t, "space of removed files", func() error {
			if now := f.free(ref); now < free-slack {
				return fmt.Errorf("%d KiB are free, were %d", now, free)
			}
			return nil
		})
		t.Logf("%s files in %d KiB", files, free-left)
	}
	fsRounds(t, 1, func() {
		moment(f.rng, 500*time.Millisecond)
		for _, c := range f.fork("box", 2) {
			grandchild := f.fork(c.ID, 1)[0].ID // while the threads run in it
			judge(grandchild)
			judge(c.ID)
			f.destroy(grandchild, c.ID)
		}
	})
	if _, err := f.m.Snapshot(ctx, "box", api.SnapshotRequest{Name: "kept"}); err != nil {
		t.Fatal(err)
	}
	r, err := f.m.Restore(ctx, "kept", api.RestoreRequest{})
	if err != nil {
		t.Fatal(err)
	}
	judge(f.children(r)[0].ID)
	judge("box")
}

// free returns how many KiB are free in the root file system.
func (f *fuzz) free(ref string) int {
	f.t.Helper()
	n, err := strconv.Atoi(f.long(ref, "fs", "free", "/"))
	if err != nil {
		f.t.Fatal(err)
	}
	return n
}
