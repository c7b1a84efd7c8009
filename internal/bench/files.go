package bench

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/workload"
)

// fileOps are the operations on files. Each is measured in the sandbox's root file system and, in
// the same run, in gVisor's overlay on its tmpfs, which is at /dev/shm. Their rows are named
// files-OP.
var fileOps = []struct {
	name string
	most float64 // the largest ratio to the time on the overlay
}{{"untar", 1.2}, {"find", 1.2}, {"stat", 1.2}, {"read4k", 1.2}, {"write4k", 1.2}, {"import", 1.1}}

// filesProgram prints, as JSON, the milliseconds of each operation: [root file system, overlay].
// The tree has 25 000 files of 20 KiB, some 500 MiB. The file systems take turns, and the median
// counts: their share of a read or a write of 4 KiB is less than the switch into gVisor and back,
// which takes 1.5 µs or 9, depending on whether gVisor's own switch currently waits awake or
// asleep. import is a new Python that imports numpy.
//
//go:embed files_guest.py
var filesProgram string

// files measures the operations on files.
func (b *bench) files(ctx context.Context) error {
	b.progress("%s", caseFiles)
	sb, err := b.s.Create(ctx, workload.PythonImage, "")
	if err != nil {
		return err
	}
	if err := b.s.Warm(ctx, sb.ID); err != nil {
		return err
	}
	samples := map[string][]sample{}
	for range b.opts.Runs {
		out, err := b.s.Ask(ctx, sb.ID, filesProgram)
		if err != nil {
			return fmt.Errorf("%s: %w", caseFiles, err)
		}
		var ms map[string][2]float64
		if err := json.Unmarshal([]byte(out), &ms); err != nil {
			return fmt.Errorf("%s: %w", caseFiles, err)
		}
		work := b.speed.Sample()
		for op, both := range ms {
			samples[op] = append(samples[op], sample{roundtripMS: both[0], overlayMS: both[1], workMS: work})
		}
	}
	for _, op := range fileOps {
		b.add(kind{name: fileOp(op.name), n: 1}, samples[op.name])
	}
	return b.s.Destroy(ctx, sb.ID)
}

func fileOp(op string) string { return caseFiles + "-" + op }

// changedFiles is the number of files that each of two children changes before a diff.
const changedFiles = 10

// diff measures the comparison of two children of a source with many files.
func (b *bench) diff(ctx context.Context, ref string) (sample, error) {
	forked, err := b.s.ForkUntouched(ctx, ref, 2)
	if err != nil {
		return nil, err
	}
	for _, id := range forked.IDs() {
		if _, err := b.s.Shell(ctx, id, fmt.Sprintf("for i in $(seq 1 %d); do cat /etc/machine-id >> /root/files/${i}00; done", changedFiles)); err != nil {
			return nil, err
		}
	}
	work := b.speed.Sample()
	began := time.Now()
	d, err := b.c.Sandboxes.Diff(ctx, forked.IDs()[0], forked.IDs()[1], api.DiffRequest{Paths: []string{"/root/files"}})
	if err != nil {
		return nil, err
	}
	took := millis(time.Since(began))
	if len(d.Changes) != changedFiles {
		return nil, fmt.Errorf("the diff has %d changes, not %d", len(d.Changes), changedFiles)
	}
	return sample{roundtripMS: took, workMS: work}, b.s.Destroy(ctx, forked.IDs()...)
}
