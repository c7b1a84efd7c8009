package apitest

import (
	"context"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"ramet.dev/ramet/internal/httpapi"
	"ramet.dev/ramet/internal/sandbox"
)

// Service calls its functions. A nil one answers with a CodeUnsupported error.
type Service struct {
	ProcessFuncs
	Files        httpapi.FileService
	PortsFunc    func(context.Context, string) ([]sandbox.Port, error)
	DialPortFunc func(context.Context, string, uint16, time.Duration) (httpapi.PortConn, error)
	ContextFuncs
	TokenFuncs
	Answers
	Audit
	TenantFuncs
	EventsFunc         func(context.Context, sandbox.EventRequest, func(), func(sandbox.Event) error) error
	CreateFunc         func(context.Context, sandbox.CreateRequest) (*sandbox.Sandbox, error)
	GetFunc            func(context.Context, string) (*sandbox.Sandbox, error)
	ListFunc           func(context.Context, sandbox.ListFilter) ([]sandbox.Sandbox, error)
	UpdateFunc         func(context.Context, string, sandbox.UpdateRequest) (*sandbox.Sandbox, error)
	DestroyFunc        func(context.Context, string) error
	PauseFunc          func(context.Context, string) (*sandbox.Sandbox, error)
	ResumeFunc         func(context.Context, string) (*sandbox.Sandbox, error)
	HibernateFunc      func(context.Context, string) (*sandbox.Sandbox, error)
	WakeFunc           func(context.Context, string) (*sandbox.Sandbox, error)
	ExecFunc           func(context.Context, string, sandbox.ExecRequest, httpapi.ExecIO) (*sandbox.ExecResult, error)
	StatsFunc          func(context.Context, string) (*sandbox.Stats, error)
	ForkFunc           func(context.Context, string, sandbox.ForkRequest) (*sandbox.ForkResult, error)
	PromoteFunc        func(context.Context, string) (*sandbox.Sandbox, error)
	DiffFunc           func(context.Context, string, string, sandbox.DiffRequest) (*sandbox.Diff, error)
	MergeFunc          func(context.Context, string, sandbox.MergeRequest) (*sandbox.MergeResult, error)
	ExportFunc         func(context.Context, string, sandbox.ExportRequest, io.Writer) error
	CommitFunc         func(context.Context, string, sandbox.CommitRequest, func(sandbox.Progress)) (*sandbox.Image, error)
	TreeFunc           func(context.Context, string) ([]*sandbox.TreeNode, error)
	SnapshotFunc       func(context.Context, string, sandbox.SnapshotRequest) (*sandbox.Snapshot, error)
	SnapshotsFunc      func(context.Context) ([]sandbox.Snapshot, error)
	GetSnapshotFunc    func(context.Context, string) (*sandbox.Snapshot, error)
	DeleteSnapshotFunc func(context.Context, string, sandbox.SnapshotDeletion) error
	VerifySnapshotFunc func(context.Context, string) (*sandbox.Snapshot, error)
	RestoreFunc        func(context.Context, string, sandbox.RestoreRequest) (*sandbox.ForkResult, error)
	RollbackFunc       func(context.Context, string, string) (*sandbox.Sandbox, error)
	TimelineFuncs
	ImagesFunc      func(context.Context) ([]sandbox.Image, error)
	GetImageFunc    func(context.Context, string) (*sandbox.Image, error)
	RemoveImageFunc func(context.Context, string) error
	PruneImagesFunc func(context.Context, sandbox.PruneRequest) (*sandbox.Pruned, error)
	CreateImageFunc func(context.Context, sandbox.ImageRequest, func(sandbox.Progress)) (*sandbox.Image, error)
}

var _ httpapi.Service = (*Service)(nil)

var errUnset = sandbox.Errorf(sandbox.CodeUnsupported, "the test sets no function for this")

func call[R any](set bool, f func() (R, error)) (R, error) {
	if !set {
		var zero R
		return zero, errUnset
	}
	return f()
}

// Ports implements httpapi.PortService.
func (s *Service) Ports(ctx context.Context, ref string) ([]sandbox.Port, error) {
	return call(s.PortsFunc != nil, func() ([]sandbox.Port, error) { return s.PortsFunc(ctx, ref) })
}

// DialPort implements httpapi.PortService.
func (s *Service) DialPort(ctx context.Context, ref string, port uint16, wait time.Duration) (httpapi.PortConn, error) {
	return call(s.DialPortFunc != nil, func() (httpapi.PortConn, error) { return s.DialPortFunc(ctx, ref, port, wait) })
}

// Events implements httpapi.EventService.
func (s *Service) Events(ctx context.Context, req sandbox.EventRequest, began func(), each func(sandbox.Event) error) error {
	if s.EventsFunc == nil {
		return errUnset
	}
	return s.EventsFunc(ctx, req, began, each)
}

// Create implements httpapi.Service.
func (s *Service) Create(ctx context.Context, req sandbox.CreateRequest) (*sandbox.Sandbox, error) {
	return call(s.CreateFunc != nil, func() (*sandbox.Sandbox, error) { return s.CreateFunc(ctx, req) })
}

// Get implements httpapi.Service.
func (s *Service) Get(ctx context.Context, ref string) (*sandbox.Sandbox, error) {
	return call(s.GetFunc != nil, func() (*sandbox.Sandbox, error) { return s.GetFunc(ctx, ref) })
}

// List implements httpapi.Service.
func (s *Service) List(ctx context.Context, f sandbox.ListFilter) ([]sandbox.Sandbox, error) {
	return call(s.ListFunc != nil, func() ([]sandbox.Sandbox, error) { return s.ListFunc(ctx, f) })
}

// Update implements httpapi.Service.
func (s *Service) Update(ctx context.Context, ref string, req sandbox.UpdateRequest) (*sandbox.Sandbox, error) {
	return call(s.UpdateFunc != nil, func() (*sandbox.Sandbox, error) { return s.UpdateFunc(ctx, ref, req) })
}

// Destroy implements httpapi.Service.
func (s *Service) Destroy(ctx context.Context, ref string) error {
	if s.DestroyFunc == nil {
		return errUnset
	}
	return s.DestroyFunc(ctx, ref)
}

// Pause implements httpapi.Service.
func (s *Service) Pause(ctx context.Context, ref string) (*sandbox.Sandbox, error) {
	return call(s.PauseFunc != nil, func() (*sandbox.Sandbox, error) { return s.PauseFunc(ctx, ref) })
}

// Resume implements httpapi.Service.
func (s *Service) Resume(ctx context.Context, ref string) (*sandbox.Sandbox, error) {
	return call(s.ResumeFunc != nil, func() (*sandbox.Sandbox, error) { return s.ResumeFunc(ctx, ref) })
}

// Hibernate implements httpapi.Service.
func (s *Service) Hibernate(ctx context.Context, ref string) (*sandbox.Sandbox, error) {
	return call(s.HibernateFunc != nil, func() (*sandbox.Sandbox, error) { return s.HibernateFunc(ctx, ref) })
}

// Wake implements httpapi.Service.
func (s *Service) Wake(ctx context.Context, ref string) (*sandbox.Sandbox, error) {
	return call(s.WakeFunc != nil, func() (*sandbox.Sandbox, error) { return s.WakeFunc(ctx, ref) })
}

// Exec implements httpapi.Service.
func (s *Service) Exec(ctx context.Context, ref string, req sandbox.ExecRequest, streams httpapi.ExecIO) (*sandbox.ExecResult, error) {
	return call(s.ExecFunc != nil, func() (*sandbox.ExecResult, error) { return s.ExecFunc(ctx, ref, req, streams) })
}

// Stats implements httpapi.Service.
func (s *Service) Stats(ctx context.Context, ref string) (*sandbox.Stats, error) {
	return call(s.StatsFunc != nil, func() (*sandbox.Stats, error) { return s.StatsFunc(ctx, ref) })
}

// Fork implements httpapi.Service.
func (s *Service) Fork(ctx context.Context, ref string, req sandbox.ForkRequest) (*sandbox.ForkResult, error) {
	return call(s.ForkFunc != nil, func() (*sandbox.ForkResult, error) { return s.ForkFunc(ctx, ref, req) })
}

// Promote implements httpapi.Service.
func (s *Service) Promote(ctx context.Context, ref string) (*sandbox.Sandbox, error) {
	return call(s.PromoteFunc != nil, func() (*sandbox.Sandbox, error) { return s.PromoteFunc(ctx, ref) })
}

// Diff implements httpapi.Service.
func (s *Service) Diff(ctx context.Context, from, to string, req sandbox.DiffRequest) (*sandbox.Diff, error) {
	return call(s.DiffFunc != nil, func() (*sandbox.Diff, error) { return s.DiffFunc(ctx, from, to, req) })
}

// Merge implements httpapi.Service.
func (s *Service) Merge(ctx context.Context, into string, req sandbox.MergeRequest) (*sandbox.MergeResult, error) {
	return call(s.MergeFunc != nil, func() (*sandbox.MergeResult, error) { return s.MergeFunc(ctx, into, req) })
}

// Tree implements httpapi.Service.
func (s *Service) Tree(ctx context.Context, ref string) ([]*sandbox.TreeNode, error) {
	return call(s.TreeFunc != nil, func() ([]*sandbox.TreeNode, error) { return s.TreeFunc(ctx, ref) })
}

// Snapshot implements httpapi.Service.
func (s *Service) Snapshot(ctx context.Context, ref string, req sandbox.SnapshotRequest) (*sandbox.Snapshot, error) {
	return call(s.SnapshotFunc != nil, func() (*sandbox.Snapshot, error) { return s.SnapshotFunc(ctx, ref, req) })
}

// Snapshots implements httpapi.Service.
func (s *Service) Snapshots(ctx context.Context) ([]sandbox.Snapshot, error) {
	return call(s.SnapshotsFunc != nil, func() ([]sandbox.Snapshot, error) { return s.SnapshotsFunc(ctx) })
}

// GetSnapshot implements httpapi.Service.
func (s *Service) GetSnapshot(ctx context.Context, ref string) (*sandbox.Snapshot, error) {
	return call(s.GetSnapshotFunc != nil, func() (*sandbox.Snapshot, error) { return s.GetSnapshotFunc(ctx, ref) })
}

// DeleteSnapshot implements httpapi.Service.
func (s *Service) DeleteSnapshot(ctx context.Context, ref string, how sandbox.SnapshotDeletion) error {
	if s.DeleteSnapshotFunc == nil {
		return errUnset
	}
	return s.DeleteSnapshotFunc(ctx, ref, how)
}

// VerifySnapshot implements httpapi.Service.
func (s *Service) VerifySnapshot(ctx context.Context, ref string) (*sandbox.Snapshot, error) {
	return call(s.VerifySnapshotFunc != nil, func() (*sandbox.Snapshot, error) { return s.VerifySnapshotFunc(ctx, ref) })
}

// Export implements httpapi.Service.
func (s *Service) Export(ctx context.Context, ref string, req sandbox.ExportRequest, w io.Writer) error {
	if s.ExportFunc == nil {
		return errUnset
	}
	return s.ExportFunc(ctx, ref, req, w)
}

// Commit implements httpapi.Service.
func (s *Service) Commit(ctx context.Context, ref string, req sandbox.CommitRequest, progress func(sandbox.Progress)) (*sandbox.Image, error) {
	return call(s.CommitFunc != nil, func() (*sandbox.Image, error) { return s.CommitFunc(ctx, ref, req, progress) })
}

// Restore implements httpapi.Service.
func (s *Service) Restore(ctx context.Context, ref string, req sandbox.RestoreRequest) (*sandbox.ForkResult, error) {
	return call(s.RestoreFunc != nil, func() (*sandbox.ForkResult, error) { return s.RestoreFunc(ctx, ref, req) })
}

// Rollback implements httpapi.Service.
func (s *Service) Rollback(ctx context.Context, ref, snap string) (*sandbox.Sandbox, error) {
	return call(s.RollbackFunc != nil, func() (*sandbox.Sandbox, error) { return s.RollbackFunc(ctx, ref, snap) })
}

// Images implements httpapi.Service.
func (s *Service) Images(ctx context.Context) ([]sandbox.Image, error) {
	return call(s.ImagesFunc != nil, func() ([]sandbox.Image, error) { return s.ImagesFunc(ctx) })
}

// GetImage implements httpapi.Service.
func (s *Service) GetImage(ctx context.Context, ref string) (*sandbox.Image, error) {
	return call(s.GetImageFunc != nil, func() (*sandbox.Image, error) { return s.GetImageFunc(ctx, ref) })
}

// PruneImages implements httpapi.Service.
func (s *Service) PruneImages(ctx context.Context, req sandbox.PruneRequest) (*sandbox.Pruned, error) {
	return call(s.PruneImagesFunc != nil, func() (*sandbox.Pruned, error) { return s.PruneImagesFunc(ctx, req) })
}

// RemoveImage implements httpapi.Service.
func (s *Service) RemoveImage(ctx context.Context, ref string) error {
	if s.RemoveImageFunc == nil {
		return errUnset
	}
	return s.RemoveImageFunc(ctx, ref)
}

// CreateImage implements httpapi.Service.
func (s *Service) CreateImage(ctx context.Context, req sandbox.ImageRequest, progress func(sandbox.Progress)) (*sandbox.Image, error) {
	return call(s.CreateImageFunc != nil, func() (*sandbox.Image, error) { return s.CreateImageFunc(ctx, req, progress) })
}

// Serve serves svc on a unix socket until the test ends, when it waits for all
// requests, and returns the socket's path.
func Serve(t testing.TB, svc httpapi.Service) (socket string) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	api := httpapi.New(httpapi.Config{Service: svc, Identify: Owner, Version: "test"})
	ctx, cancel := context.WithCancel(context.Background())
	srv := &http.Server{Handler: api, BaseContext: func(net.Listener) context.Context { return ctx }}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(l) }()
	t.Cleanup(func() {
		cancel()
		if err := srv.Close(); err != nil {
			t.Errorf("close server: %v", err)
		}
		if err := <-done; err != http.ErrServerClosed {
			t.Errorf("serve: %v", err)
		}
		api.Wait()
	})
	return socket
}
