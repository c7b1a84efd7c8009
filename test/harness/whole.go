package harness

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/image"
)

// CheckWhole checks that base and every other sandbox hold value, and that there
// are no processes and files but theirs.
func (n *Node) CheckWhole(base, value string) {
	n.T.Helper()
	ctx := AsOwner
	n.MustHold(base, value)
	list, err := n.Machine.List(ctx, api.ListFilter{})
	if err != nil {
		n.T.Fatal(err)
	}
	for _, s := range list {
		if s.State != api.StateRunning {
			n.T.Errorf("%s is %s: %s", s.ID, s.State, s.Reason)
		}
		if s.Name == base {
			continue
		}
		if err := n.Holds(s.ID, value); err != nil {
			n.T.Error(err)
		}
		if got, err := n.Exec(s.ID, "say", "env:RAMET_SANDBOX_ID"); err == nil && strings.TrimSpace(got.Stdout.String()) != s.ID {
			n.T.Errorf("%s believes that it is %s", s.ID, got.Stdout.String())
		}
	}
	Eventually(n.T, "processes and files", func() error {
		// A client that was killed may have left a fork that is still under way.
		list, err := n.Machine.List(ctx, api.ListFilter{})
		if err != nil {
			return err
		}
		if s := n.Sentries(); len(s) > len(list)+n.Pool {
			return fmt.Errorf("%d sentries for %d sandboxes", len(s), len(list))
		}
		if f := FilesBelow(n.T, n.Paths.Sandboxes()); len(f) > 2*(len(list)+n.Pool)+1 { // a socket and a log each, and the zygote's log
			return fmt.Errorf("%d sandboxes have files %v", len(list), f)
		}
		return nil
	})
	n.CheckSnapshots()
}

// CheckSnapshots checks that every snapshot on disk has a record and is ready.
func (n *Node) CheckSnapshots() {
	n.T.Helper()
	snaps, err := n.Machine.Snapshots(AsOwner)
	if err != nil {
		n.T.Fatal(err)
	}
	known := map[string]bool{}
	for _, s := range snaps {
		if s.State != api.SnapshotReady && s.OnDisk {
			n.T.Errorf("snapshot %s is %s", s.ID, s.State)
		}
		known[s.ID] = true
	}
	entries, err := os.ReadDir(n.Paths.Snapshots())
	if err != nil {
		n.T.Fatal(err)
	}
	for _, e := range entries {
		if !known[e.Name()] {
			n.T.Errorf("%s is no snapshot", e.Name())
		}
	}
}

// CheckImages checks that every image is what its digest says, and that there is
// nothing else among them.
func (n *Node) CheckImages() {
	n.T.Helper()
	ctx := AsOwner
	images, err := n.Machine.Images(ctx)
	if err != nil {
		n.T.Fatal(err)
	}
	store, err := image.Open(n.Paths.Images())
	if err != nil {
		n.T.Fatal(err)
	}
	for _, i := range images {
		if err := store.Verify(ctx, i.ID); err != nil {
			n.T.Error(err)
		}
	}
	if blobs := FilesBelow(n.T, filepath.Join(n.Paths.Images(), "blobs")); len(blobs) != len(images) {
		n.T.Errorf("%d images have files %v", len(images), blobs)
	}
}

// CheckOwned checks that each process, socket, log, control group and file of the
// node belongs to a sandbox, a snapshot or the pool, and that those have theirs.
func (n *Node) CheckOwned() {
	n.T.Helper()
	Eventually(n.T, "processes, files and groups", func() error {
		awake, kept, _ := n.Recorded()
		sentries := n.Sentries()
		if len(sentries) != awake+n.Pool {
			return fmt.Errorf("%d sentries for %d sandboxes that run and %d in the pool", len(sentries), awake, n.Pool)
		}
		for _, pid := range n.Processes() {
			if session := sessionOf(pid); session != 0 && !slices.Contains(sentries, session) && !IsZygote(pid) {
				return fmt.Errorf("process %d belongs to no sentry", pid)
			}
		}
		f := slices.DeleteFunc(FilesBelow(n.T, n.Paths.Sandboxes()), func(path string) bool { return filepath.Base(path) == "zygote.log" })
		if len(f) != 2*len(sentries) { // a socket and a log each
			return fmt.Errorf("%d sentries have files %v", len(sentries), f)
		}
		groups := slices.DeleteFunc(n.Groups(), func(dir string) bool { return !strings.Contains(dir, "/pool_") })
		if each := len(groups) / max(1, len(sentries)); len(groups) != each*len(sentries) { // v1 has one for each controller
			return fmt.Errorf("%d sentries have control groups %v", len(sentries), groups)
		}
		entries, err := os.ReadDir(n.Paths.Snapshots())
		if err != nil {
			return err
		}
		for _, e := range entries {
			if !slices.Contains(kept, e.Name()) {
				return fmt.Errorf("%s is no snapshot", e.Name())
			}
		}
		for _, id := range kept {
			if !slices.ContainsFunc(entries, func(e os.DirEntry) bool { return e.Name() == id }) {
				return fmt.Errorf("snapshot %s has no files", id)
			}
		}
		for _, f := range FilesBelow(n.T, n.Paths.Files()) {
			return fmt.Errorf("the file of pages %s has a name", f)
		}
		mounts, err := os.ReadFile("/proc/self/mounts")
		if err == nil && (strings.Contains(string(mounts), n.Paths.DataDir()) || strings.Contains(string(mounts), n.Paths.RuntimeDir())) {
			err = fmt.Errorf("something is mounted: %s", mounts)
		}
		return err
	})
}

// Recorded returns, from the records, how many sandboxes have a sentry, and the
// snapshots that have files. Stray are records that nobody needs: moments from which
// neither a sandbox nor a snapshot comes (a daemon keeps them that has a snapshot open,
// and the next one does not), and snapshots that are deleted or one sandbox's own, which
// nothing refers to.
func (n *Node) Recorded() (awake int, onDisk, stray []string) {
	n.T.Helper()
	db := n.records()
	defer db.Close()
	each := func(table string, row func(id string, doc []byte) error) {
		rows, err := db.Query("SELECT id, doc FROM " + table)
		if err != nil {
			n.T.Fatal(err)
		}
		defer rows.Close()
		for rows.Next() {
			var id string
			var doc []byte
			if err = rows.Scan(&id, &doc); err == nil {
				err = row(id, doc)
			}
			if err != nil {
				n.T.Fatal(err)
			}
		}
		if err := rows.Err(); err != nil {
			n.T.Fatal(err)
		}
	}
	parents, needed, referred, hidden := map[string]string{}, map[string]bool{}, map[string]bool{}, map[string]bool{}
	each("freezes", func(id string, doc []byte) error {
		var rec struct{ Parent string }
		err := json.Unmarshal(doc, &rec)
		parents[id] = rec.Parent
		return err
	})
	need := func(id string) {
		for ; id != "" && !needed[id]; id = parents[id] {
			needed[id] = true
		}
	}
	each("sandboxes", func(_ string, doc []byte) error {
		var rec struct {
			Sandbox                   api.Sandbox
			Freeze, Hibernation, Base string
		}
		err := json.Unmarshal(doc, &rec)
		need(rec.Freeze)
		referred[rec.Hibernation], referred[rec.Base] = true, true
		if s := rec.Sandbox.State; s == api.StateRunning || s == api.StatePaused {
			awake++
		}
		return err
	})
	each("snapshots", func(id string, doc []byte) error {
		var rec struct {
			Snapshot api.Snapshot
			Private  string
			Needs    []string
		}
		err := json.Unmarshal(doc, &rec)
		need(id)
		hidden[id] = rec.Private != "" || rec.Snapshot.State == api.SnapshotDeleted
		for _, other := range rec.Needs {
			referred[other] = true
		}
		if s := rec.Snapshot; s.OnDisk && (s.State == api.SnapshotReady || s.State == api.SnapshotDeleted) {
			onDisk = append(onDisk, id)
		}
		return err
	})
	for id := range parents {
		if !needed[id] {
			stray = append(stray, "moment "+id)
		}
	}
	for id, unseen := range hidden {
		if unseen && !referred[id] {
			stray = append(stray, "snapshot "+id)
		}
	}
	return awake, onDisk, stray
}
