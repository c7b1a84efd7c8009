package service

import (
	"context"

	"ramet.dev/ramet/api"
)

// Secrets are texts that the gateway puts into requests, so that no sandbox has them. They are the
// tenant's of the caller. No method returns a value.
type Secrets interface {
	// Secrets returns the secrets in the order of their names.
	Secrets(ctx context.Context) ([]api.Secret, error)
	// SetSecret makes a secret or replaces it. Requests that begin after it has returned have the new
	// value.
	SetSecret(ctx context.Context, name string, req api.SecretRequest) (*api.Secret, error)
	// RemoveSecret removes a secret. Names whose rules need it are not reached any more.
	RemoveSecret(ctx context.Context, name string) error
}

// Held are requests of sandboxes that wait for a decision.
type Held interface {
	// HeldRequests returns the requests of a sandbox that are or were held, in the order in which they
	// came.
	HeldRequests(ctx context.Context, ref string) ([]api.HeldRequest, error)
	// ReleaseHeld sends one request, or all that wait, and waits for the answers. It returns what there
	// is then.
	ReleaseHeld(ctx context.Context, ref string, req api.HeldRelease) ([]api.HeldRequest, error)
	// DropHeld makes sure that a request is never sent, or all are not if id is empty.
	DropHeld(ctx context.Context, ref, id string) ([]api.HeldRequest, error)
}
