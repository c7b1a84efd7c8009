package service

import (
	"context"
	"io"

	"ramet.dev/ramet/api"
)

// Images is the images that sandboxes start from, and the files of sandboxes as archives and
// new images.
type Images interface {
	Images(ctx context.Context) ([]api.Image, error)
	GetImage(ctx context.Context, ref string) (*api.Image, error)
	RemoveImage(ctx context.Context, ref string) error
	// PruneImages removes images without a name that no sandbox and no image is made of,
	// and what else the request asks for.
	PruneImages(ctx context.Context, req api.PruneRequest) (*api.Pruned, error)
	// CreateImage calls progress from one goroutine at a time, and never after it
	// returned.
	CreateImage(ctx context.Context, req api.ImageRequest, progress func(api.Progress)) (*api.Image, error)
	// Commit makes an image of the files of a sandbox or snapshot. It calls progress as
	// CreateImage does.
	Commit(ctx context.Context, ref string, req api.CommitRequest, progress func(api.Progress)) (*api.Image, error)
	// Export writes the files of a sandbox or snapshot as they are at one moment. An error
	// that comes before the first write is about the request.
	Export(ctx context.Context, ref string, req api.ExportRequest, w io.Writer) error
}
