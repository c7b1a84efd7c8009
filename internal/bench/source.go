package bench

import (
	"context"
	"fmt"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/internal/observe/procfs"
	"ramet.dev/ramet/internal/workload"
)

const (
	// childMiB is an estimate of the memory of a child, to leave out cases that would not
	// fit into this machine.
	childMiB = 40
	// manyFiles is the number of files of the source with files, each of
	// fileBytes.
	manyFiles = 50_000
	fileBytes = 20 << 10
)

// plan is the cases of one source.
type plan struct {
	mib, files int
	children   []int
	// untouched, written, ask, idle, diff, explore and disk are further cases of this source. disk has
	// the numbers of sandboxes that are restored at once.
	untouched, written, ask, idle, diff, explore bool
	disk                                         []int
}

func plans(quick bool) []plan {
	if quick {
		return []plan{
			{mib: sourceSmall, children: []int{1, 5, 20, 100}, untouched: true, idle: true, explore: true},
			{mib: sourceMedium, children: []int{20}, ask: true, disk: []int{1}},
			{mib: sourceLarge, children: []int{1, 20}, untouched: true, written: true},
			{mib: sourceSmall, files: manyFiles, children: []int{1}, untouched: true, diff: true},
		}
	}
	return []plan{
		{mib: sourceSmall, children: []int{1, 5, 20, 100}, untouched: true, ask: true, idle: true, explore: true, disk: []int{1}},
		{mib: sourceMedium, children: []int{1, 5, 20, 100}, untouched: true, ask: true, disk: []int{1, 20}},
		{mib: sourceLarge, children: []int{1, 5, 20, 100}, untouched: true, written: true, ask: true, disk: []int{1}},
		{mib: sourceSmall, files: manyFiles, children: []int{1, 5}, untouched: true, diff: true},
	}
}

// only removes the cases that are not wanted. A snapshot and its restore are one measurement.
func (p plan) only(wants func(name string) bool) plan {
	if !wants(caseFork) {
		p.children = nil
	}
	p.untouched, p.ask, p.idle = p.untouched && wants(caseUntouched), p.ask && wants(caseAsk), p.idle && wants(caseIdle)
	p.written, p.diff, p.explore = p.written && wants(caseWritten), p.diff && wants(caseDiff), p.explore && wants(caseExplore)
	if !wants(caseSnapshot) && !wants(caseRestore) {
		p.disk = nil
	}
	return p
}

// isEmpty reports whether the source has no cases.
func (p plan) isEmpty() bool {
	return len(p.children)+len(p.disk) == 0 && !p.untouched && !p.written && !p.ask && !p.idle && !p.diff && !p.explore
}

// source makes a warm sandbox and measures the cases of p with it.
func (b *bench) source(ctx context.Context, p plan) error {
	if p = p.only(b.wants); p.isEmpty() {
		return nil
	}
	need := int64(p.mib + childMiB*max(1, last(p.children)))
	if m, err := procfs.ReadMemory(); err != nil {
		return err
	} else if m.Available>>20 < need {
		b.note("the source of %d MiB was left out: it and its children need about %d MiB of memory, %d MiB are available", p.mib, need, m.Available>>20)
		return nil
	}
	b.progress("warm up a source of %d MiB with %d files", p.mib, p.files)
	ref, err := b.warm(ctx, p.mib, p.files)
	if err != nil {
		return fmt.Errorf("warm up a source of %d MiB: %w", p.mib, err)
	}
	for _, n := range p.children {
		k := kind{name: caseFork, source: p.mib, n: n, files: p.files}
		if err := b.repeat(ctx, k, func(ctx context.Context) (sample, error) { return b.fork(ctx, ref, n) }); err != nil {
			return err
		}
	}
	for _, extra := range []struct {
		want bool
		kind kind
		run  func(context.Context, string) (sample, error)
	}{
		{p.untouched, kind{name: caseUntouched, n: untouchedChildren}, b.untouched},
		{p.written, kind{name: caseWritten, n: 1}, b.written},
		{p.ask, kind{name: caseAsk, n: 1}, b.ask},
		{p.idle, kind{name: caseIdle, n: idleChildren}, b.idle},
		{p.diff, kind{name: caseDiff, n: 2}, b.diff},
		{p.explore, kind{name: caseExplore, n: exploredChildren}, b.explore},
	} {
		if !extra.want {
			continue
		}
		extra.kind.source, extra.kind.files = p.mib, p.files
		if err := b.repeat(ctx, extra.kind, func(ctx context.Context) (sample, error) { return extra.run(ctx, ref) }); err != nil {
			return err
		}
	}
	for _, n := range p.disk {
		if err := b.disk(ctx, ref, p, n); err != nil {
			return err
		}
	}
	return b.s.Destroy(ctx, ref)
}

func last(list []int) int {
	if len(list) == 0 {
		return 0
	}
	return list[len(list)-1]
}

// warm makes a source with an array and files.
func (b *bench) warm(ctx context.Context, mib, files int) (string, error) {
	sb, err := b.s.Create(ctx, workload.PythonImage, "")
	if err != nil {
		return "", err
	}
	if err := b.s.Warm(ctx, sb.ID); err != nil {
		return "", err
	}
	program := arrayProgram(mib)
	if files > 0 {
		program += fmt.Sprintf(`import os
os.mkdir("/root/files")
for i in range(%d):
    with open("/root/files/%%d" %% i, "wb") as f:
        f.write(os.urandom(%d))
`, files, fileBytes)
	}
	if _, err = b.s.Ask(ctx, sb.ID, program+"print(len(data))"); err == nil && files > 0 {
		unix.Sync() // so that the host does not write the files during the first cases
	}
	return sb.ID, err
}

// arrayProgram returns the program that makes the array of a source. It writes to every page.
func arrayProgram(mib int) string {
	if mib == sourceSmall {
		mib = 0
	}
	return fmt.Sprintf("data = np.ones(%d)\n", mib<<20/8)
}
