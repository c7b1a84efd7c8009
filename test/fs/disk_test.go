package fs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/machine"
	"ramet.dev/ramet/test/harness"
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
	dir := harness.NewDir(t)
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
	file, dir := filepath.Join(harness.NewDir(t), "disk"), harness.NewDir(t)
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
	n := harness.NewNodeIn(t, filepath.Join(disk, "data"))
	n.Create("box")
	n.Create("other")
	n.Hold("other", "-value", "zero")
	forked := n.Fork("other", 1)[0].ID
	for _, kind := range box {
		fillHostDiskOnce(n, "box", kind)
	}
	for _, kind := range parent {
		fillHostDiskOnce(n, forked, kind)
		n.MustHold(forked, "zero")
	}
}

func fillHostDiskOnce(n *harness.Node, ref, kind string) {
	n.T.Helper()
	ctx := harness.AsOwner
	n.T.Log(n.Long(ref, "fs", "fill", "/var/full", kind))
	n.MustHold("other", "zero")
	// There is no room for a child. In case there was some left, it must be a whole one.
	if r, err := n.Machine.Fork(ctx, ref, api.ForkRequest{Count: 1}); err != nil {
		harness.WantCode(n.T, err, api.CodeNoSpace)
	} else if c := r.Children[0]; c.Error != nil {
		harness.WantCode(n.T, c.Error, api.CodeNoSpace)
	} else {
		n.Long(c.Sandbox.ID, "fs", "clear", "/var/full")
		n.Destroy(c.Sandbox.ID)
	}
	_, err := n.Machine.Snapshot(ctx, ref, api.SnapshotRequest{})
	harness.WantCode(n.T, err, api.CodeNoSpace)
	if s, err := n.Machine.Create(ctx, api.CreateRequest{Image: "box"}); err != nil {
		harness.WantCode(n.T, err, api.CodeNoSpace)
	} else {
		n.Destroy(s.ID)
	}
	n.MustHold("other", "zero")
	n.Long(ref, "fs", "clear", "/var/full")
	child := n.Fork(ref, 1)[0].ID
	for _, r := range []string{"other", child, ref} {
		n.Long(r, "fs", "put", "/var/again")
	}
	n.Destroy(child)
}

// TestSpaceOfTheDestroyed: a sandbox that was destroyed leaves on the disk what its
// children were given, and the last of them nothing.
func TestSpaceOfTheDestroyed(t *testing.T) {
	disk := smallTmpfs(t, "256")
	n := harness.NewNodeIn(t, filepath.Join(disk, "data"))
	n.Pool = 0
	n.Reopen()
	used := func() int {
		var s unix.Statfs_t
		if err := unix.Statfs(disk, &s); err != nil {
			t.Fatal(err)
		}
		return int(s.Blocks-s.Bfree) * int(s.Bsize) >> 10
	}
	// mustUse waits until that many KiB more are used than at first: a process that
	// was killed takes a moment to end.
	first := used()
	mustUse := func(kib int) {
		t.Helper()
		const other = 1 << 10 // nodes, identities, records
		harness.Eventually(t, "space on the disk", func() error {
			if now := used() - first; now < kib || now > kib+other {
				return fmt.Errorf("%d KiB are used, not %d", now, kib)
			}
			return nil
		})
	}
	put := func(ref, name string) { n.Long(ref, "fs", "put", name) } // 2 MiB
	const file = 2 << 10
	last := n.Create("").ID
	put(last, "/kept")
	const generations = 10
	for i := range generations {
		put(last, fmt.Sprint("/of-generation-", i))
		child := n.Fork(last, 1)[0].ID
		for more := range 5 { // all of it is gone when it is destroyed
			put(last, fmt.Sprint("/more-", more))
		}
		n.Long(last, "fs", "churn", "/churn", fmt.Sprint(i), "100", "samegroup")
		n.Destroy(last)
		last = child
		mustUse((i + 2) * file)
	}
	put(last, "/kept")
	mustUse((generations + 2) * file)
	n.Destroy(last)
	mustUse(0)
}

// TestRecordsAreLost has a daemon start whose records were removed or cut off, beside
// snapshots. It must not take those for leftovers.
func TestRecordsAreLost(t *testing.T) {
	n := harness.NewNode(t)
	n.Create("base")
	n.Hold("base", "-value", "one", "-only", "heap")
	kept := n.Snapshot("base", api.SnapshotRequest{})
	n.Close()
	registry := n.Paths.Registry()
	text, err := os.ReadFile(registry)
	if err != nil {
		t.Fatal(err)
	}
	for _, lose := range []func() error{func() error { return os.Truncate(registry, 0) }, func() error { return os.Remove(registry) }} {
		if err := lose(); err != nil {
			t.Fatal(err)
		}
		for range 2 { // what the first one leaves is no reason for the second one
			m, err := machine.Open(harness.AsOwner, n.Config())
			if err == nil {
				m.Close()
				t.Fatal("it starts")
			}
			harness.WantCode(t, err, api.CodeCorrupt)
			if !strings.Contains(err.Error(), registry) || !strings.Contains(err.Error(), n.Paths.Snapshots()) {
				t.Errorf("it does not say what to do: %v", err)
			}
		}
	}
	for _, beside := range []string{"-wal", "-shm"} {
		if err := os.Remove(registry + beside); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(registry, text, 0o600); err != nil {
		t.Fatal(err)
	}
	n.Open()
	n.MustHold("base", "one")
	n.RestoredHolds(kept.ID, "one")
}

// TestDiskUse looks at what files take, in a sandbox, in a child that shares them, and
// when the child has some of its own.
func TestDiskUse(t *testing.T) {
	n := harness.NewNode(t)
	if _, err := n.Machine.Create(harness.AsOwnerIn(t), api.CreateRequest{Image: "box", Name: "box", Limits: api.Limits{DiskMiB: 64}}); err != nil {
		t.Fatal(err)
	}
	check := func(ref string, used, private float64) {
		t.Helper()
		st, err := n.Machine.Stats(harness.AsOwnerIn(t), ref)
		if err != nil {
			t.Fatal(err)
		}
		about := func(got, want float64) bool { return got >= want && got < want+1 } // there are nodes and spare pages besides
		if d := st.Disk; !about(d.UsedMiB, used) || !about(d.PrivateMiB, private) || d.LimitMiB != 64 {
			t.Errorf("%s uses %+v, not about %v MiB and %v MiB of its own", ref, d, used, private)
		}
		if got := n.Get(ref).Disk; got == nil || *got != st.Disk {
			t.Errorf("%s is shown with %+v, not %+v", ref, got, st.Disk)
		}
	}
	check("box", 0, 0)
	n.Put("box", api.WriteRequest{FileRef: harness.At("/srv/parents")}, strings.Repeat("p", 4<<20))
	check("box", 4, 4)
	child := n.Fork("box", 1)[0].ID
	check(child, 4, 0)
	n.Put(child, api.WriteRequest{FileRef: harness.At("/srv/childs")}, strings.Repeat("c", 2<<20))
	check(child, 6, 2)
	check("box", 4, 4)
	if err := n.ChangeFile(child, api.FileChange{FileRef: harness.At("/srv/parents"), Action: api.FileRemove}); err != nil {
		t.Fatal(err)
	}
	check(child, 2, 2)
	n.Hibernate("box")
	n.Reopen()
	st, err := n.Machine.Stats(harness.AsOwnerIn(t), "box")
	if err != nil {
		t.Fatal(err)
	}
	if st.State != api.StateHibernated || st.Processes != 0 || st.Memory != (api.Memory{}) || st.Disk.UsedMiB < 4 || st.Disk.UsedMiB > 5 || st.Disk.PrivateMiB < 4 || st.Disk.LimitMiB != 64 {
		t.Errorf("a hibernated sandbox uses %+v", st)
	}
	if s := n.Get("box"); s.Disk == nil || *s.Disk != st.Disk || s.Memory != nil || s.State != api.StateHibernated {
		t.Errorf("it is shown as %+v", s)
	}
	if list, err := n.Machine.List(harness.AsOwnerIn(t), api.ListFilter{}); err != nil || list[0].Disk != nil {
		t.Errorf("a list asks all sandboxes for their disk: %v", err)
	}
}

// TestSharedMemoryIsHalfOfTheMemory looks at the size of /dev/shm, which is that of a machine with the
// sandbox's memory, in a child too.
func TestSharedMemoryIsHalfOfTheMemory(t *testing.T) {
	n := harness.NewNode(t)
	var machine unix.Sysinfo_t
	if err := unix.Sysinfo(&machine); err != nil {
		t.Fatal(err)
	}
	n.Create("box")
	for _, ref := range []string{"box", n.Fork("box", 1)[0].ID} {
		if got := n.Guest(ref, "space", "/dev/shm"); got != fmt.Sprintln((machine.Totalram/2+4095)&^4095) {
			t.Errorf("%s: /dev/shm has %q bytes of %d", ref, got, machine.Totalram)
		}
	}
}
