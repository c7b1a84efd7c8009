package bench

import (
	"context"

	"ramet.dev/ramet/internal/bench/first"
)

// coldFork measures the first fork of daemons that have just been started.
func coldFork(ctx context.Context, b *bench) error {
	if b.opts.Fresh == nil {
		b.note("%s was not measured: no other daemon can be started", caseCold)
		return nil
	}
	other := *b
	settle := func(ctx context.Context, daemon int) error {
		other.daemon = daemon
		return other.meter().Settle(ctx, 0)
	}
	return b.repeat(ctx, kind{name: caseCold, source: sourceSmall, n: coldChildren}, func(ctx context.Context) (sample, error) {
		f, err := first.Fork(ctx, b.opts.Fresh, settle, coldChildren)
		if err != nil {
			return nil, err
		}
		return times(f), nil
	})
}
