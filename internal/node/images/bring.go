package images

import (
	"context"
	"io"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/image"
)

// Carrier is a catalog with the operations that images from other machines need.
type Carrier struct{ *Catalog }

// Describe returns an image by its id, whoever sees it.
func (c Carrier) Describe(id string) (api.Image, error) { return c.cfg.Store.Resolve(id) }

// Bring adds an image that Ramet has made, perhaps on another machine, without a name. The
// caller keeps it with UseImage. added is false if the store had it.
func (c Carrier) Bring(ctx context.Context, r io.Reader, img *api.Image) (added bool, err error) {
	id, err := image.IDOf(img.Digest)
	if err != nil {
		return false, err
	}
	if id != img.ID { // an image that is here would be replaced
		return false, api.Errorf(api.CodeCorrupt, "image %s is not the one that its digest names", img.ID)
	}
	if _, err := c.cfg.Store.Resolve(img.ID); err == nil {
		// Whoever brings an image that is there must have all of it.
		return false, image.Same(ctx, r, img.Digest)
	}
	_, err = c.cfg.Store.Add(ctx, r, image.AddOptions{Digest: img.Digest, Meta: image.Meta{Source: img.Source, Config: *image.ConfigOf(&img.ImageConfig)}})
	return err == nil, err
}

// Forget removes an image, unless it has got a name or something uses it.
func (c Carrier) Forget(id string) {
	if _, err := c.prune(&api.Image{ID: id, Source: "elsewhere"}); err != nil {
		c.cfg.Log.Warn("remove an image", "id", id, "error", err)
	}
}
