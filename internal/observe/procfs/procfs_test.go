package procfs

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/procfs"
)

const meminfo = `MemTotal:       24684080 kB
MemFree:        20000000 kB
MemAvailable:   23888952 kB
AnonPages:        300000 kB
Shmem:              9000 kB
KernelStack:        3000 kB
PageTables:         5000 kB
HugePages_Total:       0
Strange line
`

func TestParseMemory(t *testing.T) {
	got, err := ParseMemory([]byte(meminfo))
	if err != nil {
		t.Fatal(err)
	}
	want := Memory{Total: 24684080 << 10, Available: 23888952 << 10, Occupied: (300000 + 9000 + 3000 + 5000) << 10}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	for _, name := range []string{"MemTotal", "MemAvailable", "AnonPages", "Shmem", "PageTables", "KernelStack"} {
		if _, err := ParseMemory([]byte(strings.Replace(meminfo, name, "Other", 1))); err == nil {
			t.Errorf("without %s: no error", name)
		}
	}
}

// TestReadStat reads lines of processes that the test has written.
func TestReadStat(t *testing.T) {
	const rest = " S 17 17 17 0 -1 4194304 100 200 0 0 5 6 70 8 20 0 1 0 12345 1000 10 18446744073709551615 1 1 0 0 0 0 0 0 0 0 0 0 17 3 0 0 0 0 0 0 0 0 0 0 0 0 0\n"
	for name, tc := range map[string]struct {
		line string
		want process
		bad  bool
	}{
		"plain":           {line: "42 (sh)" + rest, want: process{pid: 42, parent: 17, start: 12345, reaped: 780 * time.Millisecond}},
		"hostile command": {line: "42 (a) S 1 (b)" + rest, want: process{pid: 42, parent: 17, start: 12345, reaped: 780 * time.Millisecond}},
		"cut off":         {line: "42 (sh) S 17", bad: true},
		"no command":      {line: "42", bad: true},
		"no number":       {line: "42 (sh)" + strings.Replace(rest, "17", "x", 1), bad: true},
		"no time":         {line: "42 (sh)" + strings.Replace(rest, "70", "x", 1), bad: true},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			if err := os.Mkdir(filepath.Join(root, "42"), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(root, "42", "stat"), []byte(tc.line), 0o600); err != nil {
				t.Fatal(err)
			}
			fs, err := procfs.NewFS(root)
			if err != nil {
				t.Fatal(err)
			}
			got, err := read(fs, 42)
			if (err != nil) != tc.bad {
				t.Fatalf("error is %v", err)
			}
			if got != tc.want {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
		})
	}
}

func TestWithin(t *testing.T) {
	all := []process{{pid: 1}, {pid: 2, parent: 1}, {pid: 3, parent: 2}, {pid: 4, parent: 1}, {pid: 5, parent: 4}}
	pids := func(roots ...int) map[int]bool {
		m := map[int]bool{}
		for _, p := range within(all, roots) {
			if m[p.pid] {
				t.Errorf("%d is there twice", p.pid)
			}
			m[p.pid] = true
		}
		return m
	}
	for _, tc := range []struct {
		roots []int
		want  map[int]bool
	}{
		{roots: []int{2}, want: map[int]bool{2: true, 3: true}},
		{roots: []int{2, 3}, want: map[int]bool{2: true, 3: true}},
		{roots: []int{5, 2}, want: map[int]bool{5: true, 2: true, 3: true}},
		{roots: []int{9}, want: map[int]bool{}},
		{want: map[int]bool{}},
	} {
		if d := cmp.Diff(tc.want, pids(tc.roots...)); d != "" {
			t.Errorf("%v: %s", tc.roots, d)
		}
	}
}

// TestTreeCPU has a child use time and looks for it, while it lives and after.
func TestTreeCPU(t *testing.T) {
	before, err := TreeCPU(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	// It works, says so, and then lives until its input ends.
	cmd := exec.Command("/bin/sh", "-c", "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; echo worked; read -r _")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 16)); err != nil {
		t.Fatal(err)
	}
	alive, err := TreeCPU(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	alone, err := processCPU(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	in.Close()
	_ = cmd.Wait() // its exit code says only that the input ended
	used := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	after, err := TreeCPU(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	const rounding = 20 * time.Millisecond // of the times of ended children: two numbers of a tick each
	if alive-before < used-rounding {
		t.Errorf("%v while the child lived, it used %v", alive-before, used)
	}
	if alone < used-rounding || alone > alive-before+rounding {
		t.Errorf("%v of the child alone, it used %v", alone, used)
	}
	if after-before < used-rounding {
		t.Errorf("%v after the child ended, it used %v", after-before, used)
	}
	if _, err := processCPU(1<<22 + 1); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a process that cannot be: %v", err)
	}
}

func TestFind(t *testing.T) {
	cmd := exec.Command("/bin/sh", "-c", "read -r _", "ramet-procfs-test")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	got, err := Find("ramet-procfs-test")
	in.Close()
	_ = cmd.Wait()
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]int{cmd.Process.Pid}, got); d != "" {
		t.Error(d)
	}
}

func TestReadMemory(t *testing.T) {
	m, err := ReadMemory()
	if err != nil {
		t.Fatal(err)
	}
	if m.Total <= 0 || m.Available <= 0 || m.Available > m.Total || m.Occupied <= 0 || m.Occupied > m.Total {
		t.Errorf("%+v makes no sense", m)
	}
}

func TestParseBusy(t *testing.T) {
	for line, want := range map[string]time.Duration{
		"cpu  100 20 30 9999 999 4 5 6 7 8\ncpu0 1 1\n": 1650 * time.Millisecond,
		"cpu0 100 20 30 9999 999 4 5 6 7 8\n":           0,
		"cpu 1 2 3\n":                                   0,
		"cpu 1 2 x 4 5 6 7 8 9\n":                       0,
		"":                                              0,
	} {
		got, err := parseBusy(line)
		if got != want || (err == nil) != (want != 0) {
			t.Errorf("%q: %v, %v", line, got, err)
		}
	}
	if busy, err := Busy(); err != nil || busy <= 0 {
		t.Errorf("this machine: %v, %v", busy, err)
	}
}

func TestStartTime(t *testing.T) {
	want, err := StartTime(os.Getpid())
	if err != nil || want == 0 {
		t.Fatalf("StartTime = %d, %v", want, err)
	}
	name, err := os.ReadFile("/proc/self/comm")
	if err != nil {
		t.Fatal(err)
	}
	defer os.WriteFile("/proc/self/comm", bytes.TrimSpace(name), 0)
	if err := os.WriteFile("/proc/self/comm", []byte("a) S 1 (2 3"), 0); err != nil {
		t.Fatal(err)
	}
	if got, err := StartTime(os.Getpid()); got != want {
		t.Errorf("under a strange name it is %d, not %d (%v)", got, want, err)
	}
	if _, err := StartTime(1<<22 + 1); err == nil {
		t.Error("a process that cannot be has a start time")
	}
}

func TestCPUModel(t *testing.T) {
	if got := cpuModel("processor\t: 0\nmodel name\t: A B: C\nmodel name\t: D\n"); got != "A B: C" {
		t.Errorf("model is %q", got)
	}
	if got := cpuModel("Features : fp\n"); got != "" {
		t.Errorf("model is %q", got)
	}
}
