package apitest

import (
	"context"

	"ramet.dev/ramet/api"
)

// PublishedFuncs are the functions of service.PublishedPorts.
type PublishedFuncs struct {
	PublishedPortsFunc func(context.Context, string) ([]api.PublishedPort, error)
	PublishPortFunc    func(context.Context, string, api.PublishRequest) (*api.PublishedPort, error)
	UnpublishPortFunc  func(context.Context, string, int) error
}

// PublishedPorts implements service.PublishedPorts. Without a function no port is published.
func (s *PublishedFuncs) PublishedPorts(ctx context.Context, ref string) ([]api.PublishedPort, error) {
	if s.PublishedPortsFunc == nil {
		return []api.PublishedPort{}, nil
	}
	return s.PublishedPortsFunc(ctx, ref)
}

// PublishPort implements service.PublishedPorts.
func (s *PublishedFuncs) PublishPort(ctx context.Context, ref string, req api.PublishRequest) (*api.PublishedPort, error) {
	return call(s.PublishPortFunc != nil, func() (*api.PublishedPort, error) { return s.PublishPortFunc(ctx, ref, req) })
}

// UnpublishPort implements service.PublishedPorts.
func (s *PublishedFuncs) UnpublishPort(ctx context.Context, ref string, hostPort int) error {
	if s.UnpublishPortFunc == nil {
		return errUnset
	}
	return s.UnpublishPortFunc(ctx, ref, hostPort)
}
