package service

import (
	"context"
	"io"

	"ramet.dev/ramet/api"
)

// Files is the files in sandboxes. A path may be any bytes: the implementation judges
// whether they are a path.
type Files interface {
	StatFile(ctx context.Context, ref string, f api.FileRef) (*api.FileInfo, error)
	// OpenFile opens a regular file for reading until ctx ends.
	OpenFile(ctx context.Context, ref string, f api.FileRef) (OpenFile, error)
	// WriteFile writes the bytes of from to a file. An error of from, or the end of ctx,
	// leaves an atomic write undone.
	WriteFile(ctx context.Context, ref string, req api.WriteRequest, from io.Reader) (*api.FileInfo, error)
	ChangeFile(ctx context.Context, ref string, c api.FileChange) (*api.FileInfo, error)
	ListFiles(ctx context.Context, ref string, req api.ListRequest) (*api.FileList, error)
	SearchFiles(ctx context.Context, ref string, req api.SearchRequest) (*api.SearchResult, error)
	// ReadArchive writes a file or tree to to as a tar stream. An error that comes before
	// the first write is about the request.
	ReadArchive(ctx context.Context, ref string, f api.FileRef, to io.Writer) error
	WriteArchive(ctx context.Context, ref string, f api.FileRef, parents bool, from io.Reader) (*api.ExtractResult, error)
	// WatchFiles calls each, from one goroutine, until ctx ends or each fails.
	WatchFiles(ctx context.Context, ref string, req api.WatchRequest, each func(api.FileEvents) error) error
}

// OpenFile is a file that is being read.
type OpenFile interface {
	io.ReadSeekCloser
	// Info describes the file when it was opened.
	Info() api.FileInfo
}
