package harness

import (
	"context"
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
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/network/control"
)

// Finish ends a node and checks that nothing of it is left.
func (n *Node) Finish() {
	n.T.Helper()
	if n.Machine == nil {
		return
	}
	if n.T.Failed() {
		n.tellStuck()
	}
	n.DestroyAll()
	if err := n.Machine.Close(); err != nil {
		n.T.Error(err)
	}
	n.Machine = nil
	n.endGateway()
	n.CheckNothingLeft()
}

// endGateway ends the gateway of the node, if there is one. It would go on for a while, for the next
// daemon.
func (n *Node) endGateway() {
	n.T.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Timeout)
	defer cancel()
	err := n.gateway().End(ctx)
	if err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, syscall.ECONNREFUSED) {
		n.T.Errorf("end the gateway: %v", err)
	}
	Eventually(n.T, "gateway", func() error {
		if pid := n.Gateway(); pid != 0 {
			return fmt.Errorf("process %d is there", pid)
		}
		return nil
	})
}

// gateway returns what calls the node's gateway.
func (n *Node) gateway() *control.Client {
	return control.NewClient(filepath.Join(n.Paths.RuntimeDir(), "gateway.sock"))
}

// Gateway returns the process of the node's gateway, or 0 if none answers.
func (n *Node) Gateway() int {
	ctx, cancel := context.WithTimeout(context.Background(), Timeout)
	defer cancel()
	hello, err := n.gateway().Hello(ctx)
	if err != nil {
		return 0
	}
	return hello.PID
}

// DestroyAll destroys all sandboxes and deletes all snapshots.
func (n *Node) DestroyAll() {
	n.T.Helper()
	ctx := AsOwner
	list, err := n.Machine.List(ctx, api.ListFilter{})
	if err != nil {
		n.T.Error(err)
	}
	for _, s := range list {
		if err := n.Machine.Destroy(ctx, s.ID); err != nil {
			n.T.Error(err)
		}
	}
	snaps, err := n.Machine.Snapshots(ctx)
	if err != nil {
		n.T.Error(err)
	}
	n.deleteAll(snaps)
}

// deleteAll deletes the snapshots of a list, the last one first.
func (n *Node) deleteAll(snaps []api.Snapshot) {
	n.T.Helper()
	for _, s := range slices.Backward(snaps) {
		err := n.Machine.DeleteSnapshot(AsOwner, s.ID, api.SnapshotDeletion{})
		if err != nil && (s.State != api.SnapshotDeleted || api.CodeOf(err) != api.CodeNotFound) { // one that is deleted goes with what has part of it
			n.T.Error(err)
		}
	}
}

// CheckNothingLeft checks what a closed node without sandboxes must not have.
func (n *Node) CheckNothingLeft() {
	n.T.Helper()
	Eventually(n.T, "processes", func() error {
		if left := n.Processes(); len(left) > 0 {
			return fmt.Errorf("%d are left: %v", len(left), left)
		}
		return nil
	})
	Eventually(n.T, "descriptors", func() error {
		runtime.GC() // those of managers that were closed before go with them
		return MoreThan(n.FDs, OpenFiles(n.T))
	})
	if left := FilesBelow(n.T, n.Paths.Sandboxes()); len(left) > 0 {
		n.T.Errorf("files of sentries are left: %v", left)
	}
	if left := FilesBelow(n.T, n.Paths.Snapshots()); len(left) > 0 {
		n.T.Errorf("files of snapshots are left: %v", left)
	}
	if left := n.Groups(); len(left) > 0 {
		n.T.Errorf("control groups are left: %v", left)
	}
	for _, f := range FilesBelow(n.T, n.Paths.DataDir()) {
		name := filepath.Base(f)
		if strings.Contains(name, ".tmp") || strings.HasPrefix(name, "tmp") {
			n.T.Errorf("temporary file is left: %s", f)
		}
	}
	if err := goleak.Find(n.goroutines); err != nil {
		n.T.Error(err)
	}
}

// OpenFiles counts this process's descriptors by what they are.
func OpenFiles(t testing.TB) map[string]int {
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

// MoreThan says what b has and a has not.
func MoreThan(a, b map[string]int) error {
	var errs []error
	for _, k := range slices.Sorted(maps.Keys(b)) {
		if b[k] > a[k] {
			errs = append(errs, fmt.Errorf("%d of %s, were %d", b[k], k, a[k]))
		}
	}
	return errors.Join(errs...)
}

// FilesBelow returns everything in a directory, at any depth.
func FilesBelow(t testing.TB, dir string) []string {
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

// Groups returns the directories of this node's control groups, its own
// included.
func (n *Node) Groups() []string {
	h := fnv.New32a()
	h.Write([]byte(n.Paths.RuntimeDir()))
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
		n.T.Fatal(err)
	}
	return dirs
}
