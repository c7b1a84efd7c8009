package bench

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"ramet.dev/ramet/internal/bench/machine"
	"ramet.dev/ramet/internal/bench/programs"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func f(v float64) *float64 { return &v }

func TestMedian(t *testing.T) {
	for _, tc := range []struct {
		values []float64
		want   *float64
	}{
		{nil, nil},
		{[]float64{3}, f(3)},
		{[]float64{4, 1}, f(2.5)},
		{[]float64{9, 1, 5}, f(5)},
		{[]float64{8, 1, 4, 1000}, f(6)},
		{[]float64{0, 0, -1}, f(0)},
	} {
		before := slices.Clone(tc.values)
		if d := cmp.Diff(tc.want, median(tc.values)); d != "" {
			t.Errorf("%v: %s", tc.values, d)
		}
		if d := cmp.Diff(before, tc.values); d != "" {
			t.Errorf("the values were changed: %s", d)
		}
	}
}

func TestNewRow(t *testing.T) {
	k := kind{name: "fork", source: 256, n: 20, files: 3}
	got := newRow(k, []sample{
		{pauseMS: 10, allReadyMS: 100, privateMiB: 5, hostPrivateMiB: 9},
		{pauseMS: 30, privateMiB: 6, hostPrivateMiB: 4},
		{pauseMS: 20, privateMiB: 7, hostPrivateMiB: 8},
	})
	want := Row{Case: "fork", SourceMiB: 256, N: 20, Files: 3, Runs: 3, PauseMS: f(20), AllReadyMS: f(100), PrivateMiBPerChild: f(8)}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	// The daemon's metric, where it is the larger or the only one.
	for _, s := range []sample{{privateMiB: 5}, {privateMiB: 5, hostPrivateMiB: 4}, {hostPrivateMiB: 5}} {
		if got := newRow(k, []sample{s}).PrivateMiBPerChild; got == nil || *got != 5 {
			t.Errorf("%v: %v", s, got)
		}
	}
	if got := newRow(k, []sample{{}}).PrivateMiBPerChild; got != nil {
		t.Errorf("nothing was measured, and the row has %v", *got)
	}
}

func report() *Report {
	rs := []Row{
		newRow(kind{name: "create", n: 1}, []sample{{returnMS: 12.345, firstExecMS: 20, allReadyMS: 20, cpuMS: 55, privateMiB: 5}}),
		newRow(kind{name: "exec", n: 1}, []sample{{roundtripMS: 3, workMS: 0.5}, {roundtripMS: 3}}),
		newRow(kind{name: "run_code", n: 1}, []sample{{roundtripMS: 1.5}}),
		newRow(kind{name: "fork", source: 24, n: 1}, []sample{{pauseMS: 21, returnMS: 30, firstExecMS: 40, allReadyMS: 40, cpuMS: 20, privateMiB: 7}}),
		newRow(kind{name: "fork", source: 24, n: 1, files: 10}, []sample{{pauseMS: 1000}}),
		newRow(kind{name: inARow(1), source: 24, n: 1}, []sample{{pauseMS: 10, firstExecMS: 20}}),
		newRow(kind{name: inARow(2), source: 24, n: 1}, []sample{{pauseMS: 10, firstExecMS: 20}}),
		newRow(kind{name: inARow(20), source: 24, n: 1}, []sample{{pauseMS: 13, firstExecMS: 30}}),
		newRow(kind{name: "fork", source: 256, n: 20}, []sample{{pauseMS: 20, allReadyMS: 200, privateMiB: 8, hostPrivateMiB: 10}}),
		newRow(kind{name: "idle", source: 24, n: 20}, []sample{{idlePercent: 0.125}}),
		newRow(kind{name: "streams-read", n: 1}, []sample{{mibPerSecond: 300}}),
		newRow(kind{name: "streams-port", n: 1}, []sample{{mibPerSecond: 299}}),
		newRow(kind{name: "attach", n: 1}, []sample{{pauseMS: 5, returnMS: 20, roundtripMS: 10}}),
		newRow(kind{name: "network-download", n: 1}, []sample{{gbitPerSecond: 12}}),
		newRow(kind{name: "network-download-runsc", n: 1}, []sample{{gbitPerSecond: 10}}),
		newRow(kind{name: "network-upload", n: 1}, []sample{{gbitPerSecond: 9}}),
		newRow(kind{name: "network-upload-runsc", n: 1}, []sample{{gbitPerSecond: 10}}),
		newRow(kind{name: "network-request", n: 1}, []sample{{roundtripMS: 0.2}}),
		newRow(kind{name: "network-denied", n: 1}, []sample{{roundtripMS: 0.2}}),
		newRow(kind{name: "network-fork", source: 24, n: 1}, []sample{{pauseMS: 10}}),
		newRow(kind{name: "network-fork-connections", source: 24, n: 1}, []sample{{pauseMS: 14}}),
		newRow(kind{name: "network-create-none", n: 1}, []sample{{returnMS: 10}}),
		newRow(kind{name: "network-create-open", n: 1}, []sample{{returnMS: 10.5}}),
		newRow(kind{name: "network-gateway", n: 500}, []sample{{gatewayMiB: 65}}),
		newRow(kind{name: "runsc-restore", source: 256, n: 20}, []sample{{pauseMS: 300, allReadyMS: 1000, hostPrivateMiB: 79}}),
	}
	return &Report{
		Machine: machine.Machine{CPUs: 2, CPUModel: "Test 9000", MemoryMiB: 4096, Kernel: "6.1", Arch: "amd64", Ramet: "devel", Runsc: "v0.1",
			Started: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), LoadBefore: 0.5, LoadAfter: 1.25, OthersPercent: 7, WorkBestMS: 0.25, WorkMS: 0.375, Seconds: 61.4},
		Rows: rs, Targets: targets(rs), Notes: []string{"something was left out"},
	}
}

func TestTargets(t *testing.T) {
	got := map[string]string{}
	for _, target := range report().Targets {
		got[target.What] = target.Verdict
	}
	want := map[string]string{
		"pause of the source, 24 MiB":                                        missed,
		"pause of the source, 1.5 GiB":                                       notMeasured,
		"pause of the source, 1.5 GiB that were just written":                notMeasured,
		"fork(1): first exec answered, 24 MiB":                               reached,
		"fork(1): first exec answered, 1.5 GiB":                              notMeasured,
		"fork(5): all five answered":                                         notMeasured,
		"fork(100), after one as large: all hundred ready":                   notMeasured,
		"fork(100), the first one of a new daemon: all hundred ready":        notMeasured,
		"explore of 100 that run true against fork(100) and an exec in each": notMeasured,
		"CPU per idle child, fork(20)":                                       notMeasured,
		"private memory per idle child of 1.5 GiB, fork(20)":                 notMeasured,
		"CPU per child, fork(100)":                                           notMeasured,
		"20th fork in a row against the 1st: pause":                          reached,
		"20th fork in a row against the 1st: first exec":                     missed,
		"exec of true, round trip":                                           reached,
		"run_code of 1+1 in Python, round trip":                              reached,
		"CPU of an idle sandbox, of one core":                                reached,
		"20 children of 256 MiB: time of runsc restore over ours":            reached,
		"20 children of 256 MiB: memory of runsc over ours":                  missed,
		"fork(1) after 50 000 files of 1 GiB against none: pause":            notMeasured,
		"fork(20) after 50 000 files of 1 GiB against none: return":          notMeasured,
		"private memory that each such child has more":                       notMeasured,
		"diff of two children that changed 10 files each of 50 000":          notMeasured,

		"what a command writes to stdout, through the daemon":                notMeasured,
		"writing a file of 1 GiB, through the daemon":                        notMeasured,
		"reading a file of 1 GiB, through the daemon":                        reached,
		"a connection to a port, through the daemon":                         missed,
		"attach to an inherited process: its output, after fork(1) returned": reached,
	}
	maps.Copy(want, map[string]string{
		"download, one connection, over stock runsc":                     reached,
		"upload, one connection, over stock runsc":                       missed,
		"download, 64 connections at once, over stock runsc":             notMeasured,
		"upload, 64 connections at once, over stock runsc":               notMeasured,
		"request and response on a kept connection, over stock runsc":    notMeasured,
		"new connection: connect() to connected, over stock runsc":       notMeasured,
		"denied connection: connect() to error":                          reached,
		"fork(1) with 100 open connections against none: pause":          missed,
		"fork(1) with an open network against none: first exec answered": notMeasured,
		"private memory that a child with an open network has more":      notMeasured,
		"create with an open network: longer by":                         reached,
		"gateway with 500 idle sandboxes":                                missed,
	})
	for _, target := range slices.Concat(workTargets(nil), programTargets(nil)) {
		want[target.What] = notMeasured
	}
	for _, op := range fileOps {
		want[op.name+" against gVisor's overlay on tmpfs"] = notMeasured
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// TestCasesOfTargets: what a target is about is measured, also with --quick.
func TestCasesOfTargets(t *testing.T) {
	for _, quick := range []bool{false, true} {
		rs := []Row{
			newRow(kind{name: "exec", n: 1}, []sample{{roundtripMS: 1}}),
			newRow(kind{name: "run_code", n: 1}, []sample{{roundtripMS: 1}}),
			newRow(kind{name: "runsc-restore", source: runscSource, n: runscChildren}, []sample{{allReadyMS: 1, hostPrivateMiB: 1}}),
		}
		for _, op := range fileOps {
			rs = append(rs, newRow(kind{name: "files-" + op.name, n: 1}, []sample{{roundtripMS: 1, overlayMS: 1}}))
		}
		for _, op := range streamOps {
			rs = append(rs, newRow(kind{name: "streams-" + op.name, n: 1}, []sample{{mibPerSecond: 1}}))
		}
		for _, g := range workGoals {
			for _, suffix := range []string{"", "-native", "-child", "-runsc"} {
				rs = append(rs, newRow(kind{name: "work-" + g.piece + suffix, n: 1}, []sample{{roundtripMS: 1}}))
			}
		}
		rs = append(rs, newRow(kind{name: "attach", n: 1}, []sample{{roundtripMS: 1}}))
		for i := range lastInARow {
			rs = append(rs, newRow(kind{name: inARow(i + 1), source: sourceSmall, n: 1}, []sample{{pauseMS: 1, firstExecMS: 1}}))
		}
		for _, op := range netOps {
			rs = append(rs, newRow(kind{name: "network-" + op.name, n: 1}, []sample{{op.metric: 1}}), newRow(kind{name: "network-" + op.name + "-runsc", n: 1}, []sample{{op.metric: 1}}))
		}
		for _, name := range []string{"fork", "fork-connections", "fork-none", "fork-open"} {
			rs = append(rs, newRow(kind{name: "network-" + name, source: sourceSmall, n: 1}, []sample{{pauseMS: 1, firstExecMS: 1, privateMiB: 1}}))
		}
		for _, name := range []string{"create-none", "create-open"} {
			rs = append(rs, newRow(kind{name: "network-" + name, n: 1}, []sample{{returnMS: 1}}))
		}
		rs = append(rs, newRow(kind{name: "network-gateway", n: gatewaySandboxes}, []sample{{gatewayMiB: 1}}))
		rs = append(rs, newRow(kind{name: "fork-cold", source: sourceSmall, n: coldChildren}, []sample{{allReadyMS: 1}}))
		all := sample{pauseMS: 1, returnMS: 1, firstExecMS: 1, allReadyMS: 1, cpuMS: 1, privateMiB: 1}
		for _, p := range programs.All() {
			for _, n := range p.Children {
				rs = append(rs, newRow(kind{name: "fork-" + p.Name, n: n}, []sample{all}))
			}
		}
		rs = append(rs, newRow(kind{name: "fork-thousand", source: sourceSmall, n: manyChildren}, []sample{all}))
		for _, p := range plans(quick) {
			for _, n := range p.children {
				rs = append(rs, newRow(kind{name: "fork", source: p.mib, n: n, files: p.files}, []sample{all}))
			}
			if p.untouched {
				rs = append(rs, newRow(kind{name: "fork-untouched", source: p.mib, n: untouchedChildren, files: p.files}, []sample{all}))
			}
			if p.written {
				rs = append(rs, newRow(kind{name: "fork-written", source: p.mib, n: 1}, []sample{all}))
			}
			if p.diff {
				rs = append(rs, newRow(kind{name: "diff", source: p.mib, n: 2, files: p.files}, []sample{{roundtripMS: 1}}))
			}
			if p.explore {
				rs = append(rs, newRow(kind{name: "explore", source: p.mib, n: exploredChildren}, []sample{all}))
			}
			if p.idle {
				rs = append(rs, newRow(kind{name: "idle", source: p.mib, n: idleChildren}, []sample{{idlePercent: 0.1}}))
			}
		}
		for _, target := range targets(rs) {
			if target.Verdict == notMeasured {
				t.Errorf("quick %t: nothing measures %q", quick, target.What)
			}
		}
	}
}

// TestShape pins down what scripts rely on.
func TestShape(t *testing.T) {
	text, err := json.Marshal(report())
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Machine map[string]any
		Rows    []map[string]any
	}
	if err := json.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	keys := []string{
		"all_ready_ms", "case", "cpu_ms_per_child", "files", "first_exec_ms", "n", "pause_ms", "private_mib_per_child",
		"return_ms", "roundtrip_ms", "runs", "source_mib",
	}
	for _, row := range doc.Rows {
		got := []string{}
		for k := range row {
			if k != "idle_cpu_percent" && k != "work_ms" && k != "mib_per_second" && k != "gbit_per_second" && k != "gateway_mib" {
				got = append(got, k)
			}
		}
		slices.Sort(got)
		if d := cmp.Diff(keys, got); d != "" {
			t.Errorf("%v: %s", row["case"], d)
		}
	}
	if doc.Rows[1]["pause_ms"] != nil || doc.Rows[1]["roundtrip_ms"] != 3.0 || doc.Rows[1]["work_ms"] != 0.5 {
		t.Errorf("exec is %v", doc.Rows[1])
	}
	if doc.Machine["cpus"] != 2.0 || doc.Machine["kernel"] != "6.1" {
		t.Errorf("machine is %v", doc.Machine)
	}
}

func TestTable(t *testing.T) {
	var out bytes.Buffer
	if err := report().write(&out); err != nil {
		t.Fatal(err)
	}
	golden := filepath.Join("testdata", "table.txt")
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(out.String(), "\n")); d != "" {
		if os.Getenv("UPDATE") != "" {
			if err := os.WriteFile(golden, out.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		t.Errorf("%s (UPDATE=1 rewrites %s)", d, golden)
	}
}

func TestFormatted(t *testing.T) {
	for v, want := range map[float64]string{0: "0.00", 0.128: "0.13", 9.876: "9.88", 12.34: "12.3", 99.99: "100.0", 123.4: "123", 12345.6: "12346"} {
		if got := formatted(&v); got != want {
			t.Errorf("%v is %q, not %q", v, got, want)
		}
	}
	if got := formatted(nil); got != "-" {
		t.Errorf("nothing is %q", got)
	}
}
