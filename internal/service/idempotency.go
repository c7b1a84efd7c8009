package service

import (
	"context"
	"time"
)

// Idempotency stores the answers to requests that have an idempotency key. The keys that it
// gets are digests.
type Idempotency interface {
	// Answer returns the stored answer, or nil.
	Answer(ctx context.Context, key string) (*Answer, error)
	KeepAnswer(ctx context.Context, key string, a Answer) error
	ForgetAnswer(ctx context.Context, key string) error
}

// Answer is the stored answer to a request, or the record that the request has begun.
type Answer struct {
	Tenant  string    `json:"tenant,omitempty"` // among whose answers it counts
	Request string    `json:"request"`          // digest of the request
	At      time.Time `json:"at"`
	// Status is 0 as long as the request is not done.
	Status int    `json:"status,omitempty"`
	Type   string `json:"type,omitempty"`
	Body   []byte `json:"body,omitempty"`
	// Left says that the body was too large, or secret.
	Left bool `json:"left,omitempty"`
}
