package cgroup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/api"
)

const helperEnv = "RAMET_TEST_EAT_MEMORY"

func TestMain(m *testing.M) {
	if os.Getenv(helperEnv) != "" {
		eat := make([]byte, 256<<20)
		for i := 0; i < len(eat); i += 4096 {
			eat[i] = 1
		}
		fmt.Println("ate it all")
		return
	}
	os.Exit(m.Run())
}

// realHierarchy returns this machine's hierarchy, with a parent directory of the
// test's own so that neither a daemon's nor another test's groups are touched.
func realHierarchy(t *testing.T) *Hierarchy {
	t.Helper()
	h, err := Detect(Options{Parent: fmt.Sprintf("ramet-test-%d-%d", os.Getpid(), time.Now().UnixNano())})
	if errors.Is(err, ErrUnavailable) {
		t.Skipf("this machine has none for us: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	cleanUp(t, h)
	return h
}

func cleanUp(t *testing.T, h *Hierarchy) {
	t.Cleanup(func() {
		if _, err := h.Sweep(deadline(t), func(string) bool { return false }); err != nil {
			t.Error(err)
		}
		if err := h.Close(); err != nil {
			t.Error(err)
		}
		for _, dir := range h.parentDirs() {
			if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s is left: %v", dir, err)
			}
		}
	})
}

func deadline(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func mustNew(t *testing.T, h *Hierarchy, l Limits) *Group {
	t.Helper()
	g, err := h.New(api.NewID(api.KindSandbox), l)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func mustStart(t *testing.T, g *Group, name string, arg ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(name, arg...)
	if err := startIn(g, cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	return cmd
}

// startIn starts cmd by way of a shell that enters the group. The group has the
// process when it returns.
func startIn(g *Group, cmd *exec.Cmd) error {
	files, err := g.Entrances()
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	if err != nil {
		return err
	}
	enter := ""
	for i := range files {
		enter += fmt.Sprintf("echo 0 >&%[1]d && exec %[1]d>&- && ", i+3)
	}
	entered, inside, err := os.Pipe()
	if err != nil {
		return err
	}
	defer entered.Close()
	files = append(files, inside)
	enter += fmt.Sprintf("exec %d>&- && ", len(files)+2)
	sh, err := exec.LookPath("sh")
	if err != nil {
		return err
	}
	cmd.Args = append([]string{"sh", "-c", enter + `exec "$@"`, "sh", cmd.Path}, cmd.Args[1:]...)
	cmd.Path, cmd.ExtraFiles = sh, files
	if err := cmd.Start(); err != nil {
		return err
	}
	inside.Close()
	entered.Read(make([]byte, 1)) // until the shell, or the process, has closed it
	return nil
}

func TestMemoryLimitKills(t *testing.T) {
	g := mustNew(t, realHierarchy(t), Limits{MemoryBytes: 48 << 20})
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), helperEnv+"=1")
	var out strings.Builder
	cmd.Stdout = &out
	if err := startIn(g, cmd); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil || out.Len() > 0 {
		t.Fatalf("the process lived: %v, %s", err, out.String())
	}
	s, err := g.Stats()
	if err != nil || s.OOMKills < 1 || s.CPU <= 0 || s.MemoryBytes > 48<<20 {
		t.Errorf("Stats = %+v, %v", s, err)
	}
}

func TestPidsLimitHolds(t *testing.T) {
	g := mustNew(t, realHierarchy(t), Limits{Pids: 5})
	cmd := exec.Command("sh", "-c", "for i in 1 2 3 4 5 6 7 8 9; do sleep 1000 & done")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	cmd.WaitDelay = time.Second // the sleeps keep stderr open
	if err := startIn(g, cmd); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil || !strings.Contains(strings.ToLower(stderr.String()), "fork") {
		t.Errorf("the shell made all its children: %v, %s", err, stderr.String())
	}
	procs, err := g.Procs()
	if err != nil || len(procs) == 0 || len(procs) > 5 {
		t.Errorf("Procs = %v, %v", procs, err)
	}
	if err := errors.Join(g.Kill(), g.Delete(deadline(t))); err != nil {
		t.Error(err)
	}
}

func TestSetLimitsReallyRaisesAndLowers(t *testing.T) {
	h := realHierarchy(t)
	g := mustNew(t, h, Limits{})
	for _, l := range []Limits{
		{CPUs: 1.5, MemoryBytes: 64 << 20, Pids: 10}, {CPUs: 0.01, MemoryBytes: 32 << 20, Pids: 1}, {CPUs: 2, MemoryBytes: 1 << 30}, {},
	} {
		if err := g.SetLimits(l); err != nil {
			t.Fatalf("%+v: %v", l, err)
		}
		settings := settingsV1(l)
		if h.Kind() == KindV2 {
			settings = settingsV2(l)
		}
		for _, s := range settings[len(settings)-2:] { // cpu and pids read back as written
			if got := strings.TrimSpace(content(t, g, s.controller, s.file)); got != s.value {
				t.Errorf("%s = %s, want %s", s.file, got, s.value)
			}
		}
		file := map[Kind]string{KindV1: "memory.limit_in_bytes", KindV2: "memory.max"}[h.Kind()]
		if got := strings.TrimSpace(content(t, g, memory, file)); l.MemoryBytes > 0 && got != orUnlimited(l.MemoryBytes, "") {
			t.Errorf("%s = %s, want %d", file, got, l.MemoryBytes)
		}
	}
}

func TestEntrancesLeadToAllHierarchies(t *testing.T) {
	h := realHierarchy(t)
	g := mustNew(t, h, Limits{})
	started := mustStart(t, g, "sleep", "1000")
	added := mustStart(t, g, "sleep", "1000")
	for _, pid := range []int{started.Process.Pid, added.Process.Pid} {
		if n := strings.Count(cgroupsOf(t, fmt.Sprint("/proc/", pid)), h.parent+"/"+g.ID()); n < len(h.ownDirs()) {
			t.Errorf("process %d is in %d of %d hierarchies", pid, n, len(h.ownDirs()))
		}
	}
	tasks, err := filepath.Glob("/proc/self/task/*")
	if err != nil || len(tasks) == 0 {
		t.Fatal(err)
	}
	for _, task := range tasks {
		if strings.Contains(cgroupsOf(t, task), g.ID()) {
			t.Errorf("our thread %s stayed in the group", task)
		}
	}
	procs, err := g.Procs()
	want := []int{started.Process.Pid, added.Process.Pid}
	slices.Sort(want)
	if err != nil || !slices.Equal(procs, want) {
		t.Errorf("Procs = %v, %v, want %v", procs, err, want)
	}
	if s, err := g.Stats(); err != nil || s.Pids != 2 {
		t.Errorf("Stats = %+v, %v, want 2 tasks", s, err)
	}
}

func cgroupsOf(t *testing.T, proc string) string {
	t.Helper()
	b, err := os.ReadFile(proc + "/cgroup")
	if err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, unix.ESRCH) {
		t.Fatal(err)
	}
	return string(b)
}

func TestNewLeavesNothingWhenItFails(t *testing.T) {
	h := realHierarchy(t)
	g := mustNew(t, h, Limits{})
	if _, err := h.New(g.ID(), Limits{}); !errors.Is(err, os.ErrExist) {
		t.Errorf("New of an existing group = %v", err)
	}
	if _, err := h.New("../x", Limits{}); api.CodeOf(err) != api.CodeInvalid {
		t.Errorf("New of a bad id = %v", err)
	}
	if _, err := h.New("pool_1", Limits{CPUs: -1}); api.CodeOf(err) != api.CodeInvalid {
		t.Errorf("New with bad limits = %v", err)
	}
	// The last hierarchy already has the group: the others must be undone.
	dirs := (&Group{h: h, id: "pool_1"}).dirs()
	last := dirs[len(dirs)-1]
	if err := os.Mkdir(last, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := h.New("pool_1", Limits{}); !errors.Is(err, os.ErrExist) {
		t.Errorf("New of a half existing group = %v", err)
	}
	for _, dir := range dirs[:len(dirs)-1] {
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is left: %v", dir, err)
		}
	}
}

func TestDeleteWaitsForProcesses(t *testing.T) {
	g := mustNew(t, realHierarchy(t), Limits{})
	mustStart(t, g, "sleep", "1000")
	ctx, cancel := context.WithCancel(deadline(t))
	cancel()
	if err := g.Delete(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Delete of a group in use = %v", err)
	}
	if err := errors.Join(g.Kill(), g.Delete(deadline(t)), g.Delete(deadline(t))); err != nil {
		t.Error(err)
	}
	for _, dir := range g.dirs() {
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is left: %v", dir, err)
		}
	}
}

func TestKillEndsAFamily(t *testing.T) {
	g := mustNew(t, realHierarchy(t), Limits{})
	// The shell goes on making children while it is being killed.
	cmd := exec.Command("sh", "-c", "echo up; while :; do sleep 1000 & done")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := g.SetLimits(Limits{Pids: 300}); err != nil {
		t.Fatal(err)
	}
	if err := startIn(g, cmd); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 3)); err != nil {
		t.Fatal(err)
	}
	if err := g.Kill(); err != nil {
		t.Fatal(err)
	}
	cmd.Wait() // killed, or ended itself when no fork was to be had
	if err := g.Delete(deadline(t)); err != nil {
		t.Error(err)
	}
	if err := startIn(g, exec.Command("true")); err == nil {
		t.Error("a deleted group accepts a process")
	}
}

func TestSweep(t *testing.T) {
	h := realHierarchy(t)
	kept, gone, empty := mustNew(t, h, Limits{}), mustNew(t, h, Limits{}), mustNew(t, h, Limits{})
	keptCmd, goneCmd := mustStart(t, kept, "sleep", "1000"), mustStart(t, gone, "sleep", "1000")
	foreign := filepath.Join(h.parentDirs()[0], "foreign")
	if err := os.Mkdir(foreign, 0o755); err != nil {
		t.Fatal(err)
	}
	// A crash in the middle of New or Delete.
	half := &Group{h: h, id: "pool_half"}
	if err := os.Mkdir(half.dirs()[0], 0o755); err != nil {
		t.Fatal(err)
	}

	got, err := h.Sweep(deadline(t), func(id string) bool { return id == kept.ID() })
	if err != nil {
		t.Fatal(err)
	}
	want := []string{gone.ID(), empty.ID(), half.id}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("Sweep = %v, want %v", got, want)
	}
	if goneCmd.Wait() == nil {
		t.Error("the swept process ended well")
	}
	if procs, err := kept.Procs(); err != nil || !slices.Contains(procs, keptCmd.Process.Pid) {
		t.Errorf("the kept group has %v, %v", procs, err)
	}
	if err := os.Remove(foreign); err != nil {
		t.Errorf("the foreign group: %v", err)
	}
	if err := h.Close(); err != nil { // kept is still there
		t.Error(err)
	}
}

// TestV2WithoutControllers drives the v2 code on a hierarchy that lends us no
// controllers, as hybrid machines have it.
func TestV2WithoutControllers(t *testing.T) {
	mounts, err := readMounts("")
	if err != nil {
		t.Fatal(err)
	}
	own, err := readOwn("")
	if err != nil {
		t.Fatal(err)
	}
	dir, err := ownDir("", mounts, own, "")
	if err == nil {
		err = effectivelyWritable(dir)
	}
	if err != nil {
		t.Skipf("no cgroup v2 to make groups in: %v", err)
	}
	h := &Hierarchy{kind: KindV2, prepared: true, parent: fmt.Sprintf("ramet-test-%d", os.Getpid()), own: map[controller]string{}}
	for _, c := range neededV2 {
		h.own[c] = dir
	}
	if err := os.Mkdir(h.parentDirs()[0], 0o755); err != nil {
		t.Skipf("no cgroup v2 to make groups in: %v", err)
	}
	cleanUp(t, h)
	g := mustNew(t, h, Limits{})
	cmd := mustStart(t, g, "sleep", "1000")
	if procs, err := g.Procs(); err != nil || !slices.Equal(procs, []int{cmd.Process.Pid}) {
		t.Errorf("Procs = %v, %v", procs, err)
	}
	if err := errors.Join(g.Kill(), g.Delete(deadline(t))); err != nil {
		t.Error(err)
	}
	if cmd.Wait() == nil {
		t.Error("the killed process ended well")
	}
}

// BenchmarkNewStartDelete is the price that a fork pays when the pool is empty.
func BenchmarkNewStartDelete(b *testing.B) {
	h, err := Detect(Options{Parent: fmt.Sprintf("ramet-bench-%d", os.Getpid())})
	if err != nil {
		b.Skipf("this machine has none for us: %v", err)
	}
	defer h.Close()
	var made, limited time.Duration
	for b.Loop() {
		t0 := time.Now()
		g, err := h.New(api.NewID(api.KindSandbox), Limits{CPUs: 1, MemoryBytes: 1 << 28, Pids: 100})
		made += time.Since(t0)
		if err != nil {
			b.Fatal(err)
		}
		cmd := exec.Command("true")
		if err := errors.Join(startIn(g, cmd), cmd.Wait()); err != nil {
			b.Fatal(err)
		}
		t0 = time.Now()
		if err := g.SetLimits(Limits{CPUs: 2, MemoryBytes: 1 << 29, Pids: 200}); err != nil {
			b.Fatal(err)
		}
		limited += time.Since(t0)
		if err := g.Delete(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(made.Microseconds())/float64(b.N), "new-µs/op")
	b.ReportMetric(float64(limited.Microseconds())/float64(b.N), "setlimits-µs/op")
}
