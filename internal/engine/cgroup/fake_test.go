package cgroup

import (
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"ramet.dev/ramet/api"
)

// fakeGroup is a group whose control files are ordinary ones.
func fakeGroup(t *testing.T, kind Kind, files ...string) *Group {
	t.Helper()
	own := t.TempDir()
	h := &Hierarchy{kind: kind, parent: "p", own: map[controller]string{}, prepared: true}
	for _, c := range neededV1 {
		h.own[c] = own
	}
	g := &Group{h: h, id: "pool_1"}
	if err := os.MkdirAll(g.dir(memory), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if err := os.WriteFile(filepath.Join(g.dir(memory), f), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return g
}

func content(t *testing.T, g *Group, c controller, file string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(g.dir(c), file))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestSetLimitsWrites(t *testing.T) {
	some := Limits{CPUs: 1.5, MemoryBytes: 1 << 20, Pids: 9}
	for _, c := range []struct {
		name   string
		kind   Kind
		limits Limits
		want   map[string]string
	}{
		{"v2", KindV2, some, map[string]string{
			"memory.max": "1048576", "memory.swap.max": "0", "memory.oom.group": "1", "cpu.max": "150000 100000", "pids.max": "9",
		}},
		{"v2 none", KindV2, Limits{}, map[string]string{
			"memory.max": "max", "memory.swap.max": "max", "memory.oom.group": "0", "cpu.max": "max 100000", "pids.max": "max",
		}},
		{"v2 without swap", KindV2, some, map[string]string{"memory.max": "1048576", "cpu.max": "150000 100000", "pids.max": "9"}},
		{"v1 none", KindV1, Limits{}, map[string]string{
			// An ordinary file keeps the tail of what was there before; both are "-1".
			"memory.limit_in_bytes": "-1", "memory.memsw.limit_in_bytes": "-1", "cpu.cfs_quota_us": "-1", "pids.max": "max",
		}},
		{"v1 without swap accounting", KindV1, some, map[string]string{
			"memory.limit_in_bytes": "1048576", "cpu.cfs_quota_us": "150000", "pids.max": "9",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var files []string
			for f := range c.want {
				files = append(files, f)
			}
			g := fakeGroup(t, c.kind, files...)
			if err := g.SetLimits(c.limits); err != nil {
				t.Fatal(err)
			}
			for f, want := range c.want {
				if got := content(t, g, memory, f); got != want {
					t.Errorf("%s = %q, want %q", f, got, want)
				}
			}
		})
	}
}

func TestSetLimitsNeedsItsFiles(t *testing.T) {
	if err := fakeGroup(t, KindV2).SetLimits(Limits{}); err == nil {
		t.Error("SetLimits without control files succeeds")
	}
}

func TestLimitsValidate(t *testing.T) {
	for _, l := range []Limits{
		{CPUs: -1}, {CPUs: 0.001}, {CPUs: math.NaN()}, {CPUs: math.Inf(1)}, {CPUs: 1e9}, {MemoryBytes: -1}, {Pids: -1},
	} {
		if err := l.validate(); api.CodeOf(err) != api.CodeInvalid {
			t.Errorf("%+v: %v", l, err)
		}
	}
	if err := (Limits{CPUs: minCPUs, MemoryBytes: 1, Pids: 1}).validate(); err != nil {
		t.Error(err)
	}
}

func TestStatsV2(t *testing.T) {
	g := fakeGroup(t, KindV2)
	for f, s := range map[string]string{
		"memory.current": "4096\n", "cpu.stat": "usage_usec 1500\nuser_usec 1000\n", "pids.current": "3\n",
		"memory.events": "low 0\noom 5\noom_kill 2\noom_group_kill 1\n",
	} {
		if err := os.WriteFile(filepath.Join(g.dir(memory), f), []byte(s), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := g.Stats()
	want := Stats{MemoryBytes: 4096, CPU: 1500 * time.Microsecond, Pids: 3, OOMKills: 2}
	if err != nil || got != want {
		t.Errorf("Stats = %+v, %v, want %+v", got, err, want)
	}
}

func TestProcsIgnoresSelfAndForeignNamespaces(t *testing.T) {
	g := fakeGroup(t, KindV1)
	self := os.Getpid()
	list := "0\n7\n" + orUnlimited(int64(self), "") + "\n5\n7\n"
	if err := os.WriteFile(filepath.Join(g.dir(memory), "cgroup.procs"), []byte(list), 0o644); err != nil {
		t.Fatal(err)
	}
	got, err := g.Procs()
	if err != nil || len(got) != 2 || got[0] != 5 || got[1] != 7 {
		t.Errorf("Procs = %v, %v, want [5 7]", got, err)
	}
}

func TestPrepareV2EnablesControllers(t *testing.T) {
	files := v2Files("svc", "cpu memory pids")
	files["cg/svc/ramet/cgroup.subtree_control"] = "memory"
	root := tree(t, files)
	h, err := Detect(Options{Root: root})
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Prepare(); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]string{"cg/svc": "+memory +cpu +pids", "cg/svc/ramet": "+cpu +pids"} {
		b, err := os.ReadFile(filepath.Join(root, dir, "cgroup.subtree_control"))
		if err != nil || string(b) != want {
			t.Errorf("%s: %q, %v, want %q", dir, b, err, want)
		}
	}
}
