package node

import (
	"context"
	"os"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/node/freezes"
	"ramet.dev/ramet/internal/storage/store"
)

// A snapshot that nobody waits for is uploading from the end of its freeze until it is
// on disk. It is restored from live memory meanwhile, whose pins it holds. The record
// says so before the caller is told of it: a daemon that ends in the middle leaves a
// snapshot that the next one finds failed, and files that it collects.

// uploadGrace is how long what is being written, and a child that is being made, may
// take when the daemon is to end.
const uploadGrace = 10 * time.Second

// upload has s, of b, written in the background.
func (m *Node) upload(ctx context.Context, b *instance, s *snapshot, f *freezes.Freeze) error {
	if err := m.store.Apply(ctx, store.Change{Table: store.Snapshots, ID: s.id, Doc: s.record()}); err != nil {
		return err
	}
	m.uploads.Go(func() {
		if err := m.keep(m.uploading, b, s, f, nil); err != nil {
			if m.uploading.Err() != nil {
				err = errDaemonEnded
			}
			m.log.Warn("write a snapshot", "id", s.id, "error", err)
			m.fail(s, err)
			return
		}
		if s.rec.Private != "" {
			m.collectSnapshots() // b may not need it any more
			return
		}
		m.tellOf(api.EventSnapshotted, b, api.Event{Snapshot: s.id})
	})
	return nil
}

var errDaemonEnded = api.Errorf(api.CodeUnavailable, "the daemon ended while it was written")

// endUploads waits for what is being written and made, as long as it may take.
func (m *Node) endUploads() {
	timer := time.AfterFunc(uploadGrace, m.cancelUploads)
	m.uploads.Wait()
	timer.Stop()
	m.cancelUploads()
}

// fail makes s one that cannot be used. It gives up its memory and files, and its name when another one wants that.
func (m *Node) fail(s *snapshot, reason error) {
	s.mu.Lock()
	f := s.freeze
	s.freeze = nil
	s.rec.fail(reason.Error())
	rec := s.rec
	s.mu.Unlock()
	m.freezes.Drop(f)
	if err := m.store.Apply(context.Background(), store.Change{Table: store.Snapshots, ID: s.id, Doc: rec}); err != nil {
		m.log.Error("record that a snapshot failed", "id", s.id, "error", err)
	}
	m.mu.Lock()
	s.settled, s.failed, s.needs = true, true, nil // from here on it may be removed
	m.mu.Unlock()
	if dir, err := m.cfg.Paths.Snapshot(s.id); err == nil {
		os.RemoveAll(dir) // what stays is collected at the next start
	}
	m.collectSnapshots()
}

// fail describes a snapshot that failed.
func (r *snapRecord) fail(reason string) {
	r.Snapshot.State, r.Snapshot.Reason, r.Snapshot.SizeBytes, r.Snapshot.DependsOn = api.SnapshotFailed, reason, 0, nil
	r.Parts, r.Needs = nil, nil
}
