// Package first measures what a daemon does first. It has no more sentries ready then than its pool always
// has; a fork as large as one before finds as many as that one needed.
//
// The package must never know how a daemon is started.
package first

import (
	"context"
	"errors"
	"fmt"

	"ramet.dev/ramet/client"
	"ramet.dev/ramet/internal/workload"
)

// Start starts a daemon that has made nothing yet, and returns what ends it.
type Start func(ctx context.Context) (*client.Client, func() error, error)

// Fork makes n children of the first source of a new daemon. settle waits until the daemon, a process, is
// idle: its pool is full then.
func Fork(ctx context.Context, start Start, settle func(ctx context.Context, daemon int) error, n int) (_ *workload.Forked, err error) {
	c, end, err := start(ctx)
	if err != nil {
		return nil, fmt.Errorf("start another daemon: %w", err)
	}
	defer func() { err = errors.Join(err, end()) }()
	health, err := c.Health(ctx)
	if err != nil {
		return nil, err
	}
	s := workload.Open(c, "bench")
	defer func() { err = errors.Join(err, s.Close(ctx)) }()
	sb, err := s.Create(ctx, workload.PythonImage, "")
	if err != nil {
		return nil, err
	}
	if err := s.Warm(ctx, sb.ID); err != nil {
		return nil, err
	}
	if err := settle(ctx, health.PID); err != nil {
		return nil, err
	}
	return s.Fork(ctx, sb.ID, n, "")
}
