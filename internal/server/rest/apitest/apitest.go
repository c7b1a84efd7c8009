package apitest

import (
	"context"
	"net"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/server/rest"
	"ramet.dev/ramet/internal/service"
)

// Service calls its functions. A nil one answers with a CodeUnsupported error.
type Service struct {
	ProcessFuncs
	Files        service.Files
	PortsFunc    func(context.Context, string) ([]api.Port, error)
	DialPortFunc func(context.Context, string, uint16, time.Duration) (service.PortConn, error)
	PublishedFuncs
	ContextFuncs
	TokenFuncs
	Answers
	Audit
	TenantFuncs
	EventsFunc    func(context.Context, api.EventRequest, func(), func(api.Event) error) error
	CreateFunc    func(context.Context, api.CreateRequest) (*api.Sandbox, error)
	GetFunc       func(context.Context, string) (*api.Sandbox, error)
	ListFunc      func(context.Context, api.ListFilter) ([]api.Sandbox, error)
	UpdateFunc    func(context.Context, string, api.UpdateRequest) (*api.Sandbox, error)
	DestroyFunc   func(context.Context, string) error
	PauseFunc     func(context.Context, string) (*api.Sandbox, error)
	ResumeFunc    func(context.Context, string) (*api.Sandbox, error)
	HibernateFunc func(context.Context, string) (*api.Sandbox, error)
	WakeFunc      func(context.Context, string) (*api.Sandbox, error)
	ExecFunc      func(context.Context, string, api.ExecRequest, api.ExecIO) (*api.ExecResult, error)
	StatsFunc     func(context.Context, string) (*api.Stats, error)
	TraceFunc     func(context.Context, string) (*api.Trace, error)
	ForkFunc      func(context.Context, string, api.ForkRequest) (*api.ForkResult, error)
	PromoteFunc   func(context.Context, string) (*api.Sandbox, error)
	DiffFunc      func(context.Context, string, string, api.DiffRequest) (*api.Diff, error)
	MergeFunc     func(context.Context, string, api.MergeRequest) (*api.MergeResult, error)
	TreeFunc      func(context.Context, string) ([]*api.TreeNode, error)
	SnapshotFuncs
	ImageFuncs
	TimelineFuncs
	ExploreFuncs
	NetworkFuncs
	SecretFuncs
	VolumeFuncs
}

var _ service.Service = (*Service)(nil)

var errUnset = api.Errorf(api.CodeUnsupported, "the test sets no function for this")

func call[R any](set bool, f func() (R, error)) (R, error) {
	if !set {
		var zero R
		return zero, errUnset
	}
	return f()
}

// Ports implements service.Ports.
func (s *Service) Ports(ctx context.Context, ref string) ([]api.Port, error) {
	return call(s.PortsFunc != nil, func() ([]api.Port, error) { return s.PortsFunc(ctx, ref) })
}

// DialPort implements service.Ports.
func (s *Service) DialPort(ctx context.Context, ref string, port uint16, wait time.Duration) (service.PortConn, error) {
	return call(s.DialPortFunc != nil, func() (service.PortConn, error) { return s.DialPortFunc(ctx, ref, port, wait) })
}

// Events implements service.Events.
func (s *Service) Events(ctx context.Context, req api.EventRequest, began func(), each func(api.Event) error) error {
	if s.EventsFunc == nil {
		return errUnset
	}
	return s.EventsFunc(ctx, req, began, each)
}

// Create implements service.Service.
func (s *Service) Create(ctx context.Context, req api.CreateRequest) (*api.Sandbox, error) {
	return call(s.CreateFunc != nil, func() (*api.Sandbox, error) { return s.CreateFunc(ctx, req) })
}

// Get implements service.Service.
func (s *Service) Get(ctx context.Context, ref string) (*api.Sandbox, error) {
	return call(s.GetFunc != nil, func() (*api.Sandbox, error) { return s.GetFunc(ctx, ref) })
}

// List implements service.Service.
func (s *Service) List(ctx context.Context, f api.ListFilter) ([]api.Sandbox, error) {
	return call(s.ListFunc != nil, func() ([]api.Sandbox, error) { return s.ListFunc(ctx, f) })
}

// Update implements service.Service.
func (s *Service) Update(ctx context.Context, ref string, req api.UpdateRequest) (*api.Sandbox, error) {
	return call(s.UpdateFunc != nil, func() (*api.Sandbox, error) { return s.UpdateFunc(ctx, ref, req) })
}

// Destroy implements service.Service.
func (s *Service) Destroy(ctx context.Context, ref string) error {
	if s.DestroyFunc == nil {
		return errUnset
	}
	return s.DestroyFunc(ctx, ref)
}

// Pause implements service.Service.
func (s *Service) Pause(ctx context.Context, ref string) (*api.Sandbox, error) {
	return call(s.PauseFunc != nil, func() (*api.Sandbox, error) { return s.PauseFunc(ctx, ref) })
}

// Resume implements service.Service.
func (s *Service) Resume(ctx context.Context, ref string) (*api.Sandbox, error) {
	return call(s.ResumeFunc != nil, func() (*api.Sandbox, error) { return s.ResumeFunc(ctx, ref) })
}

// Hibernate implements service.Service.
func (s *Service) Hibernate(ctx context.Context, ref string) (*api.Sandbox, error) {
	return call(s.HibernateFunc != nil, func() (*api.Sandbox, error) { return s.HibernateFunc(ctx, ref) })
}

// Wake implements service.Service.
func (s *Service) Wake(ctx context.Context, ref string) (*api.Sandbox, error) {
	return call(s.WakeFunc != nil, func() (*api.Sandbox, error) { return s.WakeFunc(ctx, ref) })
}

// Exec implements service.Service.
func (s *Service) Exec(ctx context.Context, ref string, req api.ExecRequest, streams api.ExecIO) (*api.ExecResult, error) {
	return call(s.ExecFunc != nil, func() (*api.ExecResult, error) { return s.ExecFunc(ctx, ref, req, streams) })
}

// Trace implements service.Service.
func (s *Service) Trace(ctx context.Context, ref string) (*api.Trace, error) {
	return call(s.TraceFunc != nil, func() (*api.Trace, error) { return s.TraceFunc(ctx, ref) })
}

// Stats implements service.Service.
func (s *Service) Stats(ctx context.Context, ref string) (*api.Stats, error) {
	return call(s.StatsFunc != nil, func() (*api.Stats, error) { return s.StatsFunc(ctx, ref) })
}

// Fork implements service.Service.
func (s *Service) Fork(ctx context.Context, ref string, req api.ForkRequest) (*api.ForkResult, error) {
	return call(s.ForkFunc != nil, func() (*api.ForkResult, error) { return s.ForkFunc(ctx, ref, req) })
}

// Promote implements service.Service.
func (s *Service) Promote(ctx context.Context, ref string) (*api.Sandbox, error) {
	return call(s.PromoteFunc != nil, func() (*api.Sandbox, error) { return s.PromoteFunc(ctx, ref) })
}

// Diff implements service.Service.
func (s *Service) Diff(ctx context.Context, from, to string, req api.DiffRequest) (*api.Diff, error) {
	return call(s.DiffFunc != nil, func() (*api.Diff, error) { return s.DiffFunc(ctx, from, to, req) })
}

// Merge implements service.Service.
func (s *Service) Merge(ctx context.Context, into string, req api.MergeRequest) (*api.MergeResult, error) {
	return call(s.MergeFunc != nil, func() (*api.MergeResult, error) { return s.MergeFunc(ctx, into, req) })
}

// Tree implements service.Service.
func (s *Service) Tree(ctx context.Context, ref string) ([]*api.TreeNode, error) {
	return call(s.TreeFunc != nil, func() ([]*api.TreeNode, error) { return s.TreeFunc(ctx, ref) })
}

// Serve serves svc on a unix socket until the test ends, when it waits for all
// requests, and returns the socket's path.
func Serve(t testing.TB, svc service.Service) (socket string) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	api := rest.New(rest.Config{Service: svc, Identify: Owner, Version: "test"})
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
