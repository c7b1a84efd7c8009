package fs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/test/harness"
)

// fsxOfImage is a file of the image "fs".
const fsxOfImage = "/lower/mmap.read/f"

// TestFSXOnHost runs the program on the host's tmpfs: what it wants is what Linux
// does.
func TestFSXOnHost(t *testing.T) {
	rng := harness.Seeded(t)
	dir, err := os.MkdirTemp("/dev/shm", "ramet-fsx-")
	if err != nil {
		t.Skipf("no tmpfs to compare with: %v", err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	for i := range 3 {
		out, err := exec.Command(harness.GuestProgram(), "fs", "fsx", filepath.Join(dir, fmt.Sprint(i)), fmt.Sprint(rng.IntN(1e9)), "3000").CombinedOutput()
		if err != nil {
			t.Errorf("%v: %s", err, out)
		}
	}
}

// TestFSX has one file read, written, mapped, cut and punched in all ways at the same
// time: a new one and one of the image, and then through forks, snapshots and
// restores, which take a program along that knows what must be in the file.
func TestFSX(t *testing.T) {
	ctx := harness.AsOwner
	rng := harness.Seeded(t)
	n := harness.NewFSNode(t)
	n.CreateFS("box", 0)
	harness.Rounds(t, 1, func() {
		steps := fmt.Sprint(harness.Count(600, 600, 2000))
		seed := func() string { return fmt.Sprint(rng.IntN(1e9)) }
		n.Long("box", "fs", "fsx", "/var/new", seed(), steps)
		n.Long("box", "fs", "fsx", fsxOfImage, seed(), steps)
		source := n.Fork("box", 1)[0].ID
		// Whose pages are all pinned.
		n.Long(source, "fs", "fsx", "/var/new", seed(), steps)
		for _, name := range []string{"/var/new", "/var/other", "/lower/mmap.private/f"} {
			n.Long(source, "fs", "fsx", "start", name, seed())
		}
		check := func(refs ...string) {
			t.Helper()
			for _, ref := range refs {
				for _, name := range []string{"/var/new", "/var/other", "/lower/mmap.private/f"} {
					n.Long(ref, "fs", "fsx", "check", name)
				}
			}
		}
		check(source)
		for range 2 {
			children := n.Fork(source, 2)
			check(source, children[0].ID, children[1].ID)
			grandchild := n.Fork(children[0].ID, 1)[0].ID
			n.Destroy(children[0].ID)
			s, err := n.Machine.Snapshot(ctx, grandchild, api.SnapshotRequest{})
			if err != nil {
				t.Fatal(err)
			}
			r, err := n.Machine.Restore(ctx, s.ID, api.RestoreRequest{})
			if err != nil {
				t.Fatal(err)
			}
			restored := n.Children(r)[0].ID
			check(source, grandchild, restored)
			n.Destroy(source, grandchild, children[1].ID)
			source = restored
		}
		n.Destroy(source)
	})
}

// TestFSLargeDirectory makes a directory of 30 000 entries, of which parent and child
// each remove another half.
func TestFSLargeDirectory(t *testing.T) {
	n := harness.NewFSNode(t)
	n.CreateFS("box", 0)
	entries := fmt.Sprint(harness.Count(30_000, 30_000, 100_000))
	n.Long("box", "fs", "many", "make", "/var/many", entries)
	child := n.Fork("box", 1)[0].ID
	n.Long(child, "fs", "many", "check", "/var/many", entries)
	n.Long(child, "fs", "many", "remove-odd", "/var/many", entries)
	n.Long("box", "fs", "many", "remove-even", "/var/many", entries)
	grandchild := n.Fork(child, 1)[0].ID
	n.Long(grandchild, "fs", "many", "check-even", "/var/many", entries)
	n.Long("box", "fs", "many", "check-odd", "/var/many", entries)
}
