package apitest

import (
	"context"
	"io"

	"ramet.dev/ramet/internal/httpapi"
	"ramet.dev/ramet/internal/sandbox"
)

// StatFile implements httpapi.FileService.
func (s *Service) StatFile(ctx context.Context, ref string, f sandbox.FileRef) (*sandbox.FileInfo, error) {
	return call(s.Files != nil, func() (*sandbox.FileInfo, error) { return s.Files.StatFile(ctx, ref, f) })
}

// OpenFile implements httpapi.FileService.
func (s *Service) OpenFile(ctx context.Context, ref string, f sandbox.FileRef) (httpapi.OpenFile, error) {
	return call(s.Files != nil, func() (httpapi.OpenFile, error) { return s.Files.OpenFile(ctx, ref, f) })
}

// WriteFile implements httpapi.FileService.
func (s *Service) WriteFile(ctx context.Context, ref string, req sandbox.WriteRequest, from io.Reader) (*sandbox.FileInfo, error) {
	return call(s.Files != nil, func() (*sandbox.FileInfo, error) { return s.Files.WriteFile(ctx, ref, req, from) })
}

// ChangeFile implements httpapi.FileService.
func (s *Service) ChangeFile(ctx context.Context, ref string, c sandbox.FileChange) (*sandbox.FileInfo, error) {
	return call(s.Files != nil, func() (*sandbox.FileInfo, error) { return s.Files.ChangeFile(ctx, ref, c) })
}

// ListFiles implements httpapi.FileService.
func (s *Service) ListFiles(ctx context.Context, ref string, req sandbox.ListRequest) (*sandbox.FileList, error) {
	return call(s.Files != nil, func() (*sandbox.FileList, error) { return s.Files.ListFiles(ctx, ref, req) })
}

// SearchFiles implements httpapi.FileService.
func (s *Service) SearchFiles(ctx context.Context, ref string, req sandbox.SearchRequest) (*sandbox.SearchResult, error) {
	return call(s.Files != nil, func() (*sandbox.SearchResult, error) { return s.Files.SearchFiles(ctx, ref, req) })
}

// ReadArchive implements httpapi.FileService.
func (s *Service) ReadArchive(ctx context.Context, ref string, f sandbox.FileRef, to io.Writer) error {
	if s.Files == nil {
		return errUnset
	}
	return s.Files.ReadArchive(ctx, ref, f, to)
}

// WriteArchive implements httpapi.FileService.
func (s *Service) WriteArchive(ctx context.Context, ref string, f sandbox.FileRef, parents bool, from io.Reader) (*sandbox.ExtractResult, error) {
	return call(s.Files != nil, func() (*sandbox.ExtractResult, error) { return s.Files.WriteArchive(ctx, ref, f, parents, from) })
}

// WatchFiles implements httpapi.FileService.
func (s *Service) WatchFiles(ctx context.Context, ref string, req sandbox.WatchRequest, each func(sandbox.FileEvents) error) error {
	if s.Files == nil {
		return errUnset
	}
	return s.Files.WatchFiles(ctx, ref, req, each)
}
