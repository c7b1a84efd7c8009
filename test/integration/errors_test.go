package integration

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
)

// operations are all that a reference to a sandbox can be given to.
func (n *testNode) operations() map[string]func(ref string) error {
	ctx := asOwner
	return map[string]func(ref string) error{
		"get":       func(ref string) error { _, err := n.m.Get(ctx, ref); return err },
		"destroy":   func(ref string) error { return n.m.Destroy(ctx, ref) },
		"pause":     func(ref string) error { _, err := n.m.Pause(ctx, ref); return err },
		"resume":    func(ref string) error { _, err := n.m.Resume(ctx, ref); return err },
		"exec":      func(ref string) error { _, err := n.exec(ref, "true"); return err },
		"processes": func(ref string) error { _, err := n.m.Processes(ctx, ref, false); return err },
		"stats":     func(ref string) error { _, err := n.m.Stats(ctx, ref); return err },
		"fork":      func(ref string) error { _, err := n.m.Fork(ctx, ref, api.ForkRequest{}); return err },
		"promote":   func(ref string) error { _, err := n.m.Promote(ctx, ref); return err },
		"diff from": func(ref string) error { _, err := n.m.Diff(ctx, ref, "box", api.DiffRequest{}); return err },
		"diff to":   func(ref string) error { _, err := n.m.Diff(ctx, "box", ref, api.DiffRequest{}); return err },
		"tree": func(ref string) error {
			if ref == "" {
				return api.Invalid("id", "stands for all") // no reference at all
			}
			_, err := n.m.Tree(ctx, ref)
			return err
		},
		"snapshot":      func(ref string) error { _, err := n.m.Snapshot(ctx, ref, api.SnapshotRequest{}); return err },
		"rollback":      func(ref string) error { _, err := n.m.Rollback(ctx, ref, "start"); return err },
		"rollback to":   func(ref string) error { _, err := n.m.Rollback(ctx, "box", ref); return err },
		"restore":       func(ref string) error { _, err := n.m.Restore(ctx, ref, api.RestoreRequest{}); return err },
		"get snapshot":  func(ref string) error { _, err := n.m.GetSnapshot(ctx, ref); return err },
		"drop snapshot": func(ref string) error { return n.m.DeleteSnapshot(ctx, ref, api.SnapshotDeletion{}) },
		"create":        func(ref string) error { _, err := n.m.Create(ctx, api.CreateRequest{Image: ref}); return err },
		"get image":     func(ref string) error { _, err := n.m.GetImage(ctx, ref); return err },
		"remove image":  func(ref string) error { return n.m.RemoveImage(ctx, ref) },
	}
}

// TestBadReferences gives every operation references that cannot be and ones
// that are not there. None may do anything, or look at a path made of it.
func TestBadReferences(t *testing.T) {
	n := newNode(t)
	n.create("box")
	if _, err := n.m.Snapshot(asOwner, "box", api.SnapshotRequest{Name: "start"}); err != nil {
		t.Fatal(err)
	}
	before := filesBelow(t, n.paths.DataDir())
	refs := []string{
		"", " ", ".", "..", "../box", "/", "/etc/passwd", "box/", "box/..", "box\x00", "box\n", "BOX", "%2e%2e", "sbx_", "snap_", "img_",
		"sbx_../../../../../../x", "snap_../../../../../x", "sbx_aaaaaaaaaaaaaaa1", strings.Repeat("a", 64), strings.Repeat("a", 1<<16),
		"ä", "\xff\xfe", "-box", "box;rm", "$(x)", "*", "none", "none-such", "sha256:", "sha256:" + strings.Repeat("0", 64),
		api.NewID(api.KindSandbox), api.NewID(api.KindSnapshot), api.NewID(api.KindImage),
	}
	rng := seeded(t)
	for range 200 {
		refs = append(refs, randomRef(rng))
	}
	for name, op := range n.operations() {
		for _, ref := range refs {
			err := op(ref)
			if c := api.CodeOf(err); c != api.CodeInvalid && c != api.CodeNotFound {
				t.Errorf("%s %q: code %q: %v", name, ref[:min(len(ref), 80)], c, err)
			}
		}
	}
	if after := filesBelow(t, n.paths.DataDir()); !slices.Equal(before, after) {
		t.Errorf("files were %v, are %v", before, after)
	}
	n.guest("box", "true")
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
	ctx := asOwner
	n := newNode(t)
	n.create("box")
	_, err := n.m.Create(ctx, api.CreateRequest{Image: "box", Name: "box"})
	wantCode(t, err, api.CodeNameTaken)
	_, err = n.m.Fork(ctx, "box", api.ForkRequest{Names: []string{"free", "box"}})
	wantCode(t, err, api.CodeNameTaken)
	_, err = n.m.Fork(ctx, "box", api.ForkRequest{Names: []string{"free", "free"}})
	wantCode(t, err, api.CodeNameTaken)
	_, err = n.m.Fork(ctx, "box", api.ForkRequest{Names: []string{"free", "Not A Name"}})
	wantCode(t, err, api.CodeInvalid)
	// None of those may have kept "free".
	r, err := n.m.Fork(ctx, "box", api.ForkRequest{Names: []string{"free"}})
	if err != nil {
		t.Fatal(err)
	}
	n.destroy(n.children(r)[0].ID)
	n.create("free")
	if _, err := n.m.Snapshot(ctx, "box", api.SnapshotRequest{Name: "snap"}); err != nil {
		t.Fatal(err)
	}
	_, err = n.m.Snapshot(ctx, "box", api.SnapshotRequest{Name: "snap"})
	wantCode(t, err, api.CodeNameTaken)
	_, err = n.m.Snapshot(ctx, "box", api.SnapshotRequest{Name: "No Name"})
	wantCode(t, err, api.CodeInvalid)
	if err := n.m.DeleteSnapshot(ctx, "snap", api.SnapshotDeletion{}); err != nil {
		t.Fatal(err)
	}
	if _, err := n.m.Snapshot(ctx, "free", api.SnapshotRequest{Name: "snap"}); err != nil {
		t.Error(err)
	}
}

// TestWrongState uses sandboxes that are destroyed, paused or failed.
func TestWrongState(t *testing.T) {
	ctx := asOwner
	n := newNode(t)
	n.create("box")
	if _, err := n.m.Snapshot(ctx, "box", api.SnapshotRequest{Name: "start"}); err != nil {
		t.Fatal(err)
	}
	t.Run("destroyed", func(t *testing.T) {
		gone := n.create("gone").ID
		n.destroy(gone)
		for name, op := range n.operations() {
			for _, ref := range []string{gone, "gone"} {
				if err := op(ref); api.CodeOf(err) != api.CodeNotFound && api.CodeOf(err) != api.CodeInvalid {
					t.Errorf("%s %s: %v", name, ref, err)
				}
			}
		}
	})
	t.Run("paused", func(t *testing.T) {
		n.hold("box", "-value", "zero", "-only", "heap,chatter,timerfd")
		if s, err := n.m.Pause(ctx, "box"); err != nil || s.State != api.StatePaused {
			t.Fatalf("pause: %+v %v", s, err)
		}
		ops := n.operations()
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
		if s, err := n.m.Resume(ctx, "box"); err != nil || s.State != api.StateRunning {
			t.Fatalf("resume: %+v %v", s, err)
		}
		if err := ops["resume"]("box"); api.CodeOf(err) != api.CodeWrongState {
			t.Errorf("second resume: %v", err)
		}
		n.mustHold("box", "zero")
		if _, err := n.m.Pause(ctx, "box"); err != nil {
			t.Fatal(err)
		}
		if _, err := n.m.Rollback(ctx, "box", "start"); err != nil {
			t.Errorf("rollback: %v", err)
		}
		n.guest("box", "true") // the snapshot was of a running one
		c := n.fork("box", 1)[0].ID
		if _, err := n.m.Pause(ctx, c); err != nil {
			t.Fatal(err)
		}
		n.destroy(c)
	})
	t.Run("failed", func(t *testing.T) {
		child := n.fork("box", 1)[0].ID
		if err := syscall.Kill(n.sentryOf("box"), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		n.mustFail("box")
		ops := n.operations()
		for _, name := range []string{"exec", "fork", "snapshot", "pause", "resume", "processes", "stats"} {
			if err := ops[name]("box"); api.CodeOf(err) != api.CodeSandboxDied {
				t.Errorf("%s: %v", name, err)
			}
		}
		n.guest(child, "true") // it does not need its parent
		if _, err := n.m.Rollback(ctx, "box", "start"); err != nil {
			t.Errorf("rollback of a failed sandbox: %v", err)
		}
		n.guest("box", "true")
		if err := syscall.Kill(n.sentryOf("box"), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		n.mustFail("box")
		n.destroy("box")
		if err := ops["destroy"]("box"); api.CodeOf(err) != api.CodeNotFound {
			t.Errorf("second destroy: %v", err)
		}
	})
}

// TestBadRequests makes requests whose fields cannot be.
func TestBadRequests(t *testing.T) {
	ctx := asOwner
	n := newNode(t)
	n.create("box")
	fork := func(req api.ForkRequest) func() error {
		return func() error { _, err := n.m.Fork(ctx, "box", req); return err }
	}
	create := func(req api.CreateRequest) func() error {
		req.Image = "box"
		return func() error { _, err := n.m.Create(ctx, req); return err }
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
			_, err := n.m.Diff(ctx, "box", "box", api.DiffRequest{Paths: []string{"etc"}})
			return err
		},
		"two image sources": func() error {
			_, err := n.m.CreateImage(ctx, api.ImageRequest{Name: "x", Path: "/", Ref: "x"}, func(api.Progress) {})
			return err
		},
		"an image selected of a registry's": func() error {
			_, err := n.m.CreateImage(ctx, api.ImageRequest{Name: "x", Ref: "x", Select: "y"}, func(api.Progress) {})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) { wantCode(t, run(), api.CodeInvalid) })
	}
	if names := n.names(t); len(names) != 1 {
		t.Errorf("left sandboxes %v", names)
	}
	if err := n.m.RemoveImage(ctx, "box"); api.CodeOf(err) != api.CodeConflict {
		t.Errorf("remove the image of a sandbox: %v", err)
	}
	_, err := n.m.Promote(ctx, "box")
	wantCode(t, err, api.CodeConflict)
}

// TestForkDeadline gives children no time: each must be reported, and none left.
func TestForkDeadline(t *testing.T) {
	n := newNode(t)
	n.create("box")
	n.hold("box", "-value", "zero")
	r, err := n.m.Fork(asOwner, "box", api.ForkRequest{Names: []string{"a", "b", "c"}, TimeoutMS: 1})
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
	if names := n.names(t); len(names) != 1 {
		t.Errorf("left sandboxes %v", names)
	}
	n.create("a") // the name is free
	n.mustHold("box", "zero")
}

// TestForeignSnapshot rolls back to snapshots of others.
func TestForeignSnapshot(t *testing.T) {
	ctx := asOwner
	n := newNode(t)
	n.create("parent")
	n.guest("parent", "write", "/mark", "parent")
	n.create("stranger")
	for _, s := range []string{"parent", "stranger"} {
		if _, err := n.m.Snapshot(ctx, s, api.SnapshotRequest{Name: "of-" + s}); err != nil {
			t.Fatal(err)
		}
	}
	child := n.fork("parent", 1)[0].ID
	if _, err := n.m.Snapshot(ctx, child, api.SnapshotRequest{Name: "of-child"}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		ref, snap string
		ok        bool
	}{
		{"stranger", "of-parent", false}, {"parent", "of-stranger", false}, {child, "of-stranger", false}, {"parent", "of-child", false},
		{child, "of-parent", true}, {child, "of-child", true},
	} {
		_, err := n.m.Rollback(ctx, c.ref, c.snap)
		if c.ok && err != nil {
			t.Errorf("%s to %s: %v", c.ref, c.snap, err)
		}
		if !c.ok {
			wantCode(t, err, api.CodeConflict)
		}
		if got := n.guest("parent", "cat", "/mark"); got != "parent" {
			t.Errorf("after %s to %s the parent has %q", c.ref, c.snap, got)
		}
	}
}

// TestCorruptSnapshot damages snapshots on disk in every way. Each must be
// refused and leave nothing, and a sandbox that was to be rolled back must go
// on.
func TestCorruptSnapshot(t *testing.T) {
	ctx := asOwner
	n := newNode(t)
	n.create("box")
	n.hold("box", "-value", "zero", "-only", "heap,bulk")
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
			s, err := n.m.Snapshot(ctx, "box", api.SnapshotRequest{})
			if err != nil {
				t.Fatal(err)
			}
			c.damage(t, filepath.Join(n.paths.Snapshots(), s.ID, c.file))
			_, err = n.m.Restore(ctx, s.ID, api.RestoreRequest{})
			wantCode(t, err, api.CodeCorrupt)
			_, err = n.m.Rollback(ctx, "box", s.ID)
			wantCode(t, err, api.CodeCorrupt)
			n.mustHold("box", "zero")
			if err := n.m.DeleteSnapshot(ctx, s.ID, api.SnapshotDeletion{}); err != nil {
				t.Error(err)
			}
		})
	}
	if names := n.names(t); len(names) != 1 {
		t.Errorf("left sandboxes %v", names)
	}
}

// TestDiskFull takes snapshots on a disk that is too small.
func TestDiskFull(t *testing.T) {
	ctx := asOwner
	data := newDir(t)
	if err := unix.Mount("test", data, "tmpfs", 0, "size=48m,mode=0700"); err != nil {
		t.Skipf("no small disk can be mounted (%v): this part needs root", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(data, 0); err != nil {
			t.Error(err)
		}
	})
	n := newNodeIn(t, filepath.Join(data, "data"))
	n.create("small")
	n.create("large")
	n.hold("large", "-value", "zero", "-bulk", "64", "-only", "heap,bulk")
	for range 3 {
		_, err := n.m.Snapshot(ctx, "large", api.SnapshotRequest{Name: "big"})
		wantCode(t, err, api.CodeNoSpace)
		if left := filesBelow(t, n.paths.Snapshots()); len(left) > 0 {
			t.Fatalf("left %v", left)
		}
	}
	n.mustHold("large", "zero")
	if _, err := n.m.Snapshot(ctx, "small", api.SnapshotRequest{Name: "big"}); err != nil {
		t.Errorf("there is room again, but: %v", err)
	}
	if snaps, err := n.m.Snapshots(ctx); err != nil || len(snaps) != 1 {
		t.Errorf("there are %d snapshots, not 1 (%v)", len(snaps), err)
	}
}

// hasGroups says whether this machine and user have control groups.
func (n *testNode) hasGroups() bool {
	s := n.create("probe")
	defer n.destroy("probe")
	return s.Isolation.Cgroup == api.LayerOn
}

// TestLimitsNeedGroups asks for limits where they cannot be had.
func TestLimitsNeedGroups(t *testing.T) {
	n := newNode(t)
	if n.hasGroups() {
		t.Skip("this user has control groups, so limits are not refused: run as another one")
	}
	ctx := asOwner
	_, err := n.m.Create(ctx, api.CreateRequest{Image: "box", Limits: api.Limits{MemoryMiB: 64}})
	wantCode(t, err, api.CodeIsolation)
	_, err = n.m.Create(ctx, api.CreateRequest{Image: "box", Require: []string{"cgroup"}})
	wantCode(t, err, api.CodeIsolation)
	if names := n.names(t); len(names) > 0 {
		t.Errorf("left sandboxes %v", names)
	}
}

// TestOutOfMemory lets a sandbox and a child of it, which has the same limit,
// take more memory than they may. It must be their end only.
func TestOutOfMemory(t *testing.T) {
	n := newNode(t)
	if !n.hasGroups() {
		t.Skip("there are no control groups for this user, so there is no limit of memory")
	}
	ctx := asOwner
	_, err := n.m.Create(ctx, api.CreateRequest{Image: "box", Name: "box", Limits: api.Limits{MemoryMiB: 64}})
	if err != nil {
		t.Fatal(err)
	}
	n.create("other")
	child := n.fork("box", 1)[0]
	if child.Limits.MemoryMiB != 64 {
		t.Errorf("child has limits %+v", child.Limits)
	}
	for _, ref := range []string{child.ID, "box"} {
		if out, err := n.exec(ref, "eat", "20"); err != nil || out.stdout.String() != "done\n" {
			t.Errorf("%s cannot use what it may: %v", ref, err)
		}
		_, err := n.exec(ref, "eat", "400")
		wantCode(t, err, api.CodeNoMemory)
		eventually(t, ref, func() error {
			s, err := n.m.Get(ctx, ref)
			if err != nil {
				return err
			}
			if s.State != api.StateFailed || !strings.Contains(s.Reason, "memory limit") {
				return fmt.Errorf("it is %s: %q", s.State, s.Reason)
			}
			return nil
		})
		n.guest("other", "true")
	}
}

// TestTaskLimit starts more processes than a sandbox may have: it must get an
// error and live.
func TestTaskLimit(t *testing.T) {
	n := newNode(t)
	if !n.hasGroups() {
		t.Skip("there are no control groups for this user, so limits are refused")
	}
	_, err := n.m.Create(asOwner, api.CreateRequest{Image: "box", Name: "box", Limits: api.Limits{Pids: 64}})
	if err != nil {
		t.Fatal(err)
	}
	n.guest("box", "true")
	for _, ref := range []string{"box", n.fork("box", 1)[0].ID} {
		out, err := n.run(ref, api.ExecRequest{Argv: []string{"guest", "brood", "200"}, TimeoutMS: 20_000}, "")
		if err != nil {
			t.Fatal(err)
		}
		if out.OK || out.TimedOut {
			t.Errorf("%s: 200 processes of a few threads each ran: %+v", ref, *out.ExecResult)
		}
		eventually(t, "processes", func() error { return n.noProcesses(ref) })
		n.guest(ref, "true")
	}
}

// TestDiskLimit writes more than a sandbox may.
func TestDiskLimit(t *testing.T) {
	n := newNode(t)
	_, err := n.m.Create(asOwner, api.CreateRequest{Image: "box", Name: "box", Limits: api.Limits{DiskMiB: 16}})
	if err != nil {
		t.Fatal(err)
	}
	n.guest("box", "fill", "/root/half", "8")
	for _, ref := range []string{n.fork("box", 1)[0].ID, "box"} {
		out, err := n.exec(ref, "fill", "/root/more", "12")
		if err != nil || out.OK || !strings.Contains(out.stderr.String(), "no space left") {
			t.Errorf("%s: wrote 20 of 16 MiB: %v %q", ref, err, out.stderr.String())
		}
		n.guest(ref, "rm", "/root/more", "/root/half")
		n.guest(ref, "fill", "/root/less", "12")
	}
}
