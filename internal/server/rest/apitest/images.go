package apitest

import (
	"context"
	"io"

	"ramet.dev/ramet/api"
)

// ImageFuncs is a service.Images made of functions. A nil one answers with a CodeUnsupported error.
type ImageFuncs struct {
	ImagesFunc      func(context.Context) ([]api.Image, error)
	GetImageFunc    func(context.Context, string) (*api.Image, error)
	RemoveImageFunc func(context.Context, string) error
	PruneImagesFunc func(context.Context, api.PruneRequest) (*api.Pruned, error)
	CreateImageFunc func(context.Context, api.ImageRequest, func(api.Progress)) (*api.Image, error)
	CommitFunc      func(context.Context, string, api.CommitRequest, func(api.Progress)) (*api.Image, error)
	ExportFunc      func(context.Context, string, api.ExportRequest, io.Writer) error
}

// Images implements service.Images.
func (s *ImageFuncs) Images(ctx context.Context) ([]api.Image, error) {
	return call(s.ImagesFunc != nil, func() ([]api.Image, error) { return s.ImagesFunc(ctx) })
}

// GetImage implements service.Images.
func (s *ImageFuncs) GetImage(ctx context.Context, ref string) (*api.Image, error) {
	return call(s.GetImageFunc != nil, func() (*api.Image, error) { return s.GetImageFunc(ctx, ref) })
}

// RemoveImage implements service.Images.
func (s *ImageFuncs) RemoveImage(ctx context.Context, ref string) error {
	if s.RemoveImageFunc == nil {
		return errUnset
	}
	return s.RemoveImageFunc(ctx, ref)
}

// PruneImages implements service.Images.
func (s *ImageFuncs) PruneImages(ctx context.Context, req api.PruneRequest) (*api.Pruned, error) {
	return call(s.PruneImagesFunc != nil, func() (*api.Pruned, error) { return s.PruneImagesFunc(ctx, req) })
}

// CreateImage implements service.Images.
func (s *ImageFuncs) CreateImage(ctx context.Context, req api.ImageRequest, progress func(api.Progress)) (*api.Image, error) {
	return call(s.CreateImageFunc != nil, func() (*api.Image, error) { return s.CreateImageFunc(ctx, req, progress) })
}

// Commit implements service.Images.
func (s *ImageFuncs) Commit(ctx context.Context, ref string, req api.CommitRequest, progress func(api.Progress)) (*api.Image, error) {
	return call(s.CommitFunc != nil, func() (*api.Image, error) { return s.CommitFunc(ctx, ref, req, progress) })
}

// Export implements service.Images.
func (s *ImageFuncs) Export(ctx context.Context, ref string, req api.ExportRequest, w io.Writer) error {
	if s.ExportFunc == nil {
		return errUnset
	}
	return s.ExportFunc(ctx, ref, req, w)
}
