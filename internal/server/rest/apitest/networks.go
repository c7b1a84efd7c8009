package apitest

import (
	"context"

	"ramet.dev/ramet/api"
)

// NetworkFuncs implement service.Networks.
type NetworkFuncs struct {
	NetworkFunc         func(context.Context, string) (*api.SandboxNetwork, error)
	SetNetworkFunc      func(context.Context, string, api.NetworkRequest) (*api.SandboxNetwork, error)
	TestNetworkFunc     func(context.Context, string, api.NetworkTest) (*api.NetworkTestResult, error)
	NetworkLogFunc      func(context.Context, string, bool, func(), func(api.NetworkLogEntry) error) error
	NetworkProfilesFunc func(context.Context) ([]api.NetworkProfile, error)
}

// Network implements service.Networks.
func (s *NetworkFuncs) Network(ctx context.Context, ref string) (*api.SandboxNetwork, error) {
	return call(s.NetworkFunc != nil, func() (*api.SandboxNetwork, error) { return s.NetworkFunc(ctx, ref) })
}

// SetNetwork implements service.Networks.
func (s *NetworkFuncs) SetNetwork(ctx context.Context, ref string, req api.NetworkRequest) (*api.SandboxNetwork, error) {
	return call(s.SetNetworkFunc != nil, func() (*api.SandboxNetwork, error) { return s.SetNetworkFunc(ctx, ref, req) })
}

// TestNetwork implements service.Networks.
func (s *NetworkFuncs) TestNetwork(ctx context.Context, ref string, test api.NetworkTest) (*api.NetworkTestResult, error) {
	return call(s.TestNetworkFunc != nil, func() (*api.NetworkTestResult, error) { return s.TestNetworkFunc(ctx, ref, test) })
}

// NetworkLog implements service.Networks.
func (s *NetworkFuncs) NetworkLog(ctx context.Context, ref string, follow bool, began func(), f func(api.NetworkLogEntry) error) error {
	if s.NetworkLogFunc == nil {
		return errUnset
	}
	return s.NetworkLogFunc(ctx, ref, follow, began, f)
}

// NetworkProfiles implements service.Networks.
func (s *NetworkFuncs) NetworkProfiles(ctx context.Context) ([]api.NetworkProfile, error) {
	return call(s.NetworkProfilesFunc != nil, func() ([]api.NetworkProfile, error) { return s.NetworkProfilesFunc(ctx) })
}
