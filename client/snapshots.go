package client

import (
	"context"
	"net/http"
	"net/url"

	"ramet.dev/ramet/api"
)

// Snapshots manages snapshots of sandboxes.
type Snapshots struct{ conn *connection }

// Create makes a snapshot of the present state of a running sandbox.
func (s *Snapshots) Create(ctx context.Context, ref string, req api.SnapshotRequest) (*api.Snapshot, error) {
	return on[*api.Snapshot](ctx, s.conn, http.MethodPost, "sandboxes", ref, "/snapshots", nil, req)
}

// List returns all snapshots, the oldest first.
func (s *Snapshots) List(ctx context.Context, opts ...Option) ([]api.Snapshot, error) {
	return all[api.Snapshot](ctx, s.conn, "/v1/snapshots", queryOf(opts))
}

// ListOf returns the snapshots of the sandbox with this id, oldest first.
func (s *Snapshots) ListOf(ctx context.Context, id string) ([]api.Snapshot, error) {
	return all[api.Snapshot](ctx, s.conn, "/v1/snapshots", url.Values{"sandbox": {id}})
}

// Get returns a snapshot.
func (s *Snapshots) Get(ctx context.Context, ref string, opts ...Option) (*api.Snapshot, error) {
	return on[*api.Snapshot](ctx, s.conn, http.MethodGet, "snapshots", ref, "", queryOf(opts), nil)
}

// Delete deletes a snapshot, which fails while others depend on it unless how says what to do with them.
func (s *Snapshots) Delete(ctx context.Context, ref string, how api.SnapshotDeletion, opts ...Option) error {
	query := queryOf(opts)
	if how.Cascade {
		query.Set("cascade", "true")
	}
	if how.Flatten {
		query.Set("flatten", "true")
	}
	_, err := on[struct{}](ctx, s.conn, http.MethodDelete, "snapshots", ref, "", query, nil)
	return err
}

// Verify compares all stored parts of a snapshot with their digests.
func (s *Snapshots) Verify(ctx context.Context, ref string) (*api.Snapshot, error) {
	return on[*api.Snapshot](ctx, s.conn, http.MethodPost, "snapshots", ref, "/verify", nil, nil)
}

// Restore makes sandboxes from a snapshot.
func (s *Snapshots) Restore(ctx context.Context, ref string, req api.RestoreRequest) (*api.ForkResult, error) {
	return on[*api.ForkResult](ctx, s.conn, http.MethodPost, "snapshots", ref, "/restore", nil, req)
}
