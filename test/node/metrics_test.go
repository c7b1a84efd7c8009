package node

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/node/timer/timertest"
	"ramet.dev/ramet/internal/observe/metrics"
	"ramet.dev/ramet/internal/observe/procfs"
	"ramet.dev/ramet/internal/observe/tracing"
	"ramet.dev/ramet/test/harness"
)

// TestMetricsOfRealWork does things with sandboxes and reads what was counted.
func TestMetricsOfRealWork(t *testing.T) {
	ctx := harness.AsOwner
	n := harness.NewClosedNode(t, harness.NewDir(t)+"/data")
	counts, clock := metrics.New("test"), timertest.New(time.Now())
	n.Observer, n.Clock = counts, clock
	n.Open()
	t.Cleanup(n.Finish)
	counts.Watch(n.Machine.Usage)
	read := func() map[string]float64 {
		w := httptest.NewRecorder()
		counts.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
		values := map[string]float64{}
		for line := range strings.Lines(w.Body.String()) {
			var v float64
			if name, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " "); ok && !strings.HasPrefix(line, "#") {
				if _, err := fmt.Sscan(value, &v); err != nil {
					t.Fatalf("%s: %v", line, err)
				}
				values[name] = v
			}
		}
		return values
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}

	n.Create("source")
	n.Guest("source", "true")
	idle := read()
	children := n.Fork("source", 2)
	n.Guest(children[0].ID, "true")
	n.Guest(children[0].ID, "true")
	_, err := n.Machine.Snapshot(ctx, "source", api.SnapshotRequest{Name: "kept"})
	must(err)
	_, err = n.Machine.Restore(ctx, "kept", api.RestoreRequest{Count: 1})
	must(err)
	_, err = n.Machine.Diff(ctx, "source", children[0].ID, api.DiffRequest{})
	must(err)
	_, err = n.Machine.Pause(ctx, children[1].ID)
	must(err)
	_, err = n.Machine.Merge(ctx, "source", api.MergeRequest{From: []string{children[0].ID}})
	must(err)
	if _, err := n.Machine.Fork(ctx, "nobody", api.ForkRequest{}); err == nil {
		t.Fatal("nobody was forked")
	}
	if _, err := n.Machine.Fork(ctx, children[1].ID, api.ForkRequest{}); err == nil {
		t.Fatal("a paused sandbox was forked")
	}
	busy := read()
	for name, want := range map[string]float64{
		`ramet_operation_seconds_count{operation="create"}`:           1,
		`ramet_operation_seconds_count{operation="fork"}`:             1,
		`ramet_operation_seconds_count{operation="exec"}`:             3,
		`ramet_operation_seconds_count{operation="snapshot_disk"}`:    1,
		`ramet_operation_seconds_count{operation="restore"}`:          1,
		`ramet_operation_seconds_count{operation="diff"}`:             1,
		`ramet_operation_seconds_count{operation="merge"}`:            1,
		`ramet_operation_seconds_count{operation="pause"}`:            1,
		`ramet_operations_total{code="wrong_state",operation="fork"}`: 1,
		`ramet_operations_active{operation="fork"}`:                   0,
		`ramet_pause_seconds_count`:                                   2,
		`ramet_child_ready_seconds_count`:                             3,
		`ramet_all_ready_seconds_count`:                               2,
		`ramet_child_first_exec_seconds_count`:                        1,
		`ramet_sandboxes{state="running"}`:                            3,
		`ramet_sandboxes{state="paused"}`:                             1,
		`ramet_snapshots{state="ready"}`:                              1,
	} {
		if got, ok := busy[name]; !ok || got != want {
			t.Errorf("%s is %v, not %v", name, got, want)
		}
	}
	for _, name := range []string{
		`ramet_operation_seconds_sum{operation="fork"}`, `ramet_pause_seconds_sum`, `ramet_child_ready_seconds_sum`, `ramet_pins`, `ramet_memory_bytes{kind="private"}`, `ramet_memory_bytes{kind="shared"}`,
	} {
		if busy[name] <= 0 {
			t.Errorf("%s is %v", name, busy[name])
		}
	}
	if idle["ramet_pins"] != 0 || idle[`ramet_memory_bytes{kind="shared"}`] != 0 || idle[`ramet_memory_bytes{kind="private"}`] <= 0 {
		t.Errorf("a sandbox alone: %v pins, %v shared, %v private", idle["ramet_pins"], idle[`ramet_memory_bytes{kind="shared"}`], idle[`ramet_memory_bytes{kind="private"}`])
	}
	if busy["ramet_child_cpu_seconds_count"] != 0 {
		t.Error("what a child costs was told before it was old enough")
	}
	clock.Advance(time.Minute)
	harness.Eventually(t, "what three children cost", func() error {
		if busy = read(); busy["ramet_child_cpu_seconds_count"] != 3 || busy["ramet_child_private_bytes_count"] != 3 {
			return fmt.Errorf("%v and %v were looked at", busy["ramet_child_cpu_seconds_count"], busy["ramet_child_private_bytes_count"])
		}
		return nil
	})
	// The three children cannot have cost more than all sentries did, nor have more than all have.
	var whole time.Duration
	var all int64
	for _, pid := range n.Sentries() {
		cpu, err := procfs.FamilyCPU(pid)
		must(err)
		private, err := procfs.FamilyPrivate(pid)
		must(err)
		whole, all = whole+cpu, all+private
	}
	cpu, private := busy["ramet_child_cpu_seconds_sum"], busy["ramet_child_private_bytes_sum"]
	if cpu <= 0 || cpu > whole.Seconds() || private < 3<<20 || private > float64(all) {
		t.Errorf("the children cost %v of %v s and %v of %v bytes", cpu, whole.Seconds(), private, all)
	}
	n.DestroyAll()
	if after := read(); after[`ramet_sandboxes{state="running"}`] != 0 || after["ramet_pins"] != 0 || after[`ramet_memory_bytes{kind="private"}`] != 0 || after[`ramet_operation_seconds_count{operation="destroy"}`] != 4 {
		t.Errorf("when all are gone: %v", after)
	}
}

// TestTracesOfRealWork has a collector get what sentries say of how they spent the time
// of calls.
func TestTracesOfRealWork(t *testing.T) {
	var mu sync.Mutex
	seen := map[string]int{}
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var req struct {
			ResourceSpans []struct {
				Resource   struct{ Attributes json.RawMessage }
				ScopeSpans []struct{ Spans []struct{ Name string } }
			}
		}
		if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		for _, rs := range req.ResourceSpans {
			if !strings.Contains(string(rs.Resource.Attributes), `"ramet-sentry"`) {
				continue
			}
			for _, ss := range rs.ScopeSpans {
				for _, s := range ss.Spans {
					seen[s.Name]++
				}
			}
		}
	}))
	defer collector.Close()
	getenv := func(name string) string {
		return map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": collector.URL}[name]
	}
	traces, err := tracing.Open("ramet-daemon", "test", getenv, func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	n := harness.NewNode(t)
	n.Create("source")
	ctx, ended := traces.Root(harness.AsOwner, "test", "")
	r, err := n.Machine.Fork(ctx, "source", api.ForkRequest{Count: 2})
	if err != nil {
		t.Fatal(err)
	}
	child := n.Children(r)[0].ID
	if _, err := n.Machine.Exec(ctx, child, api.ExecRequest{Argv: []string{"guest", "write", "/srv/new", "x"}}, harness.DiscardExec()); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Machine.Diff(ctx, "source", child, api.DiffRequest{}); err != nil {
		t.Fatal(err)
	}
	if m, err := n.Machine.Merge(ctx, "source", api.MergeRequest{From: []string{child}}); err != nil || len(m.Applied) != 1 {
		t.Fatalf("%+v, %v", m, err)
	}
	ended("")
	if err := traces.Close(harness.AsOwner); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	for name, least := range map[string]int{"freeze pause": 1, "freeze save": 1, "load load": 2, "exec start": 1, "exec run": 1, "view pin": 3, "patch rename": 1} {
		if seen[name] < least {
			t.Errorf("%d spans %q, of %v", seen[name], name, seen)
		}
	}
}
