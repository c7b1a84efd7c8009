package bench

import (
	"context"
	"fmt"
	"strconv"
)

// inARow forks a new source again and again without a rest. All children stay, and the source
// writes to its memory in between, so that each fork meets everything that the earlier ones left
// behind.
func (b *bench) inARow(ctx context.Context) error {
	samples := make([][]sample, lastInARow)
	for run := range b.opts.Runs {
		b.progress("%d forks in a row, run %d of %d", lastInARow, run+1, b.opts.Runs)
		ref, err := b.warm(ctx, sourceSmall, 0)
		if err != nil {
			return err
		}
		if err := b.meter().Settle(ctx, 0); err != nil {
			return err
		}
		work := b.speed.Sample()
		ids := []string{ref}
		for i := range samples {
			if _, err := b.s.Ask(ctx, ref, "kept = [str(n) for n in range(10000)]\nprint("+strconv.Itoa(i)+")"); err != nil {
				return err
			}
			f, err := b.s.Fork(ctx, ref, 1, "")
			if err != nil {
				return fmt.Errorf("fork %d in a row: %w", i+1, err)
			}
			s := times(f)
			s[workMS] = work
			samples[i] = append(samples[i], s)
			ids = append(ids, f.IDs()...)
		}
		if err := b.s.Destroy(ctx, ids...); err != nil {
			return err
		}
	}
	for i := range samples {
		b.add(kind{name: inARow(i + 1), source: sourceSmall, n: 1}, samples[i])
	}
	return nil
}
