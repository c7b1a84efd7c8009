package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/bench/programs"
	"ramet.dev/ramet/internal/bench/stock"
)

// manyChildren is the number of children of the fork of thousands.
const manyChildren = 1000

// programRow returns the name of the rows of a program.
func programRow(name string) string { return caseFork + "-" + name }

// programCase returns the case of a program, whose rows are of that name: those of objects share one.
func programCase(p *programs.Program) string {
	name, _, _ := strings.Cut(p.Name, "-")
	return programRow(name)
}

// programBench is the part of a run that forks what people run.
type programBench struct{ *bench }

// all forks all of it. The first answer is that of the program, not of any command.
func (b programBench) all(ctx context.Context) error {
	for _, p := range programs.All() {
		if !b.wants(programCase(&p)) {
			continue
		}
		if err := b.one(ctx, &p); err != nil {
			return fmt.Errorf("%s: %w", p.Name, err)
		}
	}
	return nil
}

func (b programBench) one(ctx context.Context, p *programs.Program) error {
	b.progress("start %s", p.Name)
	ref, err := p.Create(ctx, b.c, b.s, func(api.Progress) {})
	if code := api.CodeOf(err); code == api.CodeUnavailable || code == api.CodeUnsupported {
		b.note("%s was left out: its packages cannot be had here: %v", p.Name, err)
		return nil
	}
	if err != nil {
		return err
	}
	if reason, err := cannotCompare(b.opts.Runsc); err != nil {
		return err
	} else if reason == "" {
		if err := b.inRunsc(ctx, p, ref); err != nil {
			b.note("%s in stock runsc was left out: %v", p.Name, err)
		}
	}
	if err := b.s.Run(ctx, ref, p.Start()); err != nil {
		return err
	}
	for _, n := range p.Children {
		err := b.repeat(ctx, kind{name: programRow(p.Name), n: n}, func(ctx context.Context) (sample, error) {
			if err := b.meter().Settle(ctx, 1); err != nil {
				return nil, err
			}
			work := b.speed.Sample()
			f, err := b.s.ForkAsking(ctx, ref, n, p.Answer())
			if err != nil {
				return nil, err
			}
			s := times(f)
			s[workMS] = work
			if s[privateMiB], err = b.s.PrivateMiB(ctx, f.IDs()); err != nil {
				return nil, err
			}
			return s, b.s.Destroy(ctx, f.IDs()...)
		})
		if err != nil {
			return err
		}
	}
	return b.s.Destroy(ctx, ref)
}

// inRunsc makes a checkpoint of the program in a container of stock runsc, with the files of the
// sandbox ref, and restores it once.
func (b programBench) inRunsc(ctx context.Context, p *programs.Program, ref string) (err error) {
	r, err := newRunsc(b.opts.Runsc, b.pace, &b.speed)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.close(ctx)) }()
	if err := stock.ExportRoot(ctx, b.c, ref, r.rootfs()); err != nil {
		return err
	}
	if err := stock.WriteConfig(r.bundle(), r.namespace, p.Init()); err != nil {
		return err
	}
	if err := r.start(ctx, runscSourceID, "run"); err != nil {
		return err
	}
	if err := r.exec(ctx, runscSourceID, p.Await()); err != nil {
		return err
	}
	k := kind{name: programRow(p.Name) + runscSuffix, n: 1}
	return b.repeat(ctx, k, func(ctx context.Context) (sample, error) {
		s := sample{workMS: b.speed.Sample()}
		if err := r.copies(ctx, 1, s, p.Await()); err != nil {
			return nil, err
		}
		return s, errors.Join(r.stop(ctx, 1), os.RemoveAll(r.checkpoint()))
	})
}

// thousand makes a thousand children of the small source, all of which answer.
func (b programBench) thousand(ctx context.Context) error {
	ref, err := b.warm(ctx, sourceSmall, 0)
	if err != nil {
		return err
	}
	err = b.repeat(ctx, kind{name: caseThousand, source: sourceSmall, n: manyChildren}, func(ctx context.Context) (sample, error) {
		return b.fork(ctx, ref, manyChildren)
	})
	return errors.Join(err, b.s.Destroy(ctx, ref))
}

// programTargets are those of the programs.
func programTargets(rs rows) (list []Target) {
	add := func(what string, measured *float64, limit float64) {
		list = append(list, Target{What: what, Unit: "ms", Measured: measured, Limit: limit})
	}
	chromium := func(n int) Row { return rs.find(caseChromium, 0, n) }
	add("Chromium at a page: pause", chromium(1).PauseMS, 50)
	add("Chromium at a page, fork(1): the page has answered", chromium(1).FirstExecMS, 200)
	add("Chromium at a page, fork(5): returned", chromium(5).ReturnMS, 450)
	add("PostgreSQL with 50 connections under load: pause", rs.find(casePostgres, 0, 1).PauseMS, 25)
	for _, p := range programs.All() {
		if kind, ok := strings.CutPrefix(p.Name, "objects-"); ok {
			add("20 000 "+kind+": pause", rs.find(programRow(p.Name), 0, 1).PauseMS, 100)
		}
	}
	many := rs.find(caseThousand, sourceSmall, manyChildren)
	add("fork(1000): all have answered", many.AllReadyMS, 6000)
	return append(list, Target{What: "memory of each of 1000 children", Unit: "MiB", Measured: many.PrivateMiBPerChild, Limit: 5 << 10 / float64(manyChildren)})
}
