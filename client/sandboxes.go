package client

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/httpwire"
)

// Sandboxes manages sandboxes: their life, lineage, differences and timeline.
type Sandboxes struct{ conn *connection }

// Create makes a sandbox and returns it once commands can run in it.
func (s *Sandboxes) Create(ctx context.Context, req api.CreateRequest) (*api.Sandbox, error) {
	return call[*api.Sandbox](ctx, s.conn, http.MethodPost, "/v1/sandboxes", nil, req)
}

// Get returns a sandbox.
func (s *Sandboxes) Get(ctx context.Context, ref string, opts ...Option) (*api.Sandbox, error) {
	return on[*api.Sandbox](ctx, s.conn, http.MethodGet, "sandboxes", ref, "", queryOf(opts), nil)
}

// List returns all sandboxes that match, the oldest first.
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

// Destroy ends all processes of a sandbox and removes its files.
func (s *Sandboxes) Destroy(ctx context.Context, ref string, opts ...Option) error {
	_, err := on[struct{}](ctx, s.conn, http.MethodDelete, "sandboxes", ref, "", queryOf(opts), nil)
	return err
}

// Pause stops the processes of a sandbox. Their memory stays.
func (s *Sandboxes) Pause(ctx context.Context, ref string) (*api.Sandbox, error) {
	return on[*api.Sandbox](ctx, s.conn, http.MethodPost, "sandboxes", ref, "/pause", nil, nil)
}

// Resume continues the processes of a paused sandbox.
func (s *Sandboxes) Resume(ctx context.Context, ref string) (*api.Sandbox, error) {
	return on[*api.Sandbox](ctx, s.conn, http.MethodPost, "sandboxes", ref, "/resume", nil, nil)
}

// Hibernate writes a sandbox to disk and frees its memory.
func (s *Sandboxes) Hibernate(ctx context.Context, ref string) (*api.Sandbox, error) {
	return on[*api.Sandbox](ctx, s.conn, http.MethodPost, "sandboxes", ref, "/hibernate", nil, nil)
}

// Wake brings a hibernated sandbox back to memory and continues its processes.
func (s *Sandboxes) Wake(ctx context.Context, ref string) (*api.Sandbox, error) {
	return on[*api.Sandbox](ctx, s.conn, http.MethodPost, "sandboxes", ref, "/wake", nil, nil)
}

// Trace returns what the kernel of a sandbox does: tasks, stacks and the end of its log. It needs a token of scope
// admin, and takes up to 5 s if the kernel hangs.
func (s *Sandboxes) Trace(ctx context.Context, ref string) (*api.Trace, error) {
	return on[*api.Trace](ctx, s.conn, http.MethodGet, "sandboxes", ref, "/trace", nil, nil)
}

// Stats returns the memory, disk and processor time that a sandbox uses.
func (s *Sandboxes) Stats(ctx context.Context, ref string) (*api.Stats, error) {
	return on[*api.Stats](ctx, s.conn, http.MethodGet, "sandboxes", ref, "/stats", nil, nil)
}

// Fork makes children of a running sandbox. A child that failed has an error in its entry of the
// result; the error of the call says that there is no child at all.
func (s *Sandboxes) Fork(ctx context.Context, ref string, req api.ForkRequest) (*api.ForkResult, error) {
	return on[*api.ForkResult](ctx, s.conn, http.MethodPost, "sandboxes", ref, "/fork", nil, req)
}

// Promote gives the state of a child to its parent, and returns the parent.
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

// Merge applies to the sandbox into what others changed in their files since their merge base.
// Conflicts are in the result.
func (s *Sandboxes) Merge(ctx context.Context, into string, req api.MergeRequest) (*api.MergeResult, error) {
	return on[*api.MergeResult](ctx, s.conn, http.MethodPost, "sandboxes", into, "/merge", nil, req)
}

// Tree returns the lineage below ref, or all lineages if ref is empty.
func (s *Sandboxes) Tree(ctx context.Context, ref string, opts ...Option) ([]*api.TreeNode, error) {
	query := queryOf(opts)
	if ref != "" {
		query.Set("sandbox", ref)
	}
	l, err := get[httpwire.List[*api.TreeNode]](ctx, s.conn, "/v1/tree", query)
	return l.Items, err
}

// Rollback returns a sandbox to a snapshot of it.
func (s *Sandboxes) Rollback(ctx context.Context, ref, snap string) (*api.Sandbox, error) {
	return on[*api.Sandbox](ctx, s.conn, http.MethodPost, "sandboxes", ref, "/rollback", nil, httpwire.RollbackRequest{Snapshot: snap})
}

// Export copies the files of a sandbox or snapshot to w, in the requested format. If it fails,
// w has got a part of them.
func (s *Sandboxes) Export(ctx context.Context, ref string, req api.ExportRequest, w io.Writer) error {
	query := url.Values{"format": {string(req.Format)}}
	if req.Gzip {
		query.Set("gzip", "1")
	}
	return s.conn.download(ctx, "sandboxes", ref, "/export", query, w)
}

// download copies an archive to w.
func (c *connection) download(ctx context.Context, kind, ref, rest string, query url.Values, w io.Writer) error {
	p, err := path(kind, ref, rest)
	if err != nil {
		return err
	}
	resp, err := c.send(ctx, http.MethodGet, p, query, nil, "*/*", nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	in := &source{Reader: resp.Body}
	_, err = io.CopyBuffer(struct{ io.Writer }{w}, in, make([]byte, exportBuffer))
	if in.err != nil {
		return connectionError(ctx, in.err)
	}
	if err != nil {
		return fmt.Errorf("write archive: %w", err)
	}
	return nil
}

// exportBuffer is how much of an export is copied at once, in bytes.
const exportBuffer = 256 << 10
