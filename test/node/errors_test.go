package node

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/test/harness"
)

// operations are all that a reference to a sandbox can be given to.
func operations(n *harness.Node) map[string]func(ref string) error {
	ctx := harness.AsOwner
	return map[string]func(ref string) error{
		"get":       func(ref string) error { _, err := n.Machine.Get(ctx, ref); return err },
		"destroy":   func(ref string) error { return n.Machine.Destroy(ctx, ref) },
		"pause":     func(ref string) error { _, err := n.Machine.Pause(ctx, ref); return err },
		"resume":    func(ref string) error { _, err := n.Machine.Resume(ctx, ref); return err },
		"exec":      func(ref string) error { _, err := n.Exec(ref, "true"); return err },
		"processes": func(ref string) error { _, err := n.Machine.Processes(ctx, ref, false); return err },
		"stats":     func(ref string) error { _, err := n.Machine.Stats(ctx, ref); return err },
		"fork":      func(ref string) error { _, err := n.Machine.Fork(ctx, ref, api.ForkRequest{}); return err },
		"promote":   func(ref string) error { _, err := n.Machine.Promote(ctx, ref); return err },
		"diff from": func(ref string) error { _, err := n.Machine.Diff(ctx, ref, "box", api.DiffRequest{}); return err },
		"diff to":   func(ref string) error { _, err := n.Machine.Diff(ctx, "box", ref, api.DiffRequest{}); return err },
		"tree": func(ref string) error {
			if ref == "" {
				return api.Invalid("id", "stands for all") // no reference at all
			}
			_, err := n.Machine.Tree(ctx, ref)
			return err
		},
		"snapshot":      func(ref string) error { _, err := n.Machine.Snapshot(ctx, ref, api.SnapshotRequest{}); return err },
		"rollback":      func(ref string) error { _, err := n.Machine.Rollback(ctx, ref, "start"); return err },
		"rollback to":   func(ref string) error { _, err := n.Machine.Rollback(ctx, "box", ref); return err },
		"restore":       func(ref string) error { _, err := n.Machine.Restore(ctx, ref, api.RestoreRequest{}); return err },
		"get snapshot":  func(ref string) error { _, err := n.Machine.GetSnapshot(ctx, ref); return err },
		"drop snapshot": func(ref string) error { return n.Machine.DeleteSnapshot(ctx, ref, api.SnapshotDeletion{}) },
		"create": func(ref string) error {
			_, err := n.Machine.Create(ctx, api.CreateRequest{Image: ref, Pull: api.PullNever})
			return err
		},
		"get image":    func(ref string) error { _, err := n.Machine.GetImage(ctx, ref); return err },
		"remove image": func(ref string) error { return n.Machine.RemoveImage(ctx, ref) },
	}
}

// TestBadReferences gives every operation references that cannot be and ones
// that are not there. None may do anything, or look at a path made of it.
func TestBadReferences(t *testing.T) {
	n := harness.NewNode(t)
	n.Create("box")
	if _, err := n.Machine.Snapshot(harness.AsOwner, "box", api.SnapshotRequest{Name: "start"}); err != nil {
		t.Fatal(err)
	}
	before := harness.FilesBelow(t, n.Paths.DataDir())
	refs := []string{
		"", " ", ".", "..", "../box", "/", "/etc/passwd", "box/", "box/..", "box\x00", "box\n", "BOX", "%2e%2e", "sbx_", "snap_", "img_",
		"sbx_../../../../../../x", "snap_../../../../../x", "sbx_aaaaaaaaaaaaaaa1", strings.Repeat("a", 64), strings.Repeat("a", 1<<16),
		"ä", "\xff\xfe", "-box", "box;rm", "$(x)", "*", "none", "none-such", "sha256:", "sha256:" + strings.Repeat("0", 64),
		api.NewID(api.KindSandbox), api.NewID(api.KindSnapshot), api.NewID(api.KindImage),
	}
	rng := harness.Seeded(t)
	for range 200 {
		refs = append(refs, randomRef(rng))
	}
	for name, op := range operations(n) {
		for _, ref := range refs {
			err := op(ref)
			if c := api.CodeOf(err); c != api.CodeInvalid && c != api.CodeNotFound {
				t.Errorf("%s %q: code %q: %v", name, ref[:min(len(ref), 80)], c, err)
			}
		}
	}
	if after := harness.FilesBelow(t, n.Paths.DataDir()); !slices.Equal(before, after) {
		t.Errorf("files were %v, are %v", before, after)
	}
	n.Guest("box", "true")
}

// randomRef returns something that looks like a reference but is none.
func randomRef(rng *rand.Rand) string {
	const letters = "abcxyz234567_-./\\:%@ \x00\n\tAZ~"
	b := []byte([]string{"", "sbx_", "snap_", "img_", "../", "/"}[rng.IntN(6)])
	for range 1 + rng.IntN(24) {
		b = append(b, letters[rng.IntN(len(letters))])
	}
	return string(b)
}

// TestNames checks that a name belongs to one sandbox, or snapshot, at a time.
func TestNames(t *testing.T) {
	ctx := harness.AsOwner
	n := harness.NewNode(t)
	n.Create("box")
	_, err := n.Machine.Create(ctx, api.CreateRequest{Image: "box", Name: "box"})
	harness.WantCode(t, err, api.CodeNameTaken)
	_, err = n.Machine.Fork(ctx, "box", api.ForkRequest{Names: []string{"free", "box"}})
	harness.WantCode(t, err, api.CodeNameTaken)
	_, err = n.Machine.Fork(ctx, "box", api.ForkRequest{Names: []string{"free", "free"}})
	harness.WantCode(t, err, api.CodeNameTaken)
	_, err = n.Machine.Fork(ctx, "box", api.ForkRequest{Names: []string{"free", "Not A Name"}})
	harness.WantCode(t, err, api.CodeInvalid)
	// None of those may have kept "free".
	r, err := n.Machine.Fork(ctx, "box", api.ForkRequest{Names: []string{"free"}})
	if err != nil {
		t.Fatal(err)
	}
	n.Destroy(n.Children(r)[0].ID)
	n.Create("free")
	if _, err := n.Machine.Snapshot(ctx, "box", api.SnapshotRequest{Name: "snap"}); err != nil {
		t.Fatal(err)
	}
	_, err = n.Machine.Snapshot(ctx, "box", api.SnapshotRequest{Name: "snap"})
	harness.WantCode(t, err, api.CodeNameTaken)
	_, err = n.Machine.Snapshot(ctx, "box", api.SnapshotRequest{Name: "No Name"})
	harness.WantCode(t, err, api.CodeInvalid)
	if err := n.Machine.DeleteSnapshot(ctx, "snap", api.SnapshotDeletion{}); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Machine.Snapshot(ctx, "free", api.SnapshotRequest{Name: "snap"}); err != nil {
		t.Error(err)
	}
}

// TestWrongState uses sandboxes that are destroyed, paused or failed.
func TestWrongState(t *testing.T) {
	ctx := harness.AsOwner
	n := harness.NewNode(t)
	n.Create("box")
	if _, err := n.Machine.Snapshot(ctx, "box", api.SnapshotRequest{Name: "start"}); err != nil {
		t.Fatal(err)
	}
	t.Run("destroyed", func(t *testing.T) {
		gone := n.Create("gone").ID
		n.Destroy(gone)
		for name, op := range operations(n) {
			for _, ref := range []string{gone, "gone"} {
				if err := op(ref); api.CodeOf(err) != api.CodeNotFound && api.CodeOf(err) != api.CodeInvalid {
					t.Errorf("%s %s: %v", name, ref, err)
				}
			}
		}
	})
	t.Run("paused", func(t *testing.T) {
		n.Hold("box", "-value", "zero", "-only", "heap,chatter,timerfd")
		if s, err := n.Machine.Pause(ctx, "box"); err != nil || s.State != api.StatePaused {
			t.Fatalf("pause: %+v %v", s, err)
		}
		ops := operations(n)
		for _, name := range []string{"exec", "fork", "snapshot", "pause"} {
			if err := ops[name]("box"); api.CodeOf(err) != api.CodeWrongState {
				t.Errorf("%s: %v", name, err)
			}
		}
		for _, name := range []string{"get", "processes", "stats", "diff to", "tree"} {
			if err := ops[name]("box"); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if s, err := n.Machine.Resume(ctx, "box"); err != nil || s.State != api.StateRunning {
			t.Fatalf("resume: %+v %v", s, err)
		}
		if err := ops["resume"]("box"); api.CodeOf(err) != api.CodeWrongState {
			t.Errorf("second resume: %v", err)
		}
		n.MustHold("box", "zero")
		if _, err := n.Machine.Pause(ctx, "box"); err != nil {
			t.Fatal(err)
		}
		if _, err := n.Machine.Rollback(ctx, "box", "start"); err != nil {
			t.Errorf("rollback: %v", err)
		}
		n.Guest("box", "true") // the snapshot was of a running one
		c := n.Fork("box", 1)[0].ID
		if _, err := n.Machine.Pause(ctx, c); err != nil {
			t.Fatal(err)
		}
		n.Destroy(c)
	})
	t.Run("failed", func(t *testing.T) {
		child := n.Fork("box", 1)[0].ID
		if err := syscall.Kill(sentryOf(n, "box"), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		mustFail(n, "box")
		ops := operations(n)
		for _, name := range []string{"exec", "fork", "snapshot", "pause", "resume", "processes", "stats"} {
			if err := ops[name]("box"); api.CodeOf(err) != api.CodeSandboxDied {
				t.Errorf("%s: %v", name, err)
			}
		}
		n.Guest(child, "true") // it does not need its parent
		if _, err := n.Machine.Rollback(ctx, "box", "start"); err != nil {
			t.Errorf("rollback of a failed sandbox: %v", err)
		}
		n.Guest("box", "true")
		if err := syscall.Kill(sentryOf(n, "box"), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		mustFail(n, "box")
		n.Destroy("box")
		if err := ops["destroy"]("box"); api.CodeOf(err) != api.CodeNotFound {
			t.Errorf("second destroy: %v", err)
		}
	})
}

// TestBadRequests makes requests whose fields cannot be.
func TestBadRequests(t *testing.T) {
	ctx := harness.AsOwner
	n := harness.NewNode(t)
	n.Create("box")
	fork := func(req api.ForkRequest) func() error {
		return func() error { _, err := n.Machine.Fork(ctx, "box", req); return err }
	}
	create := func(req api.CreateRequest) func() error {
		req.Image = "box"
		return func() error { _, err := n.Machine.Create(ctx, req); return err }
	}
	for name, run := range map[string]func() error{
		"negative count":     fork(api.ForkRequest{Count: -1}),
		"too many":           fork(api.ForkRequest{Count: 1001}),
		"fewer names":        fork(api.ForkRequest{Count: 3, Names: []string{"a", "b"}}),
		"more names":         fork(api.ForkRequest{Count: 1, Names: []string{"a", "b"}}),
		"negative deadline":  fork(api.ForkRequest{TimeoutMS: -1}),
		"variable":           fork(api.ForkRequest{Env: map[string]string{"1A": "x"}}),
		"empty variable":     create(api.CreateRequest{Env: map[string]string{"": "x"}}),
		"NUL":                create(api.CreateRequest{Env: map[string]string{"A": "a\x00"}}),
		"name":               create(api.CreateRequest{Name: "../x"}),
		"name of an id":      create(api.CreateRequest{Name: api.NewID(api.KindSandbox) + "/"}),
		"unknown layer":      create(api.CreateRequest{Require: []string{"moat"}}),
		"negative processor": create(api.CreateRequest{Limits: api.Limits{CPUs: -1}}),
		"many processors":    create(api.CreateRequest{Limits: api.Limits{CPUs: 1000}}),
		"much memory":        create(api.CreateRequest{Limits: api.Limits{MemoryMiB: 1 << 24}}),
		"little memory":      create(api.CreateRequest{Limits: api.Limits{MemoryMiB: 1}}),
		"negative disk":      create(api.CreateRequest{Limits: api.Limits{DiskMiB: -5}}),
		"many processes":     create(api.CreateRequest{Limits: api.Limits{Pids: 1 << 40}}),
		"few open files":     create(api.CreateRequest{Limits: api.Limits{OpenFiles: 63}}),
		"many open files":    create(api.CreateRequest{Limits: api.Limits{OpenFiles: 1<<20 + 1}}),
		"relative diff path": func() error {
			_, err := n.Machine.Diff(ctx, "box", "box", api.DiffRequest{Paths: []string{"etc"}})
			return err
		},
		"two image sources": func() error {
			_, err := n.Machine.CreateImage(ctx, api.ImageRequest{Name: "x", Path: "/", Ref: "x"}, func(api.Progress) {})
			return err
		},
		"an image selected of a registry's": func() error {
			_, err := n.Machine.CreateImage(ctx, api.ImageRequest{Name: "x", Ref: "x", Select: "y"}, func(api.Progress) {})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) { harness.WantCode(t, run(), api.CodeInvalid) })
	}
	if names := n.Names(t); len(names) != 1 {
		t.Errorf("left sandboxes %v", names)
	}
	if err := n.Machine.RemoveImage(ctx, "box"); api.CodeOf(err) != api.CodeConflict {
		t.Errorf("remove the image of a sandbox: %v", err)
	}
	_, err := n.Machine.Promote(ctx, "box")
	harness.WantCode(t, err, api.CodeConflict)
}

// TestForkDeadline gives children no time: each must be reported, and none left.
func TestForkDeadline(t *testing.T) {
	n := harness.NewNode(t)
	n.Create("box")
	n.Hold("box", "-value", "zero")
	r, err := n.Machine.Fork(harness.AsOwner, "box", api.ForkRequest{Names: []string{"a", "b", "c"}, TimeoutMS: 1})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Children) != 3 {
		t.Errorf("%d children are reported", len(r.Children))
	}
	for i, c := range r.Children {
		if c.Sandbox != nil || c.Error == nil || c.Error.Code != api.CodeTimeout || c.Name != []string{"a", "b", "c"}[i] {
			t.Errorf("child is %+v", c)
		}
	}
	if names := n.Names(t); len(names) != 1 {
		t.Errorf("left sandboxes %v", names)
	}
	n.Create("a") // the name is free
	n.MustHold("box", "zero")
}

// TestForeignSnapshot rolls back to snapshots of others.
func TestForeignSnapshot(t *testing.T) {
	ctx := harness.AsOwner
	n := harness.NewNode(t)
	n.Create("parent")
	n.Guest("parent", "write", "/mark", "parent")
	n.Create("stranger")
	for _, s := range []string{"parent", "stranger"} {
		if _, err := n.Machine.Snapshot(ctx, s, api.SnapshotRequest{Name: "of-" + s}); err != nil {
			t.Fatal(err)
		}
	}
	child := n.Fork("parent", 1)[0].ID
	if _, err := n.Machine.Snapshot(ctx, child, api.SnapshotRequest{Name: "of-child"}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		ref, snap string
		ok        bool
	}{
		{"stranger", "of-parent", false}, {"parent", "of-stranger", false}, {child, "of-stranger", false}, {"parent", "of-child", false},
		{child, "of-parent", true}, {child, "of-child", true},
	} {
		_, err := n.Machine.Rollback(ctx, c.ref, c.snap)
		if c.ok && err != nil {
			t.Errorf("%s to %s: %v", c.ref, c.snap, err)
		}
		if !c.ok {
			harness.WantCode(t, err, api.CodeConflict)
		}
		if got := n.Guest("parent", "cat", "/mark"); got != "parent" {
			t.Errorf("after %s to %s the parent has %q", c.ref, c.snap, got)
		}
	}
}

// TestCorruptSnapshot damages snapshots on disk in every way. Each must be
// refused and leave nothing, and a sandbox that was to be rolled back must go
// on.
func TestCorruptSnapshot(t *testing.T) {
	ctx := harness.AsOwner
	n := harness.NewNode(t)
	n.Create("box")
	n.Hold("box", "-value", "zero", "-only", "heap,bulk")
	flip := func(at func(size int64) int64) func(*testing.T, string) {
		return func(t *testing.T, path string) {
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			b[at(int64(len(b)))] ^= 1
			if err := os.WriteFile(path, b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	cut := func(to func(size int64) int64) func(*testing.T, string) {
		return func(t *testing.T, path string) {
			st, err := os.Stat(path)
			if err == nil {
				err = os.Truncate(path, to(st.Size()))
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	remove := func(t *testing.T, path string) {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	first := func(int64) int64 { return 0 }
	middle := func(size int64) int64 { return size / 2 }
	last := func(size int64) int64 { return size - 1 }
	for _, c := range []struct {
		name, file string
		damage     func(*testing.T, string)
	}{
		{"state, first byte", "state", flip(first)},
		{"state, middle", "state", flip(middle)},
		{"state, last byte", "state", flip(last)},
		{"state, cut", "state", cut(last)},
		{"state, empty", "state", cut(first)},
		{"state, missing", "state", remove},
		{"memory, cut", "memory", cut(middle)},
		{"memory, last byte cut", "memory", cut(last)},
		{"memory, empty", "memory", cut(first)},
		{"memory, missing", "memory", remove},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := n.Machine.Snapshot(ctx, "box", api.SnapshotRequest{})
			if err != nil {
				t.Fatal(err)
			}
			c.damage(t, filepath.Join(n.Paths.Snapshots(), s.ID, c.file))
			_, err = n.Machine.Restore(ctx, s.ID, api.RestoreRequest{})
			harness.WantCode(t, err, api.CodeCorrupt)
			_, err = n.Machine.Rollback(ctx, "box", s.ID)
			harness.WantCode(t, err, api.CodeCorrupt)
			n.MustHold("box", "zero")
			if err := n.Machine.DeleteSnapshot(ctx, s.ID, api.SnapshotDeletion{}); err != nil {
				t.Error(err)
			}
		})
	}
	if names := n.Names(t); len(names) != 1 {
		t.Errorf("left sandboxes %v", names)
	}
}

// TestDiskFull takes snapshots on a disk that is too small.
func TestDiskFull(t *testing.T) {
	ctx := harness.AsOwner
	data := harness.NewDir(t)
	if err := unix.Mount("test", data, "tmpfs", 0, "size=48m,mode=0700"); err != nil {
		t.Skipf("no small disk can be mounted (%v): this part needs root", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(data, 0); err != nil {
			t.Error(err)
		}
	})
	n := harness.NewNodeIn(t, filepath.Join(data, "data"))
	n.Create("small")
	n.Create("large")
	n.Hold("large", "-value", "zero", "-bulk", "64", "-only", "heap,bulk")
	for range 3 {
		_, err := n.Machine.Snapshot(ctx, "large", api.SnapshotRequest{Name: "big"})
		harness.WantCode(t, err, api.CodeNoSpace)
		if left := harness.FilesBelow(t, n.Paths.Snapshots()); len(left) > 0 {
			t.Fatalf("left %v", left)
		}
	}
	n.MustHold("large", "zero")
	if _, err := n.Machine.Snapshot(ctx, "small", api.SnapshotRequest{Name: "big"}); err != nil {
		t.Errorf("there is room again, but: %v", err)
	}
	if snaps, err := n.Machine.Snapshots(ctx); err != nil || len(snaps) != 1 {
		t.Errorf("there are %d snapshots, not 1 (%v)", len(snaps), err)
	}
}

// TestLimitsNeedGroups asks for limits where they cannot be had.
func TestLimitsNeedGroups(t *testing.T) {
	n := harness.NewNode(t)
	if n.HasGroups() {
		t.Skip("this user has control groups, so limits are not refused: run as another one")
	}
	ctx := harness.AsOwner
	_, err := n.Machine.Create(ctx, api.CreateRequest{Image: "box", Limits: api.Limits{MemoryMiB: 64, CPUs: 1}})
	harness.WantCode(t, err, api.CodeIsolation)
	_, err = n.Machine.Create(ctx, api.CreateRequest{Image: "box", Limits: api.Limits{Pids: 64}})
	harness.WantCode(t, err, api.CodeIsolation)
	_, err = n.Machine.Create(ctx, api.CreateRequest{Image: "box", Require: []string{"cgroup"}})
	harness.WantCode(t, err, api.CodeIsolation)
	if names := n.Names(t); len(names) > 0 {
		t.Errorf("left sandboxes %v", names)
	}
}

// TestOutOfMemory lets a sandbox and a child of it, which has the same limit,
// take more memory than they may. It must be their end only.
func TestOutOfMemory(t *testing.T) {
	n := harness.NewNode(t)
	kept := "enforced"
	if !n.HasGroups() {
		kept = "watched"
	}
	ctx := harness.AsOwner
	box, err := n.Machine.Create(ctx, api.CreateRequest{Image: "box", Name: "box", Limits: api.Limits{MemoryMiB: 64}})
	if err != nil {
		t.Fatal(err)
	}
	if box.Isolation.MemoryLimit != kept {
		t.Errorf("the limit is %q, not %s", box.Isolation.MemoryLimit, kept)
	}
	n.Create("other")
	child := n.Fork("box", 1)[0]
	if child.Limits.MemoryMiB != 64 || child.Isolation.MemoryLimit != kept {
		t.Errorf("child has limits %+v, which are %q", child.Limits, child.Isolation.MemoryLimit)
	}
	n.Reopen() // the next daemon goes on to watch
	for _, ref := range []string{child.ID, "box"} {
		if out, err := n.Exec(ref, "eat", "20"); err != nil || out.Stdout.String() != "done\n" {
			t.Errorf("%s cannot use what it may: %v", ref, err)
		}
		_, err := n.Exec(ref, "eat", "400")
		harness.WantCode(t, err, api.CodeNoMemory)
		harness.Eventually(t, ref, func() error {
			s, err := n.Machine.Get(ctx, ref)
			if err != nil {
				return err
			}
			if s.State != api.StateFailed || !strings.Contains(s.Reason, "memory limit") {
				return fmt.Errorf("it is %s: %q", s.State, s.Reason)
			}
			return nil
		})
		n.Guest("other", "true")
	}
}

// TestTaskLimit starts more processes than a sandbox may have: it must get an
// error and live.
func TestTaskLimit(t *testing.T) {
	n := harness.NewNode(t)
	if !n.HasGroups() {
		t.Skip("there are no control groups for this user, so limits are refused")
	}
	_, err := n.Machine.Create(harness.AsOwner, api.CreateRequest{Image: "box", Name: "box", Limits: api.Limits{Pids: 64}})
	if err != nil {
		t.Fatal(err)
	}
	n.Guest("box", "true")
	for _, ref := range []string{"box", n.Fork("box", 1)[0].ID} {
		out, err := n.Run(ref, api.ExecRequest{Argv: []string{"guest", "brood", "200"}, TimeoutMS: 20_000}, "")
		if err != nil {
			t.Fatal(err)
		}
		if out.OK || out.TimedOut {
			t.Errorf("%s: 200 processes of a few threads each ran: %+v", ref, *out.ExecResult)
		}
		harness.Eventually(t, "processes", func() error { return n.NoProcesses(ref) })
		n.Guest(ref, "true")
	}
}

// TestDiskLimit writes more than a sandbox may.
func TestDiskLimit(t *testing.T) {
	n := harness.NewNode(t)
	_, err := n.Machine.Create(harness.AsOwner, api.CreateRequest{Image: "box", Name: "box", Limits: api.Limits{DiskMiB: 16}})
	if err != nil {
		t.Fatal(err)
	}
	n.Guest("box", "fill", "/root/half", "8")
	for _, ref := range []string{n.Fork("box", 1)[0].ID, "box"} {
		out, err := n.Exec(ref, "fill", "/root/more", "12")
		if err != nil || out.OK || !strings.Contains(out.Stderr.String(), "no space left") {
			t.Errorf("%s: wrote 20 of 16 MiB: %v %q", ref, err, out.Stderr.String())
		}
		n.Guest(ref, "rm", "/root/more", "/root/half")
		n.Guest(ref, "fill", "/root/less", "12")
	}
}
