package snapshots

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/node/snapdir"
	"ramet.dev/ramet/internal/storage/store"
)

// ErrDaemonEnded is why a snapshot failed that was being written when the daemon ended.
var ErrDaemonEnded = api.Errorf(api.CodeUnavailable, "the daemon ended while it was written")

// Load adds a snapshot that is in the state that its record says. The snapshot shares the
// freeze of sandboxes that were restored from it, if there are any.
func (t *Set) Load(rec Record) *Snapshot {
	snap := &rec.Snapshot
	s := &Snapshot{ID: snap.ID, set: t, rec: rec}
	s.condition = condition{state: snap.State, reason: snap.Reason, needs: rec.Needs}
	if snap.State == api.SnapshotReady && rec.Version == 0 {
		s.freeze = t.freezes.Lookup(s.ID) // it is theirs and the snapshot's
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.byID[s.ID] = s
	name := owned{rec.Tenant(), snap.Name}
	if _, taken := t.names[name]; snap.Name != "" && (s.usable() || s.state == api.SnapshotFailed && !taken) {
		t.names[name] = s.ID
	}
	return s
}

// Recover adds the snapshots of an earlier daemon, and returns changes to be stored. What
// that daemon was making has failed.
func (t *Set) Recover(ctx context.Context) (changes []store.Change, err error) {
	err = t.store.Each(ctx, store.Snapshots, func(id string, doc []byte) error {
		var rec Record
		if err := json.Unmarshal(doc, &rec); err != nil {
			return api.Errorf(api.CodeCorrupt, "record of snapshot %s: %w", id, err)
		}
		rec.Control = rec.Control.Migrate(&rec.Source.Claimed)
		if rec.Snapshot.Claimed == nil {
			rec.Snapshot.Claimed = rec.Source.Claimed
		}
		lost := ""
		switch snap := &rec.Snapshot; {
		case snap.State == api.SnapshotReady && !snap.OnDisk:
			lost = "it was in memory only, and the daemon was restarted"
		case snap.State == api.SnapshotCreating || snap.State == api.SnapshotUploading:
			lost = ErrDaemonEnded.Error()
		}
		if lost != "" {
			c := condition{state: rec.Snapshot.State}
			if err := c.become(id, api.SnapshotFailed, lost); err != nil {
				return err
			}
			rec.Snapshot.State, rec.Snapshot.Reason = c.state, c.reason
			rec.empty()
			changes = append(changes, store.Change{Table: store.Snapshots, ID: id, Doc: rec})
		}
		t.Load(rec)
		return nil
	})
	return changes, err
}

// Usable reports whether the snapshot called id is there and ready.
func (t *Set) Usable(id string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.byID[id]
	return s != nil && s.usable()
}

// Sweep removes files that belong to no snapshot.
func (t *Set) Sweep() error {
	dir := t.paths.Snapshots()
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		id, _, _ := strings.Cut(e.Name(), ".")
		if !api.IsID(api.KindSnapshot, id) {
			continue
		}
		path := filepath.Join(dir, e.Name())
		s := t.Get(id)
		if e.Name() != id || s == nil {
			err = os.RemoveAll(path)
		} else if rec := s.Record(); rec.Snapshot.State == api.SnapshotFailed && rec.Parts == nil {
			err = os.RemoveAll(path)
		} else if rec.Parts != nil { // else a version of Ramet wrote it that kept no list
			err = snapdir.Sweep(path, rec.Version, rec.Parts)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
