package apitest

import (
	"context"
	"io"

	"ramet.dev/ramet/api"
)

// SnapshotFuncs is a service.Snapshots made of functions. A nil one answers with a CodeUnsupported error.
type SnapshotFuncs struct {
	SnapshotFunc       func(context.Context, string, api.SnapshotRequest) (*api.Snapshot, error)
	SnapshotsFunc      func(context.Context) ([]api.Snapshot, error)
	GetSnapshotFunc    func(context.Context, string) (*api.Snapshot, error)
	DeleteSnapshotFunc func(context.Context, string, api.SnapshotDeletion) error
	VerifySnapshotFunc func(context.Context, string) (*api.Snapshot, error)
	RestoreFunc        func(context.Context, string, api.RestoreRequest) (*api.ForkResult, error)
	RollbackFunc       func(context.Context, string, string) (*api.Sandbox, error)
	PackFunc           func(context.Context, string, api.PackRequest, io.Writer) error
	PackContentsFunc   func(context.Context, string) (*api.PackContents, error)
	PushFunc           func(context.Context, string, api.PushRequest, func(api.Progress)) (*api.PushResult, error)
	PullFunc           func(context.Context, api.PullRequest, func(api.Progress)) (*api.Snapshot, error)
	SigningKeyFunc     func(context.Context) (*api.SigningKey, error)
	UnpackFunc         func(context.Context, io.Reader, api.UnpackRequest) (*api.Snapshot, error)
}

// Pack implements service.Snapshots.
func (s *SnapshotFuncs) Pack(ctx context.Context, ref string, req api.PackRequest, w io.Writer) error {
	if s.PackFunc == nil {
		return errUnset
	}
	return s.PackFunc(ctx, ref, req, w)
}

// PackContents implements service.Snapshots.
func (s *SnapshotFuncs) PackContents(ctx context.Context, ref string) (*api.PackContents, error) {
	return call(s.PackContentsFunc != nil, func() (*api.PackContents, error) { return s.PackContentsFunc(ctx, ref) })
}

// Unpack implements service.Snapshots.
func (s *SnapshotFuncs) Unpack(ctx context.Context, r io.Reader, req api.UnpackRequest) (*api.Snapshot, error) {
	return call(s.UnpackFunc != nil, func() (*api.Snapshot, error) { return s.UnpackFunc(ctx, r, req) })
}

// SigningKey implements service.Snapshots.
func (s *SnapshotFuncs) SigningKey(ctx context.Context) (*api.SigningKey, error) {
	return call(s.SigningKeyFunc != nil, func() (*api.SigningKey, error) { return s.SigningKeyFunc(ctx) })
}

// Push implements service.Snapshots.
func (s *SnapshotFuncs) Push(ctx context.Context, ref string, req api.PushRequest, progress func(api.Progress)) (*api.PushResult, error) {
	return call(s.PushFunc != nil, func() (*api.PushResult, error) { return s.PushFunc(ctx, ref, req, progress) })
}

// Pull implements service.Snapshots.
func (s *SnapshotFuncs) Pull(ctx context.Context, req api.PullRequest, progress func(api.Progress)) (*api.Snapshot, error) {
	return call(s.PullFunc != nil, func() (*api.Snapshot, error) { return s.PullFunc(ctx, req, progress) })
}

// Snapshot implements service.Snapshots.
func (s *SnapshotFuncs) Snapshot(ctx context.Context, ref string, req api.SnapshotRequest) (*api.Snapshot, error) {
	return call(s.SnapshotFunc != nil, func() (*api.Snapshot, error) { return s.SnapshotFunc(ctx, ref, req) })
}

// Snapshots implements service.Snapshots.
func (s *SnapshotFuncs) Snapshots(ctx context.Context) ([]api.Snapshot, error) {
	return call(s.SnapshotsFunc != nil, func() ([]api.Snapshot, error) { return s.SnapshotsFunc(ctx) })
}

// GetSnapshot implements service.Snapshots.
func (s *SnapshotFuncs) GetSnapshot(ctx context.Context, ref string) (*api.Snapshot, error) {
	return call(s.GetSnapshotFunc != nil, func() (*api.Snapshot, error) { return s.GetSnapshotFunc(ctx, ref) })
}

// DeleteSnapshot implements service.Snapshots.
func (s *SnapshotFuncs) DeleteSnapshot(ctx context.Context, ref string, how api.SnapshotDeletion) error {
	if s.DeleteSnapshotFunc == nil {
		return errUnset
	}
	return s.DeleteSnapshotFunc(ctx, ref, how)
}

// VerifySnapshot implements service.Snapshots.
func (s *SnapshotFuncs) VerifySnapshot(ctx context.Context, ref string) (*api.Snapshot, error) {
	return call(s.VerifySnapshotFunc != nil, func() (*api.Snapshot, error) { return s.VerifySnapshotFunc(ctx, ref) })
}

// Restore implements service.Snapshots.
func (s *SnapshotFuncs) Restore(ctx context.Context, ref string, req api.RestoreRequest) (*api.ForkResult, error) {
	return call(s.RestoreFunc != nil, func() (*api.ForkResult, error) { return s.RestoreFunc(ctx, ref, req) })
}

// Rollback implements service.Snapshots.
func (s *SnapshotFuncs) Rollback(ctx context.Context, ref, snap string) (*api.Sandbox, error) {
	return call(s.RollbackFunc != nil, func() (*api.Sandbox, error) { return s.RollbackFunc(ctx, ref, snap) })
}
