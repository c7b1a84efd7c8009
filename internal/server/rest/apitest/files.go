package apitest

import (
	"context"
	"io"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/service"
)

// StatFile implements service.Files.
func (s *Service) StatFile(ctx context.Context, ref string, f api.FileRef) (*api.FileInfo, error) {
	return call(s.Files != nil, func() (*api.FileInfo, error) { return s.Files.StatFile(ctx, ref, f) })
}

// OpenFile implements service.Files.
func (s *Service) OpenFile(ctx context.Context, ref string, f api.FileRef) (service.OpenFile, error) {
	return call(s.Files != nil, func() (service.OpenFile, error) { return s.Files.OpenFile(ctx, ref, f) })
}

// WriteFile implements service.Files.
func (s *Service) WriteFile(ctx context.Context, ref string, req api.WriteRequest, from io.Reader) (*api.FileInfo, error) {
	return call(s.Files != nil, func() (*api.FileInfo, error) { return s.Files.WriteFile(ctx, ref, req, from) })
}

// ChangeFile implements service.Files.
func (s *Service) ChangeFile(ctx context.Context, ref string, c api.FileChange) (*api.FileInfo, error) {
	return call(s.Files != nil, func() (*api.FileInfo, error) { return s.Files.ChangeFile(ctx, ref, c) })
}

// ListFiles implements service.Files.
func (s *Service) ListFiles(ctx context.Context, ref string, req api.ListRequest) (*api.FileList, error) {
	return call(s.Files != nil, func() (*api.FileList, error) { return s.Files.ListFiles(ctx, ref, req) })
}

// SearchFiles implements service.Files.
func (s *Service) SearchFiles(ctx context.Context, ref string, req api.SearchRequest) (*api.SearchResult, error) {
	return call(s.Files != nil, func() (*api.SearchResult, error) { return s.Files.SearchFiles(ctx, ref, req) })
}

// ReadArchive implements service.Files.
func (s *Service) ReadArchive(ctx context.Context, ref string, f api.FileRef, to io.Writer) error {
	if s.Files == nil {
		return errUnset
	}
	return s.Files.ReadArchive(ctx, ref, f, to)
}

// WriteArchive implements service.Files.
func (s *Service) WriteArchive(ctx context.Context, ref string, f api.FileRef, parents bool, from io.Reader) (*api.ExtractResult, error) {
	return call(s.Files != nil, func() (*api.ExtractResult, error) { return s.Files.WriteArchive(ctx, ref, f, parents, from) })
}

// WatchFiles implements service.Files.
func (s *Service) WatchFiles(ctx context.Context, ref string, req api.WatchRequest, each func(api.FileEvents) error) error {
	if s.Files == nil {
		return errUnset
	}
	return s.Files.WatchFiles(ctx, ref, req, each)
}
