package integration

import (
	"context"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/internal/sandbox"
)

// unmountLater unmounts a directory when the test has ended.
func unmountLater(t *testing.T, dir string) {
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
}

// smallTmpfs makes a directory on a disk of some MiB.
func smallTmpfs(t *testing.T, mib string) string {
	t.Helper()
	dir := newDir(t)
	if err := unix.Mount("test", dir, "tmpfs", 0, "mode=0700,size="+mib+"m"); err != nil {
		t.Skipf("no small disk can be mounted (%v): this part needs root", err)
	}
	unmountLater(t, dir)
	return dir
}

// smallExt4 makes a directory on a disk of some MiB whose file system keeps nothing
// back, and allocates late.
func smallExt4(t *testing.T, mib string) string {
	t.Helper()
	file, dir := filepath.Join(newDir(t), "disk"), newDir(t)
	for _, cmd := range [][]string{
		{"truncate", "-s", mib + "M", file},
		{"mkfs.ext4", "-q", "-m", "0", file},
		{"mount", "-o", "loop", file, dir},
	} {
		if out, err := exec.Command(cmd[0], cmd[1:]...).CombinedOutput(); err != nil {
			t.Skipf("no small ext4 can be mounted (%v: %v: %s): this part needs root and loop devices", cmd, err, out)
		}
	}
	unmountLater(t, dir)
	return dir
}

// TestHostDiskFull fills the host's disk from inside of a sandbox. That is ENOSPC for
// those who write, and nothing else for anybody.
func TestHostDiskFull(t *testing.T) {
	t.Run("tmpfs", func(t *testing.T) { fillHostDisk(t, smallTmpfs(t, "40"), []string{""}, []string{"attributes"}) })
	t.Run("ext4", func(t *testing.T) { fillHostDisk(t, smallExt4(t, "48"), []string{"", "names"}, []string{""}) })
}

// fillHostDisk does so from a sandbox, and from a parent whose child goes on, once
// with each kind of things to make first.
func fillHostDisk(t *testing.T, disk string, box, parent []string) {
	n := newNodeIn(t, filepath.Join(disk, "data"))
	n.create("box")
	n.create("other")
	n.hold("other", "-value", "zero")
	forked := n.fork("other", 1)[0].ID
	for _, kind := range box {
		fillHostDiskOnce(n, "box", kind)
	}
	for _, kind := range parent {
		fillHostDiskOnce(n, forked, kind)
		n.mustHold(forked, "zero")
	}
}

func fillHostDiskOnce(n *node, ref, kind string) {
	n.t.Helper()
	ctx := context.Background()
	n.t.Log(n.long(ref, "fs", "fill", "/var/full", kind))
	n.mustHold("other", "zero")
	// There is no room for a child. In case there was some left, it must be a whole one.
	if r, err := n.m.Fork(ctx, ref, sandbox.ForkRequest{Count: 1}); err != nil {
		wantCode(n.t, err, sandbox.CodeNoSpace)
	} else if c := r.Children[0]; c.Error != nil {
		wantCode(n.t, c.Error, sandbox.CodeNoSpace)
	} else {
		n.long(c.Sandbox.ID, "fs", "clear", "/var/full")
		n.destroy(c.Sandbox.ID)
	}
	_, err := n.m.Snapshot(ctx, ref, sandbox.SnapshotRequest{})
	wantCode(n.t, err, sandbox.CodeNoSpace)
	n.long(ref, "fs", "clear", "/var/full")
	child := n.fork(ref, 1)[0].ID
	for _, r := range []string{"other", child, ref} {
		n.long(r, "fs", "put", "/var/again")
	}
	n.destroy(child)
}
