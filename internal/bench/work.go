package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/bench/stock"
	"ramet.dev/ramet/internal/bench/work"
)

// The rows of pieces of work are work-PIECE, and work-PIECE with one of these suffixes; the first
// is that of a sandbox that is no child.
const (
	nativeSuffix = "-native"
	childSuffix  = "-child"
)

// workGoals are the pieces that have targets, against the time without a sandbox.
var workGoals = []struct {
	piece, what string
	most, aim   float64
}{
	{"spawn", "1000 spawns", 3.7, 2.5},
	{"make", "make of 40 C files", 4.5, 3},
	{"git", "commit of 3000 files", 4.5, 3},
	{"pytest", "1000 tests of pytest", 1.5, 1.3},
	{work.All, "eleven pieces of ordinary work", 1.9, 1.6},
}

func workCase(piece string) string { return caseWork + "-" + piece }

// workBench has the case of ordinary work.
type workBench struct{ *bench }

// workSide runs the work in one place.
type workSide struct {
	suffix, what string
	run          func(context.Context, io.Writer) error
}

// work does the same work without a sandbox, in a sandbox, in a child of it and in stock runsc, in
// turns.
func (b workBench) work(ctx context.Context) (err error) {
	b.progress("build the image of %s", caseWork)
	const image = "bench-work"
	_, err = b.c.Images.Create(ctx, api.ImageRequest{Name: image, Build: &api.ImageBuild{From: "debian", Include: work.Packages}, IfMissing: true}, func(api.Progress) {})
	if code := api.CodeOf(err); code == api.CodeUnavailable || code == api.CodeUnsupported {
		b.note("%s was left out: its packages cannot be downloaded: %v", caseWork, err)
		return nil
	}
	if err != nil {
		return fmt.Errorf("build image %s: %w", image, err)
	}
	sb, err := b.s.Create(ctx, image, "")
	if err != nil {
		return err
	}
	native, stop, err := b.workNative(ctx, sb.ID)
	defer func() { err = errors.Join(err, stop()) }()
	if err != nil {
		return err
	}
	theirs, end, err := b.workRunsc(ctx, sb.ID)
	defer func() { err = errors.Join(err, end(ctx)) }()
	if err != nil {
		return err
	}
	if err := b.workTurns(ctx, slices.Concat(native, b.workInside(sb.ID), theirs)); err != nil {
		return err
	}
	return b.s.Destroy(ctx, sb.ID)
}

// workTurns measures the sides in turns, and adds the rows of all pieces.
func (b workBench) workTurns(ctx context.Context, sides []workSide) error {
	samples := map[string][]sample{}
	for i := range b.opts.Runs {
		for _, side := range sides {
			b.progress("%s %s, run %d of %d", caseWork, side.what, i+1, b.opts.Runs)
			speed := b.speed.Sample()
			times, err := work.Measure(ctx, side.run, func(piece string, took time.Duration, err error) {
				if err != nil {
					b.note("%s %s was left out: %v", workCase(piece), side.what, err)
					return
				}
				b.progress("  %-8s %6.2f s", piece, took.Seconds())
			})
			if err != nil {
				return fmt.Errorf("%s %s: %w", caseWork, side.what, err)
			}
			for piece, took := range times {
				name := workCase(piece) + side.suffix
				samples[name] = append(samples[name], sample{roundtripMS: millis(took), workMS: speed})
			}
		}
	}
	for _, piece := range append(work.Pieces(), work.All) {
		for _, side := range sides {
			if s := samples[workCase(piece)+side.suffix]; len(s) > 0 {
				b.add(kind{name: workCase(piece) + side.suffix, n: 1}, s)
			}
		}
	}
	return nil
}

// workInside returns the sides of a sandbox and of a child of it.
func (b workBench) workInside(ref string) []workSide {
	return []workSide{
		{"", "in a sandbox", func(ctx context.Context, out io.Writer) error { return work.Inside(ctx, b.c, ref, out) }},
		{childSuffix, "in a child", func(ctx context.Context, out io.Writer) error { return b.inChild(ctx, ref, out) }},
	}
}

func (b workBench) inChild(ctx context.Context, ref string, out io.Writer) error {
	f, err := b.s.ForkUntouched(ctx, ref, 1)
	if err != nil {
		return err
	}
	return errors.Join(work.Inside(ctx, b.c, f.Children[0].ID, out), b.s.Destroy(ctx, f.IDs()...))
}

// workNative returns the side without a sandbox, which has the files of the sandbox ref. It returns
// no side if that is not possible here. The caller calls stop also after an error.
func (b workBench) workNative(ctx context.Context, ref string) (sides []workSide, stop func() error, err error) {
	stop = func() error { return nil }
	if reason := work.CannotRunNatively(); reason != "" {
		b.note("%s without a sandbox was left out: %s", caseWork, reason)
		return nil, stop, nil
	}
	root, err := os.MkdirTemp("", "ramet-bench-")
	if err != nil {
		return nil, stop, fmt.Errorf("make root directory: %w", err)
	}
	stop = func() error { return os.RemoveAll(root) }
	if err := stock.ExportRoot(ctx, b.c, ref, root); err != nil {
		return nil, stop, err
	}
	return []workSide{{nativeSuffix, "without a sandbox", func(ctx context.Context, out io.Writer) error { return work.Native(ctx, root, out) }}}, stop, nil
}

// workRunsc returns the side of stock runsc, in a container with the files of the sandbox ref. It
// returns no side if that is not possible here. The caller calls stop also after an error.
func (b workBench) workRunsc(ctx context.Context, ref string) (sides []workSide, stop func(context.Context) error, err error) {
	stop = func(context.Context) error { return nil }
	reason, err := cannotCompare(b.opts.Runsc)
	if err != nil {
		return nil, stop, err
	}
	if reason != "" {
		b.note("%s in stock runsc was left out: %s", caseWork, reason)
		return nil, stop, nil
	}
	r, err := newRunsc(b.opts.Runsc, b.pace, &b.speed)
	if err != nil {
		return nil, stop, err
	}
	stop = r.close
	if err := b.noteVersions(); err != nil {
		return nil, stop, err
	}
	if err := stock.ExportRoot(ctx, b.c, ref, r.rootfs()); err != nil {
		return nil, stop, err
	}
	if err := stock.WriteConfig(r.bundle(), r.namespace, []string{"/bin/sleep", "infinity"}); err != nil {
		return nil, stop, err
	}
	if err := r.start(ctx, caseWork, "run"); err != nil {
		return nil, stop, err
	}
	return []workSide{{runscSuffix, "in stock runsc", func(ctx context.Context, out io.Writer) error {
		cmd := r.command(ctx, append([]string{"exec", caseWork}, work.Command()...)...)
		cmd.Stdout, cmd.WaitDelay = out, stopTimeout
		return r.do(cmd, "exec")
	}}}, stop, nil
}

// workTargets judges the rows of ordinary work.
func workTargets(rs rows) (list []Target) {
	for _, g := range workGoals {
		of := func(suffix string) *float64 { return rs.find(workCase(g.piece)+suffix, 0, 1).RoundtripMS }
		list = append(list,
			Target{What: g.what + " against no sandbox", Unit: "x", Measured: ratio(of(""), of(nativeSuffix)), Limit: g.most, Aim: g.aim},
			Target{What: g.what + " in a child against no sandbox", Unit: "x", Measured: ratio(of(childSuffix), of(nativeSuffix)), Limit: g.most, Aim: g.aim},
			Target{What: g.what + " against stock runsc", Unit: "x", Measured: ratio(of(""), of(runscSuffix)), Limit: 1},
		)
	}
	return list
}
