package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime/debug"
	"strconv"
	"sync"
	"time"

	"ramet.dev/ramet/client"
	"ramet.dev/ramet/internal/bench/stock"
	"ramet.dev/ramet/internal/observe/procfs"
	"ramet.dev/ramet/internal/workload"
)

// The size of the comparison with runsc.
const (
	runscSource   = sourceMedium
	runscChildren = 20
	// runscChildMiB is the memory of a container besides that of the source, of
	// which each restore makes a copy.
	runscChildMiB = 64
)

// compare does with stock runsc what a fork does: a warm process continues, and so do copies of it.
// With runsc that is a checkpoint that leaves the source running, and a restore for each copy. Both
// sides have the same files, the same Python process with the same array, the same first command in
// a copy, and the same number of copies at a time. Their memory and processor time are measured in
// the same way (see cost). The files of the checkpoint are in the page cache when they are
// restored.
//
// The times of the row are those of the restores alone, and its pause is the checkpoint. The times
// of a fork include everything.
func (b *bench) compare(ctx context.Context) (err error) {
	reason, err := cannotCompare(b.opts.Runsc)
	if err != nil {
		return err
	}
	if reason != "" {
		b.note("runsc-restore was left out: %s", reason)
		return nil
	}
	r, err := newRunsc(b.opts.Runsc, b.pace, &b.speed)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.close(ctx)) }()
	if err := b.noteVersions(); err != nil {
		return err
	}
	b.progress("warm up a source of %d MiB in runsc %s", runscSource, b.report.Machine.Runsc)
	if err := r.warm(ctx, b.c, b.s); err != nil {
		return fmt.Errorf("warm up runsc: %w", err)
	}
	for _, n := range []int{1, runscChildren} {
		k := kind{name: caseRunsc, source: runscSource, n: n}
		if err := b.repeat(ctx, k, func(ctx context.Context) (sample, error) { return r.fork(ctx, n) }); err != nil {
			return err
		}
	}
	return nil
}

// cannotCompare returns the reason why runsc is left out, or an empty text.
func cannotCompare(path string) (string, error) {
	if path == "" {
		return "no runsc was given (--runsc PATH)", nil
	}
	if _, err := exec.LookPath(path); err != nil {
		return err.Error(), nil
	}
	if os.Geteuid() != 0 {
		return "stock runsc needs root for its containers", nil
	}
	m, err := procfs.ReadMemory()
	if err != nil {
		return "", err
	}
	if need := int64(runscSource+runscChildMiB) * (runscChildren + 1); m.Available>>20 < need {
		return fmt.Sprintf("its %d children need about %d MiB of memory, %d MiB are available", runscChildren, need, m.Available>>20), nil
	}
	return "", nil
}

// noteVersions records the version of runsc, and notes if that differs from the gVisor in this
// program.
func (b *bench) noteVersions() error {
	theirs, err := stock.Version(b.opts.Runsc)
	if err != nil {
		return err
	}
	b.report.Machine.Runsc = theirs
	if info, ok := debug.ReadBuildInfo(); ok {
		if ours := stock.ModuleVersion(info); ours != "" && ours != theirs {
			b.note("runsc is built from gVisor %s, and ramet from %s", theirs, ours)
		}
	}
	return nil
}

// runscSourceID is the id of the container that is forked.
const runscSourceID = "source"

// warm makes the container that is forked.
func (r *runsc) warm(ctx context.Context, c *client.Client, session *workload.Session) error {
	if err := r.boot(ctx, c, session, runscSourceID); err != nil {
		return err
	}
	_, err := r.ask(ctx, runscSourceID, arrayProgram(runscSource)+"print(len(data))")
	return err
}

// boot makes a container with the files of our image and a warm process.
func (r *runsc) boot(ctx context.Context, c *client.Client, session *workload.Session, id string) error {
	sb, err := session.Create(ctx, workload.PythonImage, "")
	if err != nil {
		return err
	}
	if err := stock.ExportRoot(ctx, c, sb.ID, r.rootfs()); err != nil {
		return err
	}
	if err := errors.Join(session.Destroy(ctx, sb.ID), r.writeBundle()); err != nil {
		return err
	}
	if err := r.start(ctx, id, "run"); err != nil {
		return err
	}
	return r.await(ctx, id)
}

// fork makes n copies of the source, each of which answers a command.
func (r *runsc) fork(ctx context.Context, n int) (sample, error) {
	c, err := r.meter().Start(ctx)
	if err != nil {
		return nil, err
	}
	spent := r.spent.Load()
	s := sample{}
	if err := r.copies(ctx, n, s, firstCommand); err != nil {
		return nil, err
	}
	if err := stop(ctx, c, s, n, time.Duration(r.spent.Load()-spent)); err != nil {
		return nil, err
	}
	answer, err := r.ask(ctx, copyID(n-1), "print(len(data))")
	if err != nil {
		return nil, err
	}
	if want := strconv.Itoa(runscSource << 20 / 8); answer != want {
		return nil, fmt.Errorf("a restored process answered %q, not %s", answer, want)
	}
	return s, errors.Join(r.stop(ctx, 1), os.RemoveAll(r.checkpoint()))
}

// copyID returns the id of a copy. runsc accepts the beginning of an id, so no id may begin with
// another.
func copyID(i int) string { return fmt.Sprintf("copy-%03d", i) }

// copies makes a checkpoint of the source and n copies of that, each of which runs a command.
func (r *runsc) copies(ctx context.Context, n int, s sample, command []string) error {
	if err := os.MkdirAll(r.checkpoint(), 0o700); err != nil {
		return fmt.Errorf("make checkpoint directory: %w", err)
	}
	began := time.Now()
	if err := r.run(ctx, "checkpoint", "--leave-running", "--image-path="+r.checkpoint(), runscSourceID); err != nil {
		return err
	}
	s[pauseMS] = millis(time.Since(began))
	return r.restore(ctx, n, s, command)
}

// restore makes n copies of the checkpoint and has each run a command.
func (r *runsc) restore(ctx context.Context, n int, s sample, command []string) error {
	began := time.Now()
	var mu sync.Mutex
	return workload.Each(ctx, n, func(ctx context.Context, i int) error {
		if err := r.start(ctx, copyID(i), "restore", "--image-path="+r.checkpoint()); err != nil {
			return err
		}
		restored := millis(time.Since(began))
		if err := r.exec(ctx, copyID(i), command); err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		s[returnMS] = max(s[returnMS], restored)
		s[allReadyMS] = millis(time.Since(began))
		if _, ok := s[firstExecMS]; !ok {
			s[firstExecMS] = s[allReadyMS]
		}
		return nil
	})
}
