package client

import (
	"context"
	"net/http"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/httpwire"
)

// Volumes manages directories that outlive sandboxes and that several share. A ref is an id or a
// name.
type Volumes struct{ conn *connection }

// Create makes a volume. A name that is taken is an error of CodeNameTaken.
func (v *Volumes) Create(ctx context.Context, req api.VolumeRequest) (*api.Volume, error) {
	return call[*api.Volume](ctx, v.conn, http.MethodPost, "/v1/volumes", nil, req)
}

// List returns the volumes in the order of their names.
func (v *Volumes) List(ctx context.Context) ([]api.Volume, error) {
	l, err := get[httpwire.List[api.Volume]](ctx, v.conn, "/v1/volumes", nil)
	return l.Items, err
}

// Get returns a volume.
func (v *Volumes) Get(ctx context.Context, ref string) (*api.Volume, error) {
	return on[*api.Volume](ctx, v.conn, http.MethodGet, "volumes", ref, "", nil, nil)
}

// Remove removes a volume with its files. One that a sandbox has is an error of CodeConflict.
func (v *Volumes) Remove(ctx context.Context, ref string) error {
	_, err := on[struct{}](ctx, v.conn, http.MethodDelete, "volumes", ref, "", nil, nil)
	return err
}
