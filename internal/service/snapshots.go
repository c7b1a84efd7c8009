package service

import (
	"context"
	"io"

	"ramet.dev/ramet/api"
)

// Snapshots is the stored states of sandboxes.
type Snapshots interface {
	Snapshot(ctx context.Context, ref string, req api.SnapshotRequest) (*api.Snapshot, error)
	Snapshots(ctx context.Context) ([]api.Snapshot, error)
	GetSnapshot(ctx context.Context, ref string) (*api.Snapshot, error)
	DeleteSnapshot(ctx context.Context, ref string, how api.SnapshotDeletion) error
	// VerifySnapshot compares all of a snapshot on disk with its digests.
	VerifySnapshot(ctx context.Context, ref string) (*api.Snapshot, error)
	// Restore makes sandboxes from a snapshot. Failed ones are reported as by
	// Sandboxes.Fork.
	Restore(ctx context.Context, snapRef string, req api.RestoreRequest) (*api.ForkResult, error)
	// Rollback returns a sandbox to a snapshot of it. The sandbox keeps its id.
	Rollback(ctx context.Context, ref, snapRef string) (*api.Sandbox, error)
	// Pack writes a snapshot to w as the tar of an OCI image layout, for other machines.
	Pack(ctx context.Context, ref string, req api.PackRequest, w io.Writer) error
	// PackContents says what Pack takes along.
	PackContents(ctx context.Context, ref string) (*api.PackContents, error)
	// Unpack makes a snapshot of what Pack has written, here or elsewhere.
	Unpack(ctx context.Context, r io.Reader, req api.UnpackRequest) (*api.Snapshot, error)
	// Push sends a snapshot to a registry, and Pull makes a snapshot of one in a registry.
	Push(ctx context.Context, ref string, req api.PushRequest, progress func(api.Progress)) (*api.PushResult, error)
	Pull(ctx context.Context, req api.PullRequest, progress func(api.Progress)) (*api.Snapshot, error)
	// SigningKey returns the key by which the tenant of the caller signs snapshots.
	SigningKey(ctx context.Context) (*api.SigningKey, error)
}
