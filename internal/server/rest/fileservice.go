package rest

import (
	"context"
	"io"

	"ramet.dev/ramet/api"
)

// FileService is the part of a Service that is about files in sandboxes. Paths
// are any bytes; whether one is a path is for the service to say.
type FileService interface {
	StatFile(ctx context.Context, ref string, f api.FileRef) (*api.FileInfo, error)
	// OpenFile opens a regular file for reading until ctx ends.
	OpenFile(ctx context.Context, ref string, f api.FileRef) (OpenFile, error)
	// WriteFile makes from the contents of a file. An error of from, or the end of
	// ctx, leaves an atomic write undone.
	WriteFile(ctx context.Context, ref string, req api.WriteRequest, from io.Reader) (*api.FileInfo, error)
	ChangeFile(ctx context.Context, ref string, c api.FileChange) (*api.FileInfo, error)
	ListFiles(ctx context.Context, ref string, req api.ListRequest) (*api.FileList, error)
	SearchFiles(ctx context.Context, ref string, req api.SearchRequest) (*api.SearchResult, error)
	// ReadArchive writes a file or tree as a tar stream to to. An error that
	// came before the first write is about what was asked for.
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
