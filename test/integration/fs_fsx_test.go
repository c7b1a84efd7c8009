package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"ramet.dev/ramet/api"
)

// fsxOfImage is a file of the image "fs".
const fsxOfImage = "/lower/mmap.read/f"

// TestFSXOnHost runs the program on the host's tmpfs: what it wants is what Linux
// does.
func TestFSXOnHost(t *testing.T) {
	rng := seeded(t)
	dir, err := os.MkdirTemp("/dev/shm", "ramet-fsx-")
	if err != nil {
		t.Skipf("no tmpfs to compare with: %v", err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	for i := range 3 {
		out, err := exec.Command(guestProgram(), "fs", "fsx", filepath.Join(dir, fmt.Sprint(i)), fmt.Sprint(rng.IntN(1e9)), "3000").CombinedOutput()
		if err != nil {
			t.Errorf("%v: %s", err, out)
		}
	}
}

// TestFSX has one file read, written, mapped, cut and punched in all ways at the same
// time: a new one and one of the image, and then through forks, snapshots and
// restores, which take a program along that knows what must be in the file.
func TestFSX(t *testing.T) {
	ctx := asOwner
	rng := seeded(t)
	n := newFSNode(t)
	n.createFS("box", 0)
	fsRounds(t, 1, func() {
		seed := func() string { return fmt.Sprint(rng.IntN(1e9)) }
		n.long("box", "fs", "fsx", "/var/new", seed(), "2000")
		n.long("box", "fs", "fsx", fsxOfImage, seed(), "2000")
		source := n.fork("box", 1)[0].ID
		// Whose pages are all pinned.
		n.long(source, "fs", "fsx", "/var/new", seed(), "2000")
		for _, name := range []string{"/var/new", "/var/other", "/lower/mmap.private/f"} {
			n.long(source, "fs", "fsx", "start", name, seed())
		}
		check := func(refs ...string) {
			t.Helper()
			for _, ref := range refs {
				for _, name := range []string{"/var/new", "/var/other", "/lower/mmap.private/f"} {
					n.long(ref, "fs", "fsx", "check", name)
				}
			}
		}
		check(source)
		for range 2 {
			children := n.fork(source, 2)
			check(source, children[0].ID, children[1].ID)
			grandchild := n.fork(children[0].ID, 1)[0].ID
			n.destroy(children[0].ID)
			s, err := n.m.Snapshot(ctx, grandchild, api.SnapshotRequest{})
			if err != nil {
				t.Fatal(err)
			}
			r, err := n.m.Restore(ctx, s.ID, api.RestoreRequest{})
			if err != nil {
				t.Fatal(err)
			}
			restored := n.children(r)[0].ID
			check(source, grandchild, restored)
			n.destroy(source, grandchild, children[1].ID)
			source = restored
		}
		n.destroy(source)
	})
}

// TestFSLargeDirectory makes a directory of 100 000 entries, of which parent and child
// each remove another half.
func TestFSLargeDirectory(t *testing.T) {
	n := newFSNode(t)
	n.createFS("box", 0)
	n.long("box", "fs", "many", "make", "/var/many", "100000")
	child := n.fork("box", 1)[0].ID
	n.long(child, "fs", "many", "check", "/var/many", "100000")
	n.long(child, "fs", "many", "remove-odd", "/var/many", "100000")
	n.long("box", "fs", "many", "remove-even", "/var/many", "100000")
	grandchild := n.fork(child, 1)[0].ID
	n.long(grandchild, "fs", "many", "check-even", "/var/many", "100000")
	n.long("box", "fs", "many", "check-odd", "/var/many", "100000")
}
