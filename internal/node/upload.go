package node

import (
	"context"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/node/freezes"
	"ramet.dev/ramet/internal/node/snapshots"
)

// A snapshot that nobody waits for is uploading from the end of its freeze until it is
// on disk. It is restored from live memory meanwhile, whose pins it holds. The record
// says so before the caller is told of it: a daemon that ends in the middle leaves a
// snapshot that the next one finds failed, and files that it collects.

// backgroundGrace is how long what is being written, and a child that is being made, may
// take when the daemon is to end.
const backgroundGrace = 10 * time.Second

// upload has s, of b, written in the background.
func (m *Node) upload(ctx context.Context, b *instance, s *snapshots.Snapshot, f *freezes.Freeze) error {
	if err := m.store.Apply(ctx, s.Stored()); err != nil {
		return err
	}
	m.backgroundWork.Go(func() {
		if err := m.keep(m.background, b, s, f, nil); err != nil {
			if m.background.Err() != nil {
				err = snapshots.ErrDaemonEnded
			}
			m.log.Warn("write a snapshot", "id", s.ID, "error", err)
			s.Fail(err)
			return
		}
		if s.Record().Private != "" {
			m.snapshots.Collect() // b may not need it any more
			return
		}
		m.publish(api.EventSnapshotted, b, api.Event{Snapshot: s.ID})
	})
	return nil
}

// endBackground waits for what is being written and made, as long as it may take.
func (m *Node) endBackground() {
	timer := time.AfterFunc(backgroundGrace, m.cancelBackground)
	m.backgroundWork.Wait()
	timer.Stop()
	m.cancelBackground()
}
