package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/httpwire"
)

// Images manages the images that sandboxes start from.
type Images struct{ conn *connection }

// List returns all images, the oldest first.
func (s *Images) List(ctx context.Context, opts ...Option) ([]api.Image, error) {
	return all[api.Image](ctx, s.conn, "/v1/images", queryOf(opts))
}

// Get returns an image.
func (s *Images) Get(ctx context.Context, ref string) (*api.Image, error) {
	return on[*api.Image](ctx, s.conn, http.MethodGet, "images", ref, "", nil, nil)
}

// Prune removes the images that have no name and that no sandbox or snapshot is made of, and
// what else the request asks for.
func (s *Images) Prune(ctx context.Context, req api.PruneRequest) (*api.Pruned, error) {
	return call[*api.Pruned](ctx, s.conn, http.MethodPost, "/v1/images/prune", nil, req)
}

// Remove removes an image or one of its names.
func (s *Images) Remove(ctx context.Context, ref string) error {
	_, err := on[struct{}](ctx, s.conn, http.MethodDelete, "images", ref, "", nil, nil)
	return err
}

// Commit makes an image of the files of a sandbox or snapshot. progress is called
// from the calling goroutine.
func (s *Images) Commit(ctx context.Context, ref string, req api.CommitRequest, progress func(api.Progress)) (*api.Image, error) {
	p, err := path("sandboxes", ref, "/commit")
	if err != nil {
		return nil, err
	}
	return s.conn.makeImage(ctx, p, req, progress)
}

// Create builds, imports or pulls an image. progress is called from the
// calling goroutine.
func (s *Images) Create(ctx context.Context, req api.ImageRequest, progress func(api.Progress)) (*api.Image, error) {
	return s.conn.makeImage(ctx, "/v1/images", req, progress)
}

func (c *connection) makeImage(ctx context.Context, path string, req any, progress func(api.Progress)) (*api.Image, error) {
	return withProgress[*api.Image](ctx, c, path, req, httpwire.EventImage, progress)
}

// withProgress sends a request whose answer is an event after those of the progress.
func withProgress[T any](ctx context.Context, c *connection, path string, req any, event string, progress func(api.Progress)) (res T, err error) {
	err = c.events(ctx, http.MethodPost, path, nil, req, func(ev httpwire.Event) (done bool, err error) {
		switch ev.Name {
		case httpwire.EventProgress:
			var p api.Progress
			if err := json.Unmarshal(ev.Data, &p); err != nil {
				return false, fmt.Errorf("decode progress: %w", err)
			}
			progress(p)
		case event:
			return true, json.Unmarshal(ev.Data, &res)
		}
		return false, nil
	})
	return res, err
}
