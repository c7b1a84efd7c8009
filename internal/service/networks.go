package service

import (
	"context"

	"ramet.dev/ramet/api"
)

// Networks is what sandboxes may reach.
type Networks interface {
	// Network returns the network of a sandbox. One without has a closed document.
	Network(ctx context.Context, ref string) (*api.SandboxNetwork, error)
	// SetNetwork replaces it. Connections that it does not allow are cut when it returns. What
	// cannot be enforced is refused, and then nothing has changed.
	SetNetwork(ctx context.Context, ref string, req api.NetworkRequest) (*api.SandboxNetwork, error)
	// TestNetwork judges a connection as if the sandbox asked for it.
	TestNetwork(ctx context.Context, ref string, test api.NetworkTest) (*api.NetworkTestResult, error)
	// NetworkLog calls f with the decisions about a sandbox: those that are kept, and with follow
	// those to come, until the sandbox is destroyed, ctx ends or f fails. It calls began before the first one, once it knows
	// that there is a log.
	NetworkLog(ctx context.Context, ref string, follow bool, began func(), f func(api.NetworkLogEntry) error) error
	// NetworkProfiles returns the profiles that documents may name.
	NetworkProfiles(ctx context.Context) ([]api.NetworkProfile, error)
}
