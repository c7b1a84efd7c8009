package client

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/httpwire"
)

// Sandboxes manages sandboxes: their life, lineage, differences and timeline.
type Sandboxes struct{ conn *connection }

// Snapshots manages snapshots of sandboxes.
type Snapshots struct{ conn *connection }

// Images manages the images that sandboxes start from.
type Images struct{ conn *connection }

// pageSize is the largest page the daemon gives.
const pageSize = 1000

// Option changes what a request is about.
type Option func(url.Values)

// AllTenants has a request be about the things of all tenants, which only operators may
// ask for.
func AllTenants(query url.Values) { query.Set("all_tenants", "true") }

// queryOf returns the query that options make.
func queryOf(opts []Option) url.Values {
	query := url.Values{}
	for _, o := range opts {
		o(query)
	}
	return query
}

// Create makes a sandbox.
func (s *Sandboxes) Create(ctx context.Context, req api.CreateRequest) (*api.Sandbox, error) {
	return call[*api.Sandbox](ctx, s.conn, http.MethodPost, "/v1/sandboxes", nil, req)
}

// Get looks at a sandbox.
func (s *Sandboxes) Get(ctx context.Context, ref string, opts ...Option) (*api.Sandbox, error) {
	return on[*api.Sandbox](ctx, s.conn, http.MethodGet, "sandboxes", ref, "", queryOf(opts), nil)
}

// List returns all sandboxes that match, oldest first.
func (s *Sandboxes) List(ctx context.Context, f api.ListFilter, opts ...Option) ([]api.Sandbox, error) {
	query := queryOf(opts)
	for k, v := range map[string]string{"state": string(f.State), "image": f.Image, "name": f.Name, "parent": f.Parent, "ancestor": f.Ancestor} {
		if v != "" {
			query.Set(k, v)
		}
	}
	for k, v := range f.Metadata {
		query.Add("metadata", k+"="+v)
	}
	return all[api.Sandbox](ctx, s.conn, "/v1/sandboxes", query)
}

// Update changes a sandbox's name, metadata and lifecycle.
func (s *Sandboxes) Update(ctx context.Context, ref string, req api.UpdateRequest) (*api.Sandbox, error) {
	return on[*api.Sandbox](ctx, s.conn, http.MethodPatch, "sandboxes", ref, "", nil, req)
}

// Destroy ends a sandbox.
func (s *Sandboxes) Destroy(ctx context.Context, ref string, opts ...Option) error {
	_, err := on[struct{}](ctx, s.conn, http.MethodDelete, "sandboxes", ref, "", queryOf(opts), nil)
	return err
}

// Pause stops the processes of a sandbox.
func (s *Sandboxes) Pause(ctx context.Context, ref string) (*api.Sandbox, error) {
	return on[*api.Sandbox](ctx, s.conn, http.MethodPost, "sandboxes", ref, "/pause", nil, nil)
}

// Resume lets the processes of a paused sandbox go on.
func (s *Sandboxes) Resume(ctx context.Context, ref string) (*api.Sandbox, error) {
	return on[*api.Sandbox](ctx, s.conn, http.MethodPost, "sandboxes", ref, "/resume", nil, nil)
}

// Hibernate puts a sandbox on disk.
func (s *Sandboxes) Hibernate(ctx context.Context, ref string) (*api.Sandbox, error) {
	return on[*api.Sandbox](ctx, s.conn, http.MethodPost, "sandboxes", ref, "/hibernate", nil, nil)
}

// Wake lets a hibernated sandbox run again.
func (s *Sandboxes) Wake(ctx context.Context, ref string) (*api.Sandbox, error) {
	return on[*api.Sandbox](ctx, s.conn, http.MethodPost, "sandboxes", ref, "/wake", nil, nil)
}

// Stats says what a sandbox uses now.
func (s *Sandboxes) Stats(ctx context.Context, ref string) (*api.Stats, error) {
	return on[*api.Stats](ctx, s.conn, http.MethodGet, "sandboxes", ref, "/stats", nil, nil)
}

// Fork makes children of a running sandbox.
func (s *Sandboxes) Fork(ctx context.Context, ref string, req api.ForkRequest) (*api.ForkResult, error) {
	return on[*api.ForkResult](ctx, s.conn, http.MethodPost, "sandboxes", ref, "/fork", nil, req)
}

// Promote gives a child's state to its parent, which is returned.
func (s *Sandboxes) Promote(ctx context.Context, ref string) (*api.Sandbox, error) {
	return on[*api.Sandbox](ctx, s.conn, http.MethodPost, "sandboxes", ref, "/promote", nil, nil)
}

// Diff compares two sandboxes or snapshots.
func (s *Sandboxes) Diff(ctx context.Context, from, to string, req api.DiffRequest) (*api.Diff, error) {
	query := url.Values{"to": {to}, "path": slices.Clone(req.Paths)}
	if req.Hunks {
		query.Set("hunks", "1")
	}
	if req.Stat {
		query.Set("stat", "1")
	}
	if req.Processes {
		query.Set("processes", "1")
	}
	if req.Variables {
		query.Set("variables", "1")
	}
	return on[*api.Diff](ctx, s.conn, http.MethodGet, "sandboxes", from, "/diff", query, nil)
}

// Merge brings what others changed in their files to the sandbox into.
func (s *Sandboxes) Merge(ctx context.Context, into string, req api.MergeRequest) (*api.MergeResult, error) {
	return on[*api.MergeResult](ctx, s.conn, http.MethodPost, "sandboxes", into, "/merge", nil, req)
}

// Tree returns the lineage below ref, or all of it if ref is empty.
func (s *Sandboxes) Tree(ctx context.Context, ref string, opts ...Option) ([]*api.TreeNode, error) {
	query := queryOf(opts)
	if ref != "" {
		query.Set("sandbox", ref)
	}
	l, err := get[httpwire.List[*api.TreeNode]](ctx, s.conn, "/v1/tree", query)
	return l.Items, err
}

// Create keeps the state of a running sandbox.
func (s *Snapshots) Create(ctx context.Context, ref string, req api.SnapshotRequest) (*api.Snapshot, error) {
	return on[*api.Snapshot](ctx, s.conn, http.MethodPost, "sandboxes", ref, "/snapshots", nil, req)
}

// List returns all snapshots, oldest first.
func (s *Snapshots) List(ctx context.Context, opts ...Option) ([]api.Snapshot, error) {
	return all[api.Snapshot](ctx, s.conn, "/v1/snapshots", queryOf(opts))
}

// ListOf returns the snapshots of the sandbox with this id, oldest first.
func (s *Snapshots) ListOf(ctx context.Context, id string) ([]api.Snapshot, error) {
	return all[api.Snapshot](ctx, s.conn, "/v1/snapshots", url.Values{"sandbox": {id}})
}

// Get looks at a snapshot.
func (s *Snapshots) Get(ctx context.Context, ref string, opts ...Option) (*api.Snapshot, error) {
	return on[*api.Snapshot](ctx, s.conn, http.MethodGet, "snapshots", ref, "", queryOf(opts), nil)
}

// Delete deletes a snapshot.
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

// Verify compares all of a snapshot on disk with its digests.
func (s *Snapshots) Verify(ctx context.Context, ref string) (*api.Snapshot, error) {
	return on[*api.Snapshot](ctx, s.conn, http.MethodPost, "snapshots", ref, "/verify", nil, nil)
}

// Restore makes sandboxes from a snapshot.
func (s *Snapshots) Restore(ctx context.Context, ref string, req api.RestoreRequest) (*api.ForkResult, error) {
	return on[*api.ForkResult](ctx, s.conn, http.MethodPost, "snapshots", ref, "/restore", nil, req)
}

// Rollback returns a sandbox to a snapshot of it.
func (s *Sandboxes) Rollback(ctx context.Context, ref, snap string) (*api.Sandbox, error) {
	return on[*api.Sandbox](ctx, s.conn, http.MethodPost, "sandboxes", ref, "/rollback", nil, httpwire.RollbackRequest{Snapshot: snap})
}

// List returns all images, oldest first.
func (s *Images) List(ctx context.Context, opts ...Option) ([]api.Image, error) {
	return all[api.Image](ctx, s.conn, "/v1/images", queryOf(opts))
}

// Get looks at an image.
func (s *Images) Get(ctx context.Context, ref string) (*api.Image, error) {
	return on[*api.Image](ctx, s.conn, http.MethodGet, "images", ref, "", nil, nil)
}

// Prune removes the images that have no name any more and that nothing is made
// of, and what else is asked for.
func (s *Images) Prune(ctx context.Context, req api.PruneRequest) (*api.Pruned, error) {
	return call[*api.Pruned](ctx, s.conn, http.MethodPost, "/v1/images/prune", nil, req)
}

// Remove removes an image or one of its names.
func (s *Images) Remove(ctx context.Context, ref string) error {
	_, err := on[struct{}](ctx, s.conn, http.MethodDelete, "images", ref, "", nil, nil)
	return err
}

// on makes a request that concerns one resource.
func on[T any](ctx context.Context, c *connection, method, kind, ref, rest string, query url.Values, body any) (T, error) {
	p, err := path(kind, ref, rest)
	if err != nil {
		var zero T
		return zero, err
	}
	return call[T](ctx, c, method, p, query, body)
}

// all collects the pages of a list.
func all[T any](ctx context.Context, c *connection, path string, query url.Values) ([]T, error) {
	query.Set("limit", strconv.Itoa(pageSize))
	items := []T{}
	for {
		page, err := get[httpwire.List[T]](ctx, c, path, query)
		if err != nil {
			return nil, err
		}
		items = append(items, page.Items...)
		if page.NextPageToken == "" {
			return items, nil
		}
		query.Set("page_token", page.NextPageToken)
	}
}
