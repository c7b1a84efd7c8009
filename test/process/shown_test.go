package process

import (
	"fmt"
	"os"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/test/harness"
)

// shown is what a sandbox is shown of what it may use.
func shown(n *harness.Node, ref string) string {
	n.T.Helper()
	var b strings.Builder
	for _, file := range []string{
		"/sys/fs/cgroup/cpu.max", "/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/pids.max", "/sys/fs/cgroup/cgroup.controllers",
		"/sys/fs/cgroup/cpuset.cpus.effective", "/proc/self/cgroup", "/proc/cgroups",
	} {
		b.WriteString(n.Guest(ref, "say", "file:"+file))
	}
	fmt.Fprintf(&b, "%d processors\n", strings.Count("\n"+n.Guest(ref, "say", "file:/proc/cpuinfo"), "\nprocessor\t"))
	b.WriteString(memTotal(n.Guest(ref, "say", "file:/proc/meminfo")) + "\n")
	return b.String()
}

func memTotal(meminfo string) string {
	return strings.Join(strings.Fields(regexp.MustCompile(`MemTotal: .*`).FindString(meminfo)), " ")
}

// wantShown is what shown returns.
func wantShown(cpu, memory, pids, cpus, total string, processors int) string {
	return cpu + "\n" + memory + "\n" + pids + "\ncpuset cpu memory pids\n" + cpus + "\n0::/\n" +
		"#subsys_name\thierarchy\tnum_cgroups\tenabled\ncpuset\t0\t1\t1\ncpu\t0\t1\t1\ncpuacct\t0\t1\t1\nmemory\t0\t1\t1\npids\t0\t1\t1\n" +
		fmt.Sprintf("%d processors\n%s\n", processors, total)
}

// TestLimitsAreShown looks at what programs size their heaps and pools by: the limits of the sandbox, and of its
// children, or the machine's where there are none.
func TestLimitsAreShown(t *testing.T) {
	host, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		t.Fatal(err)
	}
	all := "0"
	if n := runtime.NumCPU(); n > 1 {
		all = fmt.Sprintf("0-%d", n-1)
	}
	machine := memTotal(string(host))
	for name, c := range map[string]struct {
		limits api.Limits
		want   string
	}{
		"without":    {api.Limits{}, wantShown("max 100000", "max", "max", all, machine, runtime.NumCPU())},
		"with":       {api.Limits{CPUs: 0.5, Pids: 50}, wantShown("50000 100000", "max", "50", "0", machine, 1)},
		"of-memory":  {api.Limits{MemoryMiB: 400}, wantShown("max 100000", "419430400", "max", all, "MemTotal: 409600 kB", runtime.NumCPU())},
		"of-all-cpu": {api.Limits{CPUs: float64(runtime.NumCPU())}, wantShown(fmt.Sprint(runtime.NumCPU()*100000, " 100000"), "max", "max", all, machine, runtime.NumCPU())},
	} {
		t.Run(name, func(t *testing.T) {
			n := harness.NewNode(t)
			_, err := n.Machine.Create(harness.AsOwner, api.CreateRequest{Image: "box", Name: name, Limits: c.limits})
			if (c.limits.MemoryMiB > 0 || c.limits.CPUs > 0) && api.CodeOf(err) == api.CodeIsolation {
				return // there are no control groups here, so there is no such limit to be shown
			}
			if err != nil {
				t.Fatal(err)
			}
			check := func(ref string) {
				t.Helper()
				if got := shown(n, ref); got != c.want {
					t.Errorf("%s is shown\n%s\nnot\n%s", ref, got, c.want)
				}
			}
			check(name)
			child := n.Fork(name, 1)[0].ID
			check(child)
			snap := n.Snapshot(child, api.SnapshotRequest{})
			r, err := n.Machine.Restore(harness.AsOwner, snap.ID, api.RestoreRequest{})
			if err != nil {
				t.Fatal(err)
			}
			check(n.Children(r)[0].ID)
			check(name)
		})
	}
}

// TestShownLimitsInUse forks a sandbox in which processes are in /sys/fs/cgroup and /proc, so that those file systems
// are part of the saved state.
func TestShownLimitsInUse(t *testing.T) {
	n := harness.NewNode(t)
	var limits api.Limits
	if n.HasGroups() {
		limits.Pids = 50
	}
	if _, err := n.Machine.Create(harness.AsOwner, api.CreateRequest{Image: "box", Name: "box", Limits: limits}); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"/sys/fs/cgroup", "/proc"} {
		n.Start("box", api.StartRequest{Stdin: true, Cwd: dir}, "cat")
	}
	want := shown(n, "box")
	ref := "box"
	for range 2 {
		ref = n.Fork(ref, 1)[0].ID
		if got := shown(n, ref); got != want {
			t.Errorf("%s is shown\n%s\nnot\n%s", ref, got, want)
		}
		if got := n.Guest(ref, "say", "file:/proc/loadavg"); !regexp.MustCompile(`^\d+\.\d\d \d+\.\d\d \d+\.\d\d \d+/\d+ \d+\n$`).MatchString(got) {
			t.Errorf("the load is %q", got)
		}
	}
	total := want[strings.Index(want, "MemTotal"):]
	if got, want := n.Guest(ref, "sysinfo"), fmt.Sprintf("%s%d processors\ntrue\n", total, runtime.NumCPU()); got != want {
		t.Errorf("sysinfo(2) and sched_getaffinity(2) say %q, not %q", got, want)
	}
	// What the sandbox's kernel does not know is not shown as zero.
	if got := n.Guest(ref, "say", "file:/sys/fs/cgroup/cpu.stat"); !regexp.MustCompile(`^usage_usec \d+\nuser_usec \d+\nsystem_usec \d+\n$`).MatchString(got) {
		t.Errorf("the processor time is %q", got)
	}
	for _, name := range []string{"memory.events", "memory.oom.group", "pids.events"} {
		out, err := n.Run(ref, api.ExecRequest{Argv: []string{"guest", "say", "file:/sys/fs/cgroup/" + name}}, "")
		if err != nil || out.ExitCode == 0 || !strings.Contains(out.Stderr.String(), "no such file") {
			t.Errorf("%s: %v %+v", name, err, out)
		}
	}
	// Nobody can raise a limit there.
	before := n.Guest(ref, "say", "file:/sys/fs/cgroup/pids.max")
	out, err := n.Run(ref, api.ExecRequest{Argv: []string{"guest", "write", "/sys/fs/cgroup/pids.max", "max"}, User: "root"}, "")
	if err != nil || out.ExitCode == 0 {
		t.Errorf("pids.max was written: %v %+v", err, out)
	}
	if got := n.Guest(ref, "say", "file:/sys/fs/cgroup/pids.max"); got != before || limits.Pids > 0 && got != "50\n" {
		t.Errorf("then it is %q, and was %q", got, before)
	}
}

// TestPeakOfMemory has a process use memory and end. Its sandbox has used that much; a child, which begins anew, has not.
func TestPeakOfMemory(t *testing.T) {
	n := harness.NewNode(t)
	n.Create("box")
	peak := func(ref string) int {
		t.Helper()
		b, err := strconv.Atoi(strings.TrimSpace(n.Guest(ref, "say", "file:/sys/fs/cgroup/memory.peak")))
		if err != nil {
			t.Fatal(err)
		}
		return b >> 20
	}
	before := peak("box")
	n.Guest("box", "eat", "100")
	if got := peak("box"); before >= 100 || got < 100 || got > 300 {
		t.Errorf("the peak is %d MiB, and was %d", got, before)
	}
	if got := peak(n.Fork("box", 1)[0].ID); got >= 100 {
		t.Errorf("the peak of a child is %d MiB", got)
	}
}
