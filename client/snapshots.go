package client

import (
	"context"
	"io"
	"net/http"
	"net/url"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/httpwire"
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

// Pack copies a snapshot to w in the form in which other machines take it. If it fails, w has got
// a part of it.
func (s *Snapshots) Pack(ctx context.Context, ref string, req api.PackRequest, w io.Writer) error {
	query := url.Values{}
	if req.WithoutImage {
		query.Set("without_image", "true")
	}
	if req.WithEngine {
		query.Set("with_engine", "true")
	}
	if req.Sign {
		query.Set("sign", "true")
	}
	return s.conn.download(ctx, "snapshots", ref, "/pack", query, w)
}

// PackContents lists what a pack of a snapshot contains.
func (s *Snapshots) PackContents(ctx context.Context, ref string) (*api.PackContents, error) {
	return on[*api.PackContents](ctx, s.conn, http.MethodGet, "snapshots", ref, "/pack/contents", nil, nil)
}

// Unpack makes a snapshot of what Pack has copied, here or elsewhere.
func (s *Snapshots) Unpack(ctx context.Context, from io.Reader, req api.UnpackRequest) (*api.Snapshot, error) {
	query := url.Values{}
	for _, key := range req.Trust {
		query.Add("trust", key)
	}
	if req.Name != "" {
		query.Set("name", req.Name)
	}
	return sendBody[*api.Snapshot](ctx, s.conn, http.MethodPost, "/v1/snapshots/unpack", query, nil, "application/x-tar", from)
}

// SigningKey returns the key by which the tenant signs snapshots that leave the machine.
func (s *Snapshots) SigningKey(ctx context.Context) (*api.SigningKey, error) {
	return call[*api.SigningKey](ctx, s.conn, http.MethodGet, "/v1/signing-key", nil, nil)
}

// Push sends a snapshot to a registry. progress is called from the calling goroutine.
func (s *Snapshots) Push(ctx context.Context, ref string, req api.PushRequest, progress func(api.Progress)) (*api.PushResult, error) {
	p, err := path("snapshots", ref, "/push")
	if err != nil {
		return nil, err
	}
	return withProgress[*api.PushResult](ctx, s.conn, p, req, httpwire.EventPushed, progress)
}

// Pull makes a snapshot of one in a registry. progress is called from the calling goroutine.
func (s *Snapshots) Pull(ctx context.Context, req api.PullRequest, progress func(api.Progress)) (*api.Snapshot, error) {
	return withProgress[*api.Snapshot](ctx, s.conn, "/v1/snapshots/pull", req, httpwire.EventSnapshot, progress)
}

// Restore makes sandboxes from a snapshot.
func (s *Snapshots) Restore(ctx context.Context, ref string, req api.RestoreRequest) (*api.ForkResult, error) {
	return on[*api.ForkResult](ctx, s.conn, http.MethodPost, "snapshots", ref, "/restore", nil, req)
}
