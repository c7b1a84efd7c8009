package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"ramet.dev/ramet/internal/workload"
)

const (
	execWarmUps = 50
	execSamples = 100
	speedEvery  = 10 // samples, because the work takes a good part of the time of one
)

// single measures operations on one sandbox: create, exec and run_code.
func (b *bench) single(ctx context.Context) error {
	if b.wants(caseCreate) {
		if err := b.repeat(ctx, kind{name: caseCreate, n: 1}, b.create); err != nil {
			return err
		}
	}
	if b.wants(caseExec) {
		if err := b.roundtrips(ctx, caseExec, b.s.Probe); err != nil {
			return err
		}
	}
	if slices.Contains(b.opts.Only, caseExecPoll) {
		// Idle processors poll during the whole case, as they do in the first milliseconds of a
		// request with RAMET_IDLE_POLL=on.
		release, err := b.hold()
		if err != nil {
			b.note("%s is left out: %v", caseExecPoll, err)
		} else if err := errors.Join(b.roundtrips(ctx, caseExecPoll, b.s.Probe), release()); err != nil {
			return err
		}
	}
	if !b.wants(caseRunCode) {
		return nil
	}
	return b.roundtrips(ctx, caseRunCode, func(ctx context.Context, ref string) error {
		got, err := b.s.RunCode(ctx, ref, "1+1")
		if err == nil && got != "2" {
			err = fmt.Errorf("1+1 is %q", got)
		}
		return err
	})
}

func (b *bench) create(ctx context.Context) (sample, error) {
	c, err := b.meter().Start(ctx)
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
	if err := stop(ctx, c, s, 1, 0); err != nil {
		return nil, err
	}
	if s[privateMiB], err = b.s.PrivateMiB(ctx, []string{sb.ID}); err != nil {
		return nil, err
	}
	return s, b.s.Destroy(ctx, sb.ID)
}

// roundtrips measures the round trip of an operation that does nothing. It takes more samples than
// other cases, because one is so short that a few would be noise.
func (b *bench) roundtrips(ctx context.Context, name string, do func(context.Context, string) error) error {
	b.progress(name)
	sb, err := b.s.Create(ctx, workload.PythonImage, "")
	if err != nil {
		return err
	}
	// The daemon starts new blank sentries after a create, and many when it has just started:
	// a round trip takes a third longer meanwhile.
	if err := b.meter().Settle(ctx, 1); err != nil {
		return err
	}
	var samples []sample
	for i := range execWarmUps + execSamples {
		s := sample{}
		if i%speedEvery == 0 {
			s[workMS] = b.speed.Sample()
		}
		began := time.Now()
		if err := do(ctx, sb.ID); err != nil {
			return err
		}
		if s[roundtripMS] = millis(time.Since(began)); i >= execWarmUps {
			samples = append(samples, s)
		}
	}
	b.add(kind{name: name, n: 1}, samples)
	return b.s.Destroy(ctx, sb.ID)
}
