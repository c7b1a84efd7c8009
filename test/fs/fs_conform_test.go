package fs

import (
	"os"
	"os/exec"
	"strconv"
	"testing"

	"ramet.dev/ramet/test/harness"
)

// fsMinCases is how many cases there are at least: a run of fewer proves less
// than it says.
const fsMinCases = 560

// TestFSConformance tries what POSIX and the manual pages of Linux say about
// files in the root file system of a sandbox: with files that were just made,
// that come from the image, and that were there before a fork.
func TestFSConformance(t *testing.T) {
	n := harness.NewFSNode(t)
	n.CreateFS("box", 0)
	n.CreateFS("untouched", 0)

	t.Run("new", func(t *testing.T) {
		judge(t, "new", fsMinCases, n.Long("box", "fs", "run", "-mode", "new", "-dir", "/var/cases"))
	})
	t.Run("image", func(t *testing.T) {
		judge(t, "image", fsMinCases, n.Long("box", "fs", "run", "-mode", "image", "-dir", "/lower"))
	})
	t.Run("forked", func(t *testing.T) {
		n.Long("box", "fs", "make", "/var/forked")
		child := n.Fork("box", 1)[0].ID
		n.Long(child, "fs", "verify", "forked", "/var/forked")
		judge(t, "forked", fsMinCases, n.Long(child, "fs", "run", "-mode", "forked", "-dir", "/var/forked"))
		n.Long("box", "fs", "verify", "forked", "/var/forked") // the parent has noticed nothing
	})
	n.Long("untouched", "fs", "verify", "image", "/lower") // neither has a sandbox of the same image
}

// TestFSLimit fills a sandbox to its disk limit and makes room again, before and
// after a fork.
func TestFSLimit(t *testing.T) {
	const limit = "48"
	n := harness.NewFSNode(t)
	n.CreateFS("box", 48)
	judge(t, "new", 9, n.Long("box", "fs", "run", "-limit", limit, "-dir", "/var/cases"))
	child := n.Fork("box", 1)[0].ID
	for _, ref := range []string{child, "box"} {
		judge(t, "new", 9, n.Long(ref, "fs", "run", "-limit", limit, "-dir", "/var/again"))
	}
}

// TestFSLimitCountsAll fills a sandbox with everything there is, until nothing more
// can be made. It must still be possible to fork it, and to make room, even by
// removing what is the image's.
func TestFSLimitCountsAll(t *testing.T) {
	n := harness.NewFSNode(t)
	n.CreateFS("box", 8)
	free := func(ref string) int {
		kib, err := strconv.Atoi(n.Guest(ref, "fs", "free", "/var"))
		if err != nil {
			t.Fatal(err)
		}
		return kib
	}
	before := free("box")
	for _, kind := range []string{"", "attributes", "links to paths", "files", "names"} {
		t.Log(n.Long("box", "fs", "fill", "/var/full", kind))
		if kib := free("box"); kib > 0 {
			t.Errorf("%d KiB are free when nothing can be made", kib)
		}
		child := n.Fork("box", 1)[0].ID
		n.Long(child, "fs", "clear", "/lower") // hides what is in the image, which takes space
		n.Long(child, "fs", "clear", "/var/full")
		grandchild := n.Fork(child, 1)[0].ID
		n.Long("box", "fs", "clear", "/var/full")
		for _, ref := range []string{"box", child, grandchild} {
			if kib := free(ref); kib < before-100 || kib > before {
				t.Errorf("%s: %d KiB are free, %d were", ref, kib, before)
			}
			n.Long(ref, "fs", "put", "/var/again")
		}
		n.Destroy(child, grandchild)
		n.Long("box", "fs", "clear", "/var")
	}
}

// TestFSOracle runs the same cases on a file system of the host: what they want
// is what Linux does.
func TestFSOracle(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can make files of other users")
	}
	const shm = "/dev/shm"
	dir, err := os.MkdirTemp(shm, "ramet-fs-")
	if err != nil {
		t.Skipf("no tmpfs to compare with: %v", err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(harness.GuestProgram(), "fs", "run", "-dir", dir+"/cases").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range fsResults(t, string(out)) {
		if r.Error != "" {
			t.Errorf("%s: %s", r.Name, r.Error)
		}
	}
}
