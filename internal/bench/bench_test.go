package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/bench/cost"
	"ramet.dev/ramet/internal/bench/transfer"
	"ramet.dev/ramet/internal/bench/work"
	"ramet.dev/ramet/internal/workload"
	"ramet.dev/ramet/internal/workload/fakedaemon"
)

// fast does not wait for this process, which is the daemon, to be quiet.
var fast = cost.Pace{Poll: time.Millisecond, Quiet: 2 * time.Millisecond, Most: 4 * time.Millisecond}

// fakeBench is a run against a daemon that is this process.
func fakeBench(t *testing.T) (*bench, *fakedaemon.Daemon) {
	t.Helper()
	d := fakedaemon.New()
	d.Agent = func(*fakedaemon.Instance, string) (string, int) { return "0\n", 0 }
	c := d.Connect(t)
	return &bench{c: c, s: workload.Open(c, "test"), opts: Options{Runs: 2}, log: io.Discard, daemon: os.Getpid(), pace: fast, stream: transfer.Transfer{Client: c}}, d
}

func TestCases(t *testing.T) {
	b, d := fakeBench(t)
	if err := b.single(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := b.source(t.Context(), plan{mib: sourceSmall, children: []int{3}, untouched: true, written: true, ask: true, explore: true, disk: []int{1}}); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, r := range b.report.Rows {
		names = append(names, r.Case)
		many := r.Case == "exec" || r.Case == "run_code"
		if !many && r.Runs != 2 || many && (r.Runs != execSamples || r.RoundtripMS == nil) {
			t.Errorf("%s has %d runs", r.Case, r.Runs)
		}
		if !many && (r.ReturnMS == nil && r.Case != caseExplore || r.CPUMSPerChild == nil) {
			t.Errorf("%s lacks metrics: %+v", r.Case, r)
		}
	}
	best, usual := b.speed.Best()
	if best <= 0 || usual < best || slices.ContainsFunc(b.report.Rows, func(r Row) bool { return r.WorkMS == nil }) {
		t.Errorf("a piece of work took %v at best and %v in the median: %+v", best, usual, b.report.Rows)
	}
	want := []string{"create", "exec", "run_code", "fork", "fork-untouched", "fork-written", "fork-ask", "explore", "snapshot-disk", "restore-disk"}
	if !slices.Equal(names, want) {
		t.Errorf("cases are %v, not %v", names, want)
	}
	fork := rows(b.report.Rows).find("fork", sourceSmall, 3)
	if fork.PauseMS == nil || *fork.PauseMS != 12.5 || fork.AllReadyMS == nil || *fork.AllReadyMS < *fork.FirstExecMS || *fork.PrivateMiBPerChild != 7 {
		t.Errorf("fork is %+v", fork)
	}
	if r := rows(b.report.Rows).find(caseExplore, sourceSmall, exploredChildren); r.AllReadyMS == nil || r.FirstExecMS != nil || *r.PrivateMiBPerChild != 7 {
		t.Errorf("explore is %+v", r)
	}
	if d.Left() != 0 {
		t.Errorf("%d sandboxes and snapshots are left", d.Left())
	}
}

func TestOnly(t *testing.T) {
	for only, want := range map[string]string{
		caseExec:                     caseExec,
		caseRunCode:                  caseRunCode,
		caseCreate:                   caseCreate,
		caseRestore + "," + caseIdle: caseSnapshot + "," + caseRestore,
		caseUntouched:                caseUntouched,
	} {
		b, d := fakeBench(t)
		b.opts.Only = strings.Split(only, ",")
		warm := false
		d.Agent = func(*fakedaemon.Instance, string) (string, int) { warm = true; return "0\n", 0 }
		if err := errors.Join(b.single(t.Context()), b.source(t.Context(), plan{mib: sourceSmall, children: []int{3}, untouched: true, ask: true, disk: []int{1}})); err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, r := range b.report.Rows {
			names = append(names, r.Case)
		}
		if got := strings.Join(names, ","); got != want {
			t.Errorf("of %s the cases %s were run, not %s", only, got, want)
		}
		if warm != (only != caseExec && only != caseCreate && only != caseRunCode) {
			t.Errorf("for %s a source was warmed up: %t", only, warm)
		}
	}
}

// TestExecPolling: processors poll during the case and no longer, and a machine on which they
// cannot has a note instead of the row.
func TestExecPolling(t *testing.T) {
	b, d := fakeBench(t)
	b.opts.Only = []string{caseExec, caseExecPoll}
	holds, releases := 0, 0
	b.hold = func() (func() error, error) {
		holds++
		return func() error { releases++; return nil }, nil
	}
	if err := b.single(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r := b.report.Rows; len(r) != 2 || r[1].Case != caseExecPoll || r[1].RoundtripMS == nil || holds != 1 || releases != 1 || d.Left() != 0 {
		t.Errorf("%d holds, %d releases, rows are %+v", holds, releases, r)
	}
	b.hold = func() (func() error, error) { return nil, os.ErrPermission }
	b.opts.Only = []string{caseExecPoll}
	if err := b.single(t.Context()); err != nil || len(b.report.Rows) != 2 || len(b.report.Notes) != 1 || !strings.Contains(b.report.Notes[0], caseExecPoll) {
		t.Errorf("%v, %+v", err, b.report)
	}
}

// TestStreams: what arrived is counted, and nothing that is missing is measured.
func TestStreams(t *testing.T) {
	b, d := fakeBench(t)
	b.stream.Bytes, d.Stream = 2<<20, 2<<20
	if err := b.streams(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(b.report.Rows) != len(streamOps) || d.Left() != 0 {
		t.Errorf("%d sandboxes are left, rows are %+v", d.Left(), b.report.Rows)
	}
	for i, r := range b.report.Rows {
		if r.Case != "streams-"+streamOps[i].name || r.Runs != 2 || r.MiBPerSecond == nil || *r.MiBPerSecond <= 0 || r.WorkMS == nil {
			t.Errorf("row %d is %+v", i, r)
		}
	}
	d.Stream--
	if err := b.streams(t.Context()); err == nil || !strings.Contains(err.Error(), "2097151 bytes arrived, not 2097152") {
		t.Errorf("with a byte too few: %v", err)
	}
	for _, op := range []streamOp{streamOps[0], streamOps[3]} {
		if n, err := op.run(&b.stream, t.Context(), "any"); n != 2<<20-1 || err != nil {
			t.Errorf("%s: %d bytes, %v", op.name, n, err)
		}
	}
}

// TestAttach: it is the child whose process is attached to.
func TestAttach(t *testing.T) {
	b, d := fakeBench(t)
	if err := b.attaches(t.Context()); err != nil {
		t.Fatal(err)
	}
	r := rows(b.report.Rows).find("attach", 0, 1)
	if r.Runs != 2 || r.RoundtripMS == nil || *r.RoundtripMS <= 0 || *r.PauseMS != 12.5 || r.ReturnMS == nil || r.WorkMS == nil {
		t.Errorf("row is %+v", r)
	}
	refs := d.Attached()
	slices.Sort(refs)
	if len(refs) != 3 || len(slices.Compact(refs)) != 3 || d.Left() != 0 {
		t.Errorf("attached to %v, %d are left", refs, d.Left())
	}
	d.Silent = true
	if err := b.attaches(t.Context()); err == nil || !strings.Contains(err.Error(), "ended without output") {
		t.Errorf("a process without output: %v", err)
	}
}

// TestWork: each piece has a row of each side, and the child of a fork is destroyed.
func TestWork(t *testing.T) {
	b, d := fakeBench(t)
	b.opts.Runs = 3
	ref := ""
	d.ExecFunc = func(_ context.Context, in string, _ api.ExecRequest, streams api.ExecIO) (*api.ExecResult, error) {
		factor := 1
		if ref == "" {
			ref = in
		} else if in != ref {
			factor = 2
		}
		for i, piece := range work.Pieces() {
			if _, err := fmt.Fprintf(streams.Stdout, "%s %d 0\n", piece, factor*1000*(i+1)); err != nil {
				return nil, err
			}
		}
		return &api.ExecResult{OK: true}, nil
	}
	sb, err := b.s.Create(t.Context(), "any", "")
	if err != nil {
		t.Fatal(err)
	}
	err = workBench{b}.workTurns(t.Context(), workBench{b}.workInside(sb.ID))
	if err != nil {
		t.Fatal(err)
	}
	if n := len(b.report.Rows); n != 2*(len(work.Pieces())+1) || d.Left() != 1 {
		t.Errorf("%d rows, %d sandboxes are left", n, d.Left())
	}
	inside, child := rows(b.report.Rows).find("work-all", 0, 1), rows(b.report.Rows).find("work-spawn-child", 0, 1)
	if inside.Runs != 3 || *inside.RoundtripMS != 66 || *child.RoundtripMS != 4 || child.WorkMS == nil {
		t.Errorf("rows are %+v and %+v", inside, child)
	}
	native := newRow(kind{name: "work-spawn-native", n: 1}, []sample{{roundtripMS: 1}})
	for _, target := range workTargets(append(b.report.Rows, native)) {
		switch {
		case target.What == "1000 spawns against no sandbox" && *target.Measured == 2:
		case target.What == "1000 spawns in a child against no sandbox" && *target.Measured == 4:
		case target.Measured != nil:
			t.Errorf("target %s is %v", target.What, *target.Measured)
		}
	}
}

func TestInARow(t *testing.T) {
	b, d := fakeBench(t)
	if err := b.inARow(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := len(b.report.Rows); n != lastInARow || b.report.Rows[19].Case != inARow(20) || b.report.Rows[19].Runs != 2 {
		t.Errorf("%d rows, the last is %+v", n, b.report.Rows[n-1])
	}
	if d.Left() != 0 || d.Most != 1+lastInARow {
		t.Errorf("%d sandboxes are left of at most %d", d.Left(), d.Most)
	}
}

func TestLeavesOutWhatDoesNotFit(t *testing.T) {
	b, _ := fakeBench(t)
	if err := b.source(t.Context(), plan{mib: 1 << 30, children: []int{1}}); err != nil {
		t.Fatal(err)
	}
	if len(b.report.Rows) != 0 || len(b.report.Notes) != 1 || !strings.Contains(b.report.Notes[0], "left out") {
		t.Errorf("%+v", b.report)
	}
}

// TestTargetsOfOnly leaves out the targets of cases that were not to run.
func TestTargetsOfOnly(t *testing.T) {
	b, _ := fakeBench(t)
	var out bytes.Buffer
	if err := run(t.Context(), b.c, &out, io.Discard, Options{Only: []string{caseExec}, JSON: true}, fast); err != nil {
		t.Fatal(err)
	}
	var report Report
	if err := json.Unmarshal(out.Bytes(), &report); err != nil || len(report.Targets) != 1 || report.Targets[0].What != "exec of true, round trip" {
		t.Errorf("targets are %+v, %v", report.Targets, err)
	}
}

func TestRunRefuses(t *testing.T) {
	b, d := fakeBench(t)
	if err := run(t.Context(), b.c, io.Discard, io.Discard, Options{Runs: -1}, fast); api.CodeOf(err) != api.CodeInvalid {
		t.Errorf("runs -1: %v", err)
	}
	if err := run(t.Context(), b.c, io.Discard, io.Discard, Options{Only: []string{caseExec, "nothing"}}, fast); api.CodeOf(err) != api.CodeInvalid || !strings.Contains(err.Error(), "nothing") {
		t.Errorf("only what there is not: %v", err)
	}
	// A failure is reported and leaves nothing.
	d.FailChild = func(int) *api.Error { return api.Errorf(api.CodeNoMemory, "no memory is left") }
	var out, log bytes.Buffer
	err := run(t.Context(), b.c, &out, &log, Options{Quick: true}, fast)
	if api.CodeOf(err) != api.CodeNoMemory || !strings.HasPrefix(err.Error(), "bench: fork of a source of 24 MiB, n 1: child 1 of 1") {
		t.Errorf("error is %v", err)
	}
	if d.Left() != 0 || out.Len() != 0 || !strings.Contains(log.String(), "create") {
		t.Errorf("%d are left, output %q, progress %q", d.Left(), out.String(), log.String())
	}
}

func TestInterrupted(t *testing.T) {
	b, d := fakeBench(t)
	ctx, cancel := context.WithCancel(t.Context())
	d.Agent = func(*fakedaemon.Instance, string) (string, int) {
		cancel() // when the first source is warmed up
		return "0\n", 0
	}
	err := run(ctx, b.c, io.Discard, io.Discard, Options{Quick: true, JSON: true}, fast)
	if api.CodeOf(err) != api.CodeCanceled || d.Left() != 0 {
		t.Errorf("%v, %d are left", err, d.Left())
	}
}
