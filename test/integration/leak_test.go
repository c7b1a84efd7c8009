package integration

import (
	"bytes"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"ramet.dev/ramet/api"
)

// finish ends a node and checks that nothing of it is left.
func (n *testNode) finish() {
	n.t.Helper()
	if n.m == nil {
		return
	}
	n.destroyAll()
	if err := n.m.Close(); err != nil {
		n.t.Error(err)
	}
	n.m = nil
	n.checkNothingLeft()
}

func (n *testNode) destroyAll() {
	n.t.Helper()
	ctx := asOwner
	list, err := n.m.List(ctx, api.ListFilter{})
	if err != nil {
		n.t.Error(err)
	}
	for _, s := range list {
		if err := n.m.Destroy(ctx, s.ID); err != nil {
			n.t.Error(err)
		}
	}
	snaps, err := n.m.Snapshots(ctx)
	if err != nil {
		n.t.Error(err)
	}
	n.deleteAll(snaps)
}

// deleteAll deletes the snapshots of a list, the last one first.
func (n *testNode) deleteAll(snaps []api.Snapshot) {
	n.t.Helper()
	for _, s := range slices.Backward(snaps) {
		err := n.m.DeleteSnapshot(asOwner, s.ID, api.SnapshotDeletion{})
		if err != nil && (s.State != api.SnapshotDeleted || api.CodeOf(err) != api.CodeNotFound) { // one that is deleted goes with what has part of it
			n.t.Error(err)
		}
	}
}

// checkNothingLeft checks what a closed node without sandboxes must not have.
func (n *testNode) checkNothingLeft() {
	n.t.Helper()
	eventually(n.t, "processes", func() error {
		if left := n.processes(); len(left) > 0 {
			return fmt.Errorf("%d are left: %v", len(left), left)
		}
		return nil
	})
	eventually(n.t, "descriptors", func() error {
		runtime.GC() // those of managers that were closed before go with them
		return moreThan(n.fds, openFiles(n.t))
	})
	if left := filesBelow(n.t, n.paths.Sandboxes()); len(left) > 0 {
		n.t.Errorf("files of sentries are left: %v", left)
	}
	if left := filesBelow(n.t, n.paths.Snapshots()); len(left) > 0 {
		n.t.Errorf("files of snapshots are left: %v", left)
	}
	if left := n.groups(); len(left) > 0 {
		n.t.Errorf("control groups are left: %v", left)
	}
	for _, f := range filesBelow(n.t, n.paths.DataDir()) {
		name := filepath.Base(f)
		if strings.Contains(name, ".tmp") || strings.HasPrefix(name, "tmp") {
			n.t.Errorf("temporary file is left: %s", f)
		}
	}
	if err := goleak.Find(n.goroutines); err != nil {
		n.t.Error(err)
	}
}

// processes returns the host processes of this node's sentries, blank ones
// included: their command lines have the build id. What runs guest code was
// forked from them and has it too.
func (n *testNode) processes() []int {
	var pids []int
	entries, err := os.ReadDir("/proc")
	if err != nil {
		n.t.Fatal(err)
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		line, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if err == nil && bytes.Contains(line, []byte(n.build)) && bytes.HasPrefix(line, []byte("ramet-sentry")) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// openFiles counts this process's descriptors by what they are.
func openFiles(t testing.TB) map[string]int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	open := map[string]int{}
	for _, e := range entries {
		target, err := os.Readlink("/proc/self/fd/" + e.Name())
		if err != nil {
			continue // the directory's own
		}
		open[classify(target)]++
	}
	return open
}

var inode = regexp.MustCompile(`^([a-z_]+):\[?[0-9a-z]+\]?$`)

// classify makes what two descriptors of one kind refer to alike.
func classify(target string) string {
	if m := inode.FindStringSubmatch(target); m != nil && m[1] != "anon_inode" {
		return m[1]
	}
	if strings.HasPrefix(target, "/memfd:") {
		return "memfd"
	}
	if strings.Contains(target, "/files/#") {
		return "files of a sandbox"
	}
	return target
}

// moreThan says what b has and a has not.
func moreThan(a, b map[string]int) error {
	var errs []error
	for _, k := range slices.Sorted(maps.Keys(b)) {
		if b[k] > a[k] {
			errs = append(errs, fmt.Errorf("%d of %s, were %d", b[k], k, a[k]))
		}
	}
	return errors.Join(errs...)
}

func filesBelow(t testing.TB, dir string) []string {
	t.Helper()
	var files []string
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err == nil && p != dir {
			files = append(files, p)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// groups returns the directories of this node's control groups, its own
// included.
func (n *testNode) groups() []string {
	h := fnv.New32a()
	h.Write([]byte(n.paths.RuntimeDir()))
	name := fmt.Sprintf("ramet-%08x", h.Sum32()) // as package node calls it
	var dirs []string
	err := filepath.WalkDir("/sys/fs/cgroup", func(p string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrPermission):
			return nil // somebody else's, gone or closed to us
		case err == nil && d.IsDir() && strings.Contains(p, "/"+name):
			dirs = append(dirs, p)
		}
		return err
	})
	if err != nil {
		n.t.Fatal(err)
	}
	return dirs
}

// allocatedBytes returns how many bytes of a sparse file take up space.
func allocatedBytes(st os.FileInfo) int64 { return st.Sys().(*syscall.Stat_t).Blocks * 512 }
