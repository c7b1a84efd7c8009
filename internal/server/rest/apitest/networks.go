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

// SecretFuncs implement service.Secrets and service.Held.
type SecretFuncs struct {
	SecretsFunc      func(context.Context) ([]api.Secret, error)
	SetSecretFunc    func(context.Context, string, api.SecretRequest) (*api.Secret, error)
	RemoveSecretFunc func(context.Context, string) error
	HeldFunc         func(context.Context, string) ([]api.HeldRequest, error)
	ReleaseFunc      func(context.Context, string, api.HeldRelease) ([]api.HeldRequest, error)
	DropFunc         func(context.Context, string, string) ([]api.HeldRequest, error)
}

// Secrets implements service.Secrets.
func (s *SecretFuncs) Secrets(ctx context.Context) ([]api.Secret, error) {
	return call(s.SecretsFunc != nil, func() ([]api.Secret, error) { return s.SecretsFunc(ctx) })
}

// SetSecret implements service.Secrets.
func (s *SecretFuncs) SetSecret(ctx context.Context, name string, req api.SecretRequest) (*api.Secret, error) {
	return call(s.SetSecretFunc != nil, func() (*api.Secret, error) { return s.SetSecretFunc(ctx, name, req) })
}

// RemoveSecret implements service.Secrets.
func (s *SecretFuncs) RemoveSecret(ctx context.Context, name string) error {
	if s.RemoveSecretFunc == nil {
		return errUnset
	}
	return s.RemoveSecretFunc(ctx, name)
}

// HeldRequests implements service.Held.
func (s *SecretFuncs) HeldRequests(ctx context.Context, ref string) ([]api.HeldRequest, error) {
	return call(s.HeldFunc != nil, func() ([]api.HeldRequest, error) { return s.HeldFunc(ctx, ref) })
}

// ReleaseHeld implements service.Held.
func (s *SecretFuncs) ReleaseHeld(ctx context.Context, ref string, req api.HeldRelease) ([]api.HeldRequest, error) {
	return call(s.ReleaseFunc != nil, func() ([]api.HeldRequest, error) { return s.ReleaseFunc(ctx, ref, req) })
}

// DropHeld implements service.Held.
func (s *SecretFuncs) DropHeld(ctx context.Context, ref, id string) ([]api.HeldRequest, error) {
	return call(s.DropFunc != nil, func() ([]api.HeldRequest, error) { return s.DropFunc(ctx, ref, id) })
}
