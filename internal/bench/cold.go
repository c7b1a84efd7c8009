package bench

import (
	"context"
	"errors"
	"fmt"

	"ramet.dev/ramet/internal/workload"
)

// coldChildren is the number of children of the first fork of a daemon.
const coldChildren = 100

// cold measures the first fork of a daemon that has just been started. It has no more sentries ready than
// its pool always has; a fork as large as one before finds as many as that one needed.
func (b *bench) cold(ctx context.Context) error {
	if b.opts.Fresh == nil {
		b.note("%s was not measured: no other daemon can be started", caseCold)
		return nil
	}
	return b.repeat(ctx, kind{name: caseCold, source: sourceSmall, n: coldChildren}, b.firstFork)
}

// firstFork forks the first source of a new daemon.
func (b *bench) firstFork(ctx context.Context) (_ sample, err error) {
	c, end, err := b.opts.Fresh(ctx)
	if err != nil {
		return nil, fmt.Errorf("start another daemon: %w", err)
	}
	defer func() { err = errors.Join(err, end()) }()
	health, err := c.Health(ctx)
	if err != nil {
		return nil, err
	}
	usual := *b
	b.c, b.s, b.daemon = c, workload.Open(c, "bench"), health.PID
	defer func() {
		err = errors.Join(err, b.s.Close(ctx))
		b.c, b.s, b.daemon = usual.c, usual.s, usual.daemon
	}()
	ref, err := b.warm(ctx, sourceSmall, 0)
	if err != nil {
		return nil, err
	}
	if err := b.meter().settle(ctx, 0); err != nil { // its pool is full
		return nil, err
	}
	return b.fork(ctx, ref, coldChildren)
}
