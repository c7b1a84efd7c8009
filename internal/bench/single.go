package bench

import (
	"context"
	"time"

	"ramet.dev/ramet/internal/workload"
)

const (
	execWarmUps = 5
	execSamples = 50
)

// single measures what concerns one sandbox: create and exec.
func (b *bench) single(ctx context.Context) error {
	if b.wants(caseCreate) {
		if err := b.repeat(ctx, kind{name: caseCreate, n: 1}, b.create); err != nil {
			return err
		}
	}
	if !b.wants(caseExec) {
		return nil
	}
	return b.exec(ctx)
}

func (b *bench) create(ctx context.Context) (sample, error) {
	c, err := b.meter().start(ctx)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	sb, err := b.s.Create(ctx, workload.PythonImage, "")
	if err != nil {
		return nil, err
	}
	s := sample{returnMS: millis(time.Since(began))}
	if err := b.s.Probe(ctx, sb.ID); err != nil {
		return nil, err
	}
	s[firstExecMS] = millis(time.Since(began))
	s[allReadyMS] = s[firstExecMS]
	if err := c.stop(ctx, s, 1, 0); err != nil {
		return nil, err
	}
	if s[privateMiB], err = b.s.PrivateMiB(ctx, []string{sb.ID}); err != nil {
		return nil, err
	}
	return s, b.s.Destroy(ctx, sb.ID)
}

// exec measures the round trip of a command that does nothing. It has samples of
// its own number: one takes so little that a few would be noise.
func (b *bench) exec(ctx context.Context) error {
	b.progress("exec")
	sb, err := b.s.Create(ctx, workload.PythonImage, "")
	if err != nil {
		return err
	}
	var samples []sample
	for i := range execWarmUps + execSamples {
		began := time.Now()
		if err := b.s.Probe(ctx, sb.ID); err != nil {
			return err
		}
		if i >= execWarmUps {
			samples = append(samples, sample{roundtripMS: millis(time.Since(began))})
		}
	}
	b.add(kind{name: caseExec, n: 1}, samples)
	return b.s.Destroy(ctx, sb.ID)
}
