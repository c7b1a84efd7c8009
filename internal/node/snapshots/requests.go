package snapshots

import (
	"context"
	"slices"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/node/snapdir"
)

// Requests serves the requests of users about existing snapshots.
type Requests struct{ set *Set }

// NewRequests returns the requests for the snapshots of a set.
func NewRequests(set *Set) *Requests { return &Requests{set} }

// Snapshots lists the snapshots that the caller sees, the oldest first.
func (r *Requests) Snapshots(ctx context.Context) ([]api.Snapshot, error) {
	list := []api.Snapshot{}
	for _, s := range r.set.Visible(ctx) {
		list = append(list, s.View())
	}
	slices.SortFunc(list, func(a, b api.Snapshot) int { return a.CreatedAt.Compare(b.CreatedAt) })
	return list, nil
}

// GetSnapshot returns one snapshot.
func (r *Requests) GetSnapshot(ctx context.Context, ref string) (*api.Snapshot, error) {
	s, err := r.set.Find(ctx, ref)
	if err != nil {
		return nil, err
	}
	v := s.View()
	return &v, nil
}

// VerifySnapshot reads all that a snapshot on disk consists of and compares it with
// its digests. One that does not match has failed then.
func (r *Requests) VerifySnapshot(ctx context.Context, ref string) (*api.Snapshot, error) {
	s, err := r.set.Find(ctx, ref)
	if err != nil {
		return nil, err
	}
	switch v := s.View(); {
	case v.State != api.SnapshotReady:
		return nil, api.Errorf(api.CodeWrongState, "snapshot %s is %s, not ready", s.ID, v.State)
	case !v.OnDisk:
		return nil, api.Errorf(api.CodeWrongState, "snapshot %s is in memory only: there is nothing on disk to verify", s.ID)
	}
	err = r.verify(ctx, s)
	if api.CodeOf(err) == api.CodeCorrupt {
		spoil(s, err)
	}
	if err != nil {
		return nil, err
	}
	v := s.View()
	return &v, nil
}

// verify reads all that s consists of and compares it with its digests.
func (r *Requests) verify(ctx context.Context, s *Snapshot) error {
	f, err := s.Open(ctx) // compares the state, and keeps what is read here
	if err != nil {
		return err
	}
	defer r.set.freezes.Drop(f)
	rec := s.Record()
	for _, id := range append([]string{s.ID}, rec.Needs...) {
		x := r.set.Get(id)
		if x == nil {
			return api.Errorf(api.CodeCorrupt, "snapshot %s, which has part of %s, is gone", id, s.ID)
		}
		if err := r.verifyParts(ctx, x.Record()); err != nil {
			return err
		}
	}
	return nil
}

// verifyParts reads the parts of a snapshot and compares them with their digests.
func (r *Requests) verifyParts(ctx context.Context, rec Record) error {
	dir, err := r.set.paths.Snapshot(rec.Snapshot.ID)
	if err != nil {
		return err
	}
	return snapdir.CheckParts(ctx, dir, rec.Snapshot.ID, rec.Parts)
}

// spoil changes the state of s, which is damaged, to failed: nothing may be restored from
// it. Its files stay while other snapshots refer to them, and are checked for those as
// before.
func spoil(s *Snapshot, reason error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.become(api.SnapshotFailed, reason.Error()); err != nil {
		return // it was deleted meanwhile
	}
	s.store("record that a snapshot is damaged")
}
