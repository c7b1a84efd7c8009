package service

import (
	"context"

	"ramet.dev/ramet/api"
)

// Compare is how sandboxes and snapshots differ, and how differences are merged.
type Compare interface {
	Diff(ctx context.Context, from, to string, req api.DiffRequest) (*api.Diff, error)
	// Merge applies to the sandbox into the file changes of other sandboxes since their
	// merge base. Conflicts are a result, not an error.
	Merge(ctx context.Context, into string, req api.MergeRequest) (*api.MergeResult, error)
}
