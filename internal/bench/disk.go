package bench

import (
	"context"
	"fmt"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/workload"
)

// disk writes snapshots to disk and restores n sandboxes from each.
func (b *bench) disk(ctx context.Context, ref string, p plan, n int) error {
	b.progress("snapshot-disk and restore-disk: source %d MiB, n %d", p.mib, n)
	var snapshots, restores []sample
	for range b.opts.Runs {
		c, err := b.meter().Start(ctx)
		if err != nil {
			return err
		}
		began := time.Now()
		snap, err := b.s.Snapshot(ctx, ref)
		if err != nil {
			return fmt.Errorf("snapshot-disk: %w", err)
		}
		s := sample{pauseMS: snap.PauseMS, returnMS: millis(time.Since(began))}
		if err := stop(ctx, c, s, 1, 0); err != nil {
			return err
		}
		snapshots = append(snapshots, s)
		r, err := b.children(ctx, n, func(ctx context.Context) (*workload.Forked, error) { return b.s.Restore(ctx, snap.ID, n) })
		if err != nil {
			return fmt.Errorf("restore-disk: %w", err)
		}
		delete(r, pauseMS) // a restore pauses nothing
		restores = append(restores, r)
		if err := b.c.Snapshots.Delete(ctx, snap.ID, api.SnapshotDeletion{}); err != nil {
			return err
		}
	}
	if n == 1 {
		b.add(kind{name: caseSnapshot, source: p.mib, n: 1, files: p.files}, snapshots)
	}
	b.add(kind{name: caseRestore, source: p.mib, n: n, files: p.files}, restores)
	return nil
}
